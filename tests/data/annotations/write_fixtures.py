"""Write fixtures.json: Datumaro's own small datasets of common forms, and what Datumaro reads in them.

    python -m tests.data.annotations.write_fixtures DATUMARO

DATUMARO is a clone of cvat-ai/datumaro (MIT), with the packages of its requirements-core.txt; these are of its commit 8970bb78.
"""

import base64
import json
import sys
from pathlib import Path

from tests.data.annotations.write_tools import regions_of_datumaro

# The folder in its tests/assets, and the form that Datumaro calls it by.
SETS = {
    "coco instances": ("coco_dataset/coco_instances", "coco_instances"),
    "coco panoptic": ("coco_dataset/coco_panoptic", "coco_panoptic"),
    "voc": ("voc_dataset/voc_dataset1", "voc_detection"),
    "voc alone": ("voc_dataset/voc_dataset3", "voc_detection"),
    "yolo of darknet": ("yolo_dataset/yolo", "yolo"),
    "yolo": ("yolo_dataset/yolov8_detection", "yolov8_detection"),
    "yolo with photos listed": ("yolo_dataset/yolov8_detection_with_list_of_imgs", "yolov8_detection"),
    "yolo with names listed": ("yolo_dataset/yolov8_detection_with_list_of_names", "yolov8_detection"),
    "yolo with a list of photos": ("yolo_dataset/yolov8_detection_with_subset_txt", "yolov8_detection"),
    "yolo polygons": ("yolo_dataset/yolov8_segmentation", "yolov8_segmentation"),
    "masks": ("common_semantic_segmentation_dataset/dataset", "common_semantic_segmentation"),
}
KINDS = (".jpg", ".png", ".json", ".xml", ".txt", ".yaml", ".names", ".data")


def main(datumaro: Path) -> None:
    """Write the file."""
    sys.path.insert(0, str(datumaro))
    written = {}
    for name, (place, form) in SETS.items():
        folder = datumaro / "tests" / "assets" / place
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in KINDS and path.is_file()]
        contents = {str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode() for path in files}
        contents = {path: content for path, content in contents.items() if "ImageSets/" not in path or "Main/t" in path}
        written[name] = {"files": contents, "regions": regions_of_datumaro(folder, form)}
    Path(__file__).with_name("fixtures.json").write_text(json.dumps(written, separators=(",", ":")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Write tools.json: files of annotation tools, and what the tools' own readers make of them.

    python tests/data/annotations/write_tools.py DATUMARO

DATUMARO is a clone of cvat-ai/datumaro (MIT), whose tests/assets hold the files. It takes the packages datumaro 1.13.12,
label-studio-sdk, cityscapesscripts and pycocotools, which nothing else here needs.
"""

import base64
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version>
<meta><task><labels><label><name>leaf</name></label><label><name>stem</name></label></labels></task></meta>
<image id="0" name="plant.jpg" width="30" height="20">
  <box label="stem" xtl="3.5" ytl="2.25" xbr="13.5" ybr="8.25" rotation="30.0" z_order="2"></box>
  <polygon label="leaf" points="2.5,3.0;17.25,4.5;20.0,15.75;6.0,18.5" z_order="1"></polygon>
  <mask label="leaf" rle="1, 3, 2, 6, 4, 2, 2" left="7" top="5" width="5" height="4" z_order="0"></mask>
</image></annotations>"""


def regions_of_datumaro(folder: Path, form: str) -> dict[str, list[dict[str, Any]]]:
    """Return what Datumaro reads of each photo: kind, class, level, box and mask of each region."""
    from datumaro import Dataset
    from datumaro.components.annotation import AnnotationType as Kind
    from pycocotools import mask as coco

    found = {}
    data = Dataset.import_from(str(folder), form)
    names = [label.name for label in data.categories()[Kind.label]]
    for item in data:
        regions: list[dict[str, Any]] = []
        for one in item.annotations:
            if one.attributes.get("outside"):
                continue
            region: dict[str, Any] = {
                "type": one.type.name,
                "name": None if one.label is None else names[one.label],
                "level": one.z_order,
            }
            if one.type in (Kind.bbox, Kind.polygon):
                x, y, width, height = one.get_bbox()
                region["box"] = [x, y, x + width, y + height]
            if one.type == Kind.polygon:
                height, width = item.media.size
                region["mask"] = coco.decode(coco.frPyObjects([one.points], height, width)[0]).tolist()
            if one.type.name == "rotated_bbox":  # of later versions
                region["corners"] = np.asarray(one.as_polygon()).tolist()
            if one.type == Kind.mask:
                region["mask"] = np.asarray(one.image).astype(int).tolist()
            regions.append(region)
        found[item.id] = regions
    return found


def _files(folder: Path) -> dict[str, str]:
    """Return the files as base64; of photos nothing, because only their names are read."""
    photos = {".jpg", *([".png"] if "cvat" in str(folder) else [])}
    return {
        str(path.relative_to(folder)): ""
        if path.suffix in photos or "leftImg8bit" in path.name
        else base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "instance_0" not in path.name
    }


def _label_studio() -> dict[str, Any]:
    from label_studio_sdk.converter.brush import decode_rle, encode_rle
    from label_studio_sdk.converter.utils import convert_annotation_to_yolo_obb

    rng = np.random.default_rng(0)
    mask = np.zeros((40, 60), dtype=np.uint8)
    mask[5:30, 7:44] = 255
    mask[12:20, 20:30] = rng.choice([0, 255], size=(8, 10))
    packed = [int(value) for value in encode_rle(np.repeat(mask.reshape(-1), 4))]
    decoded = decode_rle(packed).reshape(40, 60, 4)[:, :, 3]
    assert (decoded == mask).all()
    boxes = [
        {"x": 20.5, "y": 12.0, "width": 30.0, "height": 40.0, "rotation": rotation}
        for rotation in (0, 17.5, 200, 296.7)
    ]
    size = {"original_width": 60, "original_height": 40}
    corners = [convert_annotation_to_yolo_obb({**box, **size}, normalize=False) for box in boxes]
    return {"brush": packed, "mask": (decoded > 0).astype(int).tolist(), "boxes": boxes, "corners": corners, **size}


def main(datumaro: Path) -> None:
    """Write the file."""
    from cityscapesscripts.helpers.labels import labels

    assets = datumaro / "tests" / "assets"
    with tempfile.TemporaryDirectory() as place:
        plant = Path(place) / "cvat_plant"
        plant.mkdir()
        (plant / "annotations.xml").write_text(CVAT)
        from PIL import Image

        (plant / "images").mkdir()
        Image.new("RGB", (30, 20)).save(plant / "images" / "plant.jpg")
        cities = Path(place) / "cityscapes"  # Datumaro looks for the photos there, and not below imgsFine
        published = assets / "cityscapes_dataset" / "train_dataset"
        shutil.copytree(published / "gtFine", cities / "gtFine")
        shutil.copytree(published / "imgsFine" / "leftImg8bit", cities / "leftImg8bit")
        sets = {
            "cvat images": (assets / "cvat_dataset" / "for_images", "cvat"),
            "cvat video": (assets / "cvat_dataset" / "for_video", "cvat"),
            "cvat plant": (plant, "cvat"),
            "ade20k2017": (assets / "ade20k2017_dataset" / "dataset", "ade20k2017"),
            "ade20k2020": (assets / "ade20k2020_dataset" / "dataset", "ade20k2020"),
            "cityscapes": (cities, "cityscapes"),
        }
        written = {
            name: {"files": _files(folder), "regions": regions_of_datumaro(folder, form)}
            for name, (folder, form) in sets.items()
        }
    trained = {label.id: [label.trainId, label.name, label.hasInstances] for label in labels if 0 <= label.trainId < 19}
    values = {"sets": written, "label studio": _label_studio(), "cityscapes": trained}
    (HERE / "tools.json").write_text(json.dumps(values, separators=(",", ":")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

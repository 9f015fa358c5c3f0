"""DeepPCB (github.com/tangsanli5201/DeepPCB, MIT) as `regions.py` takes it: a folder with COCO's annotations beside each split.

    python benchmarks/deeppcb.py CLONE FOLDER

The authors list 1,000 pairs to learn from and 500 to test on (PCBData/trainval.txt, test.txt). Of a pair the tested board alone
is taken; the template beside it, which shows no defect, is left out. A line of their annotations is the left, upper, right and
lower side of a defect, in pixels, and its kind from 1 on.
"""

import argparse
import json
import shutil
from pathlib import Path

KINDS = ("open", "short", "mousebite", "spur", "copper", "pin-hole")
SPLITS = {"train": "trainval.txt", "test": "test.txt"}


def convert(clone: Path, folder: Path) -> None:
    """Copy each split's photos, and write its annotations."""
    for split, listed in SPLITS.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        images, annotations = [], []
        for number, line in enumerate((clone / "PCBData" / listed).read_text().splitlines()):
            photo, text = line.split()
            source = clone / "PCBData" / photo.replace(".jpg", "_test.jpg")
            shutil.copy(source, folder / split / source.name)
            images.append({"id": number, "file_name": source.name, "width": 640, "height": 640})
            for row in (clone / "PCBData" / text).read_text().splitlines():
                left, upper, right, lower, kind = map(int, row.split())
                box = [left, upper, right - left, lower - upper]
                annotations.append(
                    {
                        "id": len(annotations),
                        "image_id": number,
                        "category_id": kind,
                        "bbox": box,
                        "area": box[2] * box[3],
                        "iscrowd": 0,
                    }
                )
        categories = [{"id": number, "name": name} for number, name in enumerate(KINDS, start=1)]
        marked = {"images": images, "annotations": annotations, "categories": categories}
        (folder / split / "_annotations.coco.json").write_text(json.dumps(marked))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    convert(options.clone, options.folder)

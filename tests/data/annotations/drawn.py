"""Photos of coloured rectangles, and the same annotations of them written as COCO, VOC, YOLO and mask images."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 60, 80
NAMES = ("cell", "platelet")
Box = tuple[str, int, int, int, int]  # the class, then left, top, right, bottom in whole pixels


def boxes_of(number: int) -> list[Box]:
    """Return what is in a photo: nothing in every fifth."""
    rng = np.random.default_rng(number)
    boxes: list[Box] = []
    for _ in range(0 if number % 5 == 4 else 3):
        left, top = int(rng.integers(0, 50)), int(rng.integers(0, 35))
        right, bottom = left + int(rng.integers(4, 28)), top + int(rng.integers(4, 24))
        boxes.append((NAMES[int(rng.integers(2))], left, top, right, bottom))
    return boxes


SCENES = {f"photo_{number}": boxes_of(number) for number in range(20)}


def draw(path: Path, boxes: Sequence[Box], *, size: tuple[int, int] = (HEIGHT, WIDTH), exif: int | None = None) -> None:
    """Write a photo of noise with its rectangles in it."""
    seed = sum(ord(letter) for letter in path.stem) + 1000 * len(path.stem)
    pixels = np.random.default_rng(seed).integers(0, 120, (*size, 3), dtype=np.uint8)
    for name, left, top, right, bottom in boxes:
        pixels[top:bottom, left:right] += np.array([120, 60 if name == "cell" else 0, 0], dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if exif is None:
        image.save(path)
    else:
        stated = Image.Exif()
        stated[0x0112] = exif
        image.save(path, exif=stated)


def photos(folder: Path, scenes: Mapping[str, Sequence[Box]] = SCENES, suffix: str = ".png") -> None:
    """Write all photos into a folder."""
    for name, boxes in scenes.items():
        draw(folder / f"{name}{suffix}", boxes)


def coco(scenes: Mapping[str, Sequence[Box]] = SCENES, *, masks: bool = False, suffix: str = ".png") -> dict[str, Any]:
    """Return COCO's form, the ids of classes and photos with gaps."""
    ids = {name: 7 * number + 3 for number, name in enumerate(NAMES)}
    annotations: list[dict[str, Any]] = []
    for photo, boxes in enumerate(scenes.values()):
        for name, left, top, right, bottom in boxes:
            item = {"id": len(annotations) + 1, "image_id": 11 * photo + 5, "category_id": ids[name], "iscrowd": 0}
            item |= {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}  # type: ignore[dict-item]
            outline = [left, top, right, top, right, bottom, left, bottom]
            annotations.append(item | {"segmentation": [outline] if masks else []})
    return {
        "images": [
            {"id": 11 * number + 5, "file_name": f"{name}{suffix}", "height": HEIGHT, "width": WIDTH}
            for number, name in enumerate(scenes)
        ],
        "categories": [{"id": number, "name": name} for name, number in ids.items()],
        "annotations": annotations,
    }


def write_coco(folder: Path, *, masks: bool = False) -> None:
    """Write photos and COCO's JSON."""
    photos(folder / "images")
    (folder / "annotations").mkdir(parents=True)
    (folder / "annotations" / "instances_default.json").write_text(json.dumps(coco(masks=masks)))


def voc_xml(name: str, boxes: Sequence[Box], more: str = "") -> str:
    """Return VOC's form of a photo: whole pixels from 1, the last one included; name, path and size are another machine's."""
    objects = "".join(
        f"<object><name>{kind}</name><difficult>0</difficult><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
        f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
        for kind, left, top, right, bottom in boxes
    )
    return (
        f"<annotation><filename>of another.jpg</filename><path>/home/pi/{name}.jpg</path>"
        f"<size><width>1</width><height>1</height></size>{objects}{more}</annotation>"
    )


def write_voc(folder: Path) -> None:
    """Write photos and VOC's XML."""
    photos(folder / "JPEGImages")
    (folder / "Annotations").mkdir(parents=True)
    for name, boxes in SCENES.items():
        (folder / "Annotations" / f"{name}.xml").write_text(voc_xml(name, boxes))


def yolo_text(boxes: Sequence[Box]) -> str:
    """Return YOLO's form of a photo."""
    return "".join(
        f"{NAMES.index(kind)} {(left + right) / 2 / WIDTH!r} {(top + bottom) / 2 / HEIGHT!r} "
        f"{(right - left) / WIDTH!r} {(bottom - top) / HEIGHT!r}\n"
        for kind, left, top, right, bottom in boxes
    )


def write_yolo(folder: Path) -> None:
    """Write photos, YOLO's text and data.yaml; of photos with nothing in them no text."""
    photos(folder / "images")
    (folder / "labels").mkdir(parents=True)
    for name, boxes in SCENES.items():
        if boxes:
            (folder / "labels" / f"{name}.txt").write_text(yolo_text(boxes))
    (folder / "data.yaml").write_text(
        "train: images\nnames:\n" + "".join(f"  {n}: {name}\n" for n, name in enumerate(NAMES))
    )


def write_table(folder: Path) -> None:
    """Write photos and Roboflow's table; of photos with nothing in them a line without a box."""
    photos(folder)
    lines = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for name, boxes in SCENES.items():
        written = [",".join(map(str, box)) for box in boxes] or [",,,,"]
        lines += [f"{name}.png,{WIDTH},{HEIGHT},{box}" for box in written]
    (folder / "_annotations.csv").write_text("\n".join(lines))


def write_shares(folder: Path) -> None:
    """Write photos and Open Images' table, whose sides are shares of the photo, and which has no lines of nothing."""
    photos(folder / "data")
    lines = ["ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf"]
    for name, boxes in SCENES.items():
        lines += [
            f"{name},xclick,{kind},1,{left / WIDTH!r},{right / WIDTH!r},{top / HEIGHT!r},{bottom / HEIGHT!r},0,0"
            for kind, left, top, right, bottom in boxes
        ]
    (folder / "boxes.csv").write_text("\n".join(lines))


def class_map(boxes: Sequence[Box]) -> np.ndarray:
    """Return the class of each pixel: 0 for none, then `NAMES`."""
    labels = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    for kind, left, top, right, bottom in boxes:
        labels[top:bottom, left:right] = 1 + NAMES.index(kind)
    return labels

"""CLEVR and KITTI: images with a list of objects, from which labels are made."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from vitral.data.names import some
from vitral.data.published.tree import Tree
from vitral.data.stored import content_at
from vitral.data.vtab.records import Example
from vitral.errors import DataError, ImageError, one_line
from vitral_vtab.dataset import RawDataset, RawSplit

CLEVR_SPLITS = {"train": "train", "validation": "val"}  # the third has no scenes
KITTI_TYPES = ("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Cyclist", "Tram", "Misc")
NO_OBJECT = "DontCare"
FIELDS = 15  # fields of a line on an object: type, truncation, occlusion, angle, box, size, location, rotation
LOCATION = slice(11, 14)
SEED = 123  # the seed of the draw of videos
HELD_OUT = 10  # percent of the videos for the test, and as many for validation


def read_clevr(folder: Path) -> RawDataset:
    """Return CLEVR; keys are file names."""
    tree = Tree(folder, "CLEVR", {r"CLEVR_v1\.0": r"images/train/CLEVR_train_\d+\.png"})
    return RawDataset(store=tree.store, splits={split: _clevr(tree, name) for split, name in CLEVR_SPLITS.items()})


def _clevr(tree: Tree, name: str) -> RawSplit:
    advice = "unpack CLEVR_v1.0.zip there"
    images = sorted((match[1], index) for index, match in tree.matching(rf"images/{name}/([^/]+\.png)"))
    if not images:
        raise tree.incomplete(f"images in 'images/{name}'", advice)
    file = tree.file(f"scenes/CLEVR_{name}_scenes.json", advice)
    scenes = _scenes(tree, file)
    if len(scenes) != len(images):
        raise DataError(
            f"'{tree.store.name(file)}' has {len(scenes):,} scenes for {len(images):,} images; {advice} again."
        )
    for (image, _), (named, _) in zip(images, scenes, strict=True):
        if named not in (None, image):
            raise DataError(f"'{tree.store.name(file)}' has '{named}' where '{image}' should be; {advice} again.")

    def features(index: int) -> Example:
        return {"objects/pixel_coords": scenes[index][1]}

    return RawSplit(keys=[image for image, _ in images], indices=[index for _, index in images], features=features)


def _scenes(tree: Tree, file: int) -> list[tuple[str | None, list[float]]]:
    """Return of each scene its image and the coordinates of its objects, three each."""
    try:
        parsed: Any = json.loads(content_at(tree.store, file))
        return [
            (
                scene.get("image_filename"),
                _single([value for item in scene["objects"] for value in item["pixel_coords"]]),
            )
            for scene in parsed["scenes"]
        ]
    except (OSError, ImageError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(
            f"'{tree.store.name(file)}' holds no scenes of CLEVR ({one_line(error)}); unpack CLEVR_v1.0.zip again."
        ) from error


def _single(values: list[Any]) -> list[float]:
    """Return numbers in the precision that TFDS stores them with, which thresholds are compared in."""
    return np.array(values, dtype=np.float32).tolist()


def read_kitti(folder: Path) -> RawDataset:
    """Return KITTI's training images, shared out by video as TFDS does; keys are file names."""
    archives = {
        "data_object_image_2": r"training/image_2/\w+\.png",
        "data_object_label_2": r"training/label_2/\w+\.txt",
        "devkit_object": r"mapping/train_rand\.txt",
    }
    tree = Tree(folder, "KITTI", archives)
    images = {int(match[2]): (index, match[1]) for index, match in tree.matching(r"training/image_2/(\w*(\d{6})\.png)")}
    labels = {int(match[1]): index for index, match in tree.matching(r"training/label_2/\w*(\d{6})\.txt")}
    shared = _videos_shared_out(tree)
    numbers = sorted(number for some_numbers in shared.values() for number in some_numbers)
    for there, kind in ((images, "image"), (labels, "label")):
        if missing := [f"{number:06}" for number in numbers if number not in there]:
            raise tree.incomplete(f"{kind} {some(missing)}", f"put data_object_{kind}_2.zip there")

    def split(chosen: list[int]) -> RawSplit:
        return RawSplit(
            keys=[images[number][1] for number in chosen],
            indices=[images[number][0] for number in chosen],
            features=lambda index: _objects(tree, labels[chosen[index]]),
        )

    return RawDataset(store=tree.store, splits={name: split(chosen) for name, chosen in shared.items()})


def _videos_shared_out(tree: Tree) -> dict[str, list[int]]:
    """Return the numbers of each split's images: those of some videos, drawn by NumPy with a fixed seed."""
    order, lines = (
        tree.lines(tree.file(f"mapping/{name}.txt", "put devkit_object.zip there"))
        for name in ("train_rand", "train_mapping")
    )
    try:
        of = [lines[int(text) - 1].split(" ")[1] for text in ",".join(order).split(",") if text.strip()]
    except (ValueError, IndexError) as error:
        raise DataError(
            f"The lists in 'mapping/' of '{tree.title}' do not match; put devkit_object.zip there again."
        ) from error
    videos = sorted(set(of))
    draw = np.random.RandomState(SEED)
    count = max(1, HELD_OUT * len(videos) // 100)
    test = set(draw.choice(videos, count, replace=False).tolist())
    validation = set(draw.choice([video for video in videos if video not in test], count, replace=False).tolist())
    split = ["test" if video in test else "validation" if video in validation else "train" for video in of]
    return {
        name: [number for number, own in enumerate(split) if own == name] for name in ("train", "validation", "test")
    }


def _objects(tree: Tree, file: int) -> Example:
    """Return types and locations, in metres, of the objects in an image."""
    rows = [line.split(" ") for line in tree.lines(file)]
    rows = [row for row in rows if row[0] != NO_OBJECT]
    try:
        types = [KITTI_TYPES.index(row[0]) for row in rows if len(row) >= FIELDS]
        locations = _single([value for row in rows for value in row[LOCATION]])
    except ValueError as error:
        raise DataError(
            f"'{tree.store.name(file)}' is no list of objects ({one_line(error)}); fetch it again."
        ) from error
    if len(locations) != 3 * len(types) or len(types) != len(rows):
        raise DataError(f"'{tree.store.name(file)}' is no list of objects; fetch it again.")
    return {"objects/type": types, "objects/location": locations}

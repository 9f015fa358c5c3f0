"""Several mask images a photo: objects, classes by folders, maps of which one is read, and parts of one mask."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.tasks.regions import VOID, Regions

SCENES = dict(list(drawn.SCENES.items())[:8])
EDGE = 3  # rows of the maps that count for nothing


def save(path: Path, values: np.ndarray, *, palette: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values.astype(np.uint8))
    if palette:
        image.putpalette([channel for colour in range(256) for channel in (colour, 255 - colour, 7 * colour % 256)])
    image.save(path)


def inside(boxes: Sequence[drawn.Box]) -> np.ndarray:
    return (drawn.class_map(boxes) > 0) * 255


def labels(data: DataSet) -> dict[str, Regions]:
    every = [(source, index) for source in data.splits.values() for index in range(len(source))]
    return {Path(source.describe(index)).stem: source.label(index) for source, index in every}  # type: ignore[misc]


def boxes_of(found: Regions, names: Sequence[str]) -> list[tuple[object, ...]]:
    return sorted(
        (names[number], *box) for number, box in zip(found.classes.tolist(), found.boxes.tolist(), strict=True)
    )


@every_case("several", [("photo_0",), tuple(SCENES)])
def test_numbered_masks_are_the_objects_of_the_photo_before_the_number(tmp_path: Path, several: Sequence[str]) -> None:
    drawn.photos(tmp_path / "images", SCENES)
    shown = {name: boxes if name in several else boxes[:1] for name, boxes in SCENES.items() if boxes}
    for name, boxes in shown.items():
        for number, box in enumerate(boxes):
            save(tmp_path / "masks" / f"{name}_{number}.png", inside([box]))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, data.class_names) == ("instances", ("object",))
    found = labels(data)
    assert found.keys() == shown.keys()
    for name, boxes in shown.items():
        assert boxes_of(found[name], data.class_names) == sorted(("object", *box) for _, *box in boxes)
    assert not any("without annotation" in note and "masks/" in note for note in data.notes)


def test_folders_of_masks_name_the_classes(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "images", SCENES)
    for name, boxes in SCENES.items():
        for kind in drawn.NAMES:
            save(tmp_path / "masks" / kind / f"{name}.png", inside([box for box in boxes if box[0] == kind]))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, data.class_names) == ("instances", drawn.NAMES)
    for name, found in labels(data).items():
        for kind, mask in zip(found.classes.tolist(), found.bitmaps(), strict=True):
            own = [box for box in SCENES[name] if box[0] == drawn.NAMES[kind]]
            assert np.array_equal(mask, inside(own) > 0)
    by_pixel = open_data(f"semantic:{tmp_path}", near=False)
    assert by_pixel.class_names == ("background", *drawn.NAMES)


@every_case(
    ("classes", "objects", "images"),
    [("SegmentationClass", "SegmentationObject", "JPEGImages"), ("labels", "instances", "images")],
)
def test_of_maps_of_classes_and_of_objects_the_classes_are_read(
    tmp_path: Path, classes: str, objects: str, images: str
) -> None:
    drawn.photos(tmp_path / images, SCENES)
    expected = {}
    for name, boxes in SCENES.items():
        numbers = np.zeros((drawn.HEIGHT, drawn.WIDTH), dtype=np.uint8)
        for number, (_, left, top, right, bottom) in enumerate(boxes, 1):
            numbers[top:bottom, left:right] = number
        expected[name] = drawn.class_map(boxes)
        for folder, values in ((classes, expected[name]), (objects, numbers)):
            values[:EDGE] = VOID
            save(tmp_path / folder / f"{name}.png", values, palette=True)
    for spec in (str(tmp_path), f"semantic:{tmp_path}"):
        data = open_data(spec, near=False)
        assert (data.task.name, data.class_names) == ("semantic", ("0", "1", "2"))
        found = labels(data)
        for name in SCENES:
            assert np.array_equal(found[name].class_map(), expected[name])
        assert not any("without annotation" in note for note in data.notes)


def test_several_masks_of_few_photos_are_one_together(tmp_path: Path) -> None:
    shown = {name: boxes for name, boxes in SCENES.items() if boxes}
    for number, (name, boxes) in enumerate(shown.items()):
        kind = ("sick", "well")[number % 2]
        drawn.draw(tmp_path / kind / f"{name}.png", boxes)
        save(tmp_path / kind / f"{name}_mask.png", inside(boxes[1:] if number == 0 and len(boxes) > 1 else boxes))
        if number == 0:
            save(tmp_path / kind / f"{name}_mask_1.png", inside(boxes[:1]))
    data = open_data(f"semantic:{tmp_path}", near=False)
    assert data.class_names == ("background", "object")
    for name, found in labels(data).items():
        assert np.array_equal(found.class_map(), inside(SCENES[name]) > 0)
    assert not any("without annotation" in note for note in data.notes)


def test_photos_are_divided_as_lists_for_segmentation_say(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "JPEGImages", SCENES)
    for name, boxes in SCENES.items():
        save(tmp_path / "SegmentationClass" / f"{name}.png", drawn.class_map(boxes), palette=True)
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    parts = {"train": list(SCENES)[:4], "val": list(SCENES)[4:]}
    for split, names in parts.items():
        (lists / f"{split}.txt").write_text("\n".join(names))
    data = open_data(tmp_path, near=False)
    found = {
        split: sorted(Path(source.describe(index)).stem for index in range(len(source)))
        for split, source in data.splits.items()
    }
    assert found == {"train": parts["train"], "validation": parts["val"]}

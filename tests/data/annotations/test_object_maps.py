"""Maps of objects beside maps of classes, as VOC and CVAT write them, give instances of the classes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.tasks.regions import Regions

SCENES = {f"photo_{number}": drawn.boxes_of(number) for number in range(10)}
VOID, EDGE = 255, 3  # the value of the borders, and the rows of the maps that are some
CODES = {"cell": 8, "platelet": 12}
SHADES = {
    0: (0, 0, 0),
    8: (64, 0, 0),
    12: (64, 0, 128),
    255: (224, 224, 192),
    1: (128, 0, 0),
    2: (0, 128, 0),
    3: (128, 128, 0),
}
Map = np.ndarray


def maps(boxes: Sequence[drawn.Box]) -> tuple[Map, Map]:
    """Return the classes and the objects; of overlapping ones the last is in front."""
    kinds, objects = np.zeros((2, drawn.HEIGHT, drawn.WIDTH), dtype=np.uint8)
    for number, (name, left, top, right, bottom) in enumerate(boxes, 1):
        kinds[top:bottom, left:right] = CODES[name]
        objects[top:bottom, left:right] = number
    kinds[:EDGE] = objects[:EDGE] = VOID
    return kinds, objects


def palette(values: Map) -> Image.Image:
    image = Image.fromarray(values)
    image.putpalette([channel for value in range(256) for channel in SHADES.get(value, (value, value, value))])
    return image


def colours(values: Map) -> Image.Image:
    return palette(values).convert("RGB")


def write(folder: Path, draw: Callable[[Map], Image.Image] = palette, *, boxes: bool = False) -> None:
    drawn.photos(folder / "JPEGImages", SCENES)
    for name, scene in SCENES.items():
        for place, values in zip(("SegmentationClass", "SegmentationObject"), maps(scene), strict=True):
            (folder / place).mkdir(exist_ok=True)
            draw(values).save(folder / place / f"{name}.png")
        items = "".join(
            f"<object><name>{kind}</name><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax>"
            f"<ymax>{bottom}</ymax></bndbox></object>"
            for kind, left, top, right, bottom in scene
        )
        if boxes:
            (folder / "Annotations").mkdir(exist_ok=True)
            (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{items}</annotation>")


def assert_objects(data: DataSet, called: dict[int, str]) -> None:
    assert (data.task.name, sorted(data.class_names)) == ("instances", sorted(called.values()))
    count = 0
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            assert isinstance(label, Regions)
            kinds, objects = maps(SCENES[Path(source.describe(index)).stem])
            there = [number for number in np.unique(objects).tolist() if number not in (0, VOID)]
            own = {
                (data.class_names[kind], mask.tobytes())
                for kind, mask in zip(label.classes, label.bitmaps(), strict=True)
            }
            assert own == {(called[kinds[objects == number][0]], (objects == number).tobytes()) for number in there}
            assert np.array_equal(label.ignored_bitmap(), objects == VOID)
            count += 1
    assert count == len(SCENES)


@every_case(
    ("draw", "boxes", "listed", "called"),
    [
        (palette, True, "", {8: "cell", 12: "platelet"}),
        (palette, False, "", {8: "8", 12: "12"}),
        (colours, False, "background:0,0,0::\ncell:64,0,0::\nplatelet:64,0,128::\n", {8: "cell", 12: "platelet"}),
        (colours, False, "", {8: "#400000", 12: "#400080"}),
    ],
)
def test_each_value_is_an_object_of_the_class_below_it(
    tmp_path: Path, draw: Callable[[Map], Image.Image], boxes: bool, listed: str, called: dict[int, str]
) -> None:
    write(tmp_path, draw, boxes=boxes)
    if listed:
        (tmp_path / "labelmap.txt").write_text(listed)
    data = open_data(f"instances:{tmp_path}", near=False, verify=False)
    assert_objects(data, called)
    assert any("called as those of the boxes" in note for note in data.notes) == boxes
    assert open_data(tmp_path, near=False, verify=False).task.name == ("boxes" if boxes else "semantic")


def test_maps_of_other_sizes_damaged_ones_and_lists_of_splits(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "SegmentationObject" / "photo_0.png"
    Image.open(path).resize((40, 30), Image.Resampling.NEAREST).save(path)
    cut = tmp_path / "SegmentationObject" / "photo_7.png"
    cut.write_bytes(cut.read_bytes()[:90])
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(list(SCENES)[:6]))
    (lists / "val.txt").write_text("\n".join(list(SCENES)[6:]))
    data = open_data(f"instances:{tmp_path}", near=False, verify=False)
    assert data.counts() == {"train": "5", "validation": "3"}
    reasons = {Path(image.path).stem: image.reason for image in data.bad_images}
    assert reasons.keys() == {"photo_0", "photo_7"}
    assert "of another size than the map of classes" in reasons["photo_0"]
    assert "cannot be read as a mask" in reasons["photo_7"]

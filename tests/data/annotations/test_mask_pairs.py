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
    [
        ("SegmentationClass", "SegmentationObject", "JPEGImages"),
        ("SegmentationClassPNG", "SegmentationObjectPNG", "JPEGImages"),
        ("labels", "instances", "images"),
    ],
)
def test_of_maps_of_classes_and_of_objects_the_classes_are_read(
    tmp_path: Path, classes: str, objects: str, images: str
) -> None:
    drawn.photos(tmp_path / images, SCENES)
    if images == "JPEGImages":
        for shown in ("SegmentationClassVisualization", "SegmentationObjectVisualization"):
            drawn.photos(tmp_path / shown, SCENES)
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


def test_maps_of_many_objects_in_colours_are_masks(tmp_path: Path) -> None:
    rows, columns = np.mgrid[: drawn.HEIGHT, : drawn.WIDTH]
    numbers = 1 + 8 * (rows // 8) + columns // 10
    colours = [channel for number in range(256) for channel in (number * 37 % 256, number * 91 % 256, number * 7 % 256)]
    for name, boxes in SCENES.items():
        drawn.draw(tmp_path / "JPEGImages" / f"{name}.png", boxes)
        Image.open(tmp_path / "JPEGImages" / f"{name}.png").convert("L").save(tmp_path / "JPEGImages" / f"{name}.png")
        for folder, values in (("SegmentationClass", 1 + numbers % 2), ("SegmentationObject", numbers)):
            (tmp_path / folder).mkdir(exist_ok=True)
            image = Image.fromarray(values.astype(np.uint8))
            image.putpalette(colours)
            image.save(tmp_path / folder / f"{name}.png")
    found = labels(open_data(f"instances:{tmp_path}", near=False))
    assert found.keys() == SCENES.keys()
    assert {len(each.classes) for each in found.values()} == {64}


NAMED = {
    "a number and words": ("images/s{side}_img_{n}.png", "masks/s{side}_mask_{n}.png"),
    "words": ("images/img_{kind}_{n}.png", "masks/mask_{kind}_{n}.png"),
    "ends": ("images/{kind}_{n}.png", "masks/{kind}_{n}_color_mask.png"),
    "ends of names that end in like numbers": ("images/{i}f{side}.png", "masks/{i}f{side}_RGB_color_image.png"),
    "a number alone": ("images/img_{i}.png", "masks/mask_{i}.png"),
    "the last number of several": ("images/seq05_{i}.png", "masks/mask{i}.png"),
    "annot": ("images/{i}.png", "annot/{i}.png"),
    "SegNet": ("{split}/{i}.png", "{split}annot/{i}.png"),
    "SegNet, numbered anew": ("{split}/{n}.png", "{split}annot/{n}.png"),
    "nnU-Net": ("imagesTr/case_{i:03}_0000.png", "labelsTr/case_{i:03}.png"),
    "nnU-Net's test": ("images{Ts}/case_{n:03}_0000.png", "labels{Ts}/case_{n:03}.png"),
    "DRIVE": ("training/images/2{i}_training.png", "training/1st_manual/2{i}_manual1.png"),
    "anno": ("images/{i}.png", "anno/{i}.png"),
    "target": ("image/{i}.png", "target/{i}.png"),
    "truth": ("images/{i}.png", "truth/{i}.png"),
    "binary": ("images/{i}.png", "binary/{i}.png"),
    "msk": ("img/{i}.png", "msk/{i}.png"),
    "splits of both": ("{split}_images/{i}.png", "{split}_masks/{i}.png"),
    "DeepCrack": ("{split}_img/{i}.png", "{split}_lab/{i}.png"),
    "FloodNet": ("{split}/{split}-org-img/{i}.png", "{split}/{split}-label-img/{i}_lab.png"),
    "Supervisely": ("ds{side}/img/{i}.png", "ds{side}/masks_machine/{i}.png"),
    "TNBC": ("Slide_0{side}/0{side}_{n}.png", "GT_0{side}/0{side}_{n}.png"),
    "CHASE": ("Image_{i}L.png", "Image_{i}L_1stHO.png"),
    "KITTI": ("training/image_2/{i}.png", "training/semantic/{i}.png"),
    "names of no masks": ("{split}/input/{i}.png", "{split}/output/{i}.png"),
    "names of no masks in another format": ("photos/{i}.jpg", "drawn/{i}.png"),
    "cut out, side by side": ("{split}crop/{i}.jpg", "{split}crop/{i}.png"),
    "a folder a photo": ("{i}/images/{i}.png", "{i}/masks/m{i}.png"),
    "HRF": ("images/0{n}_{kind}.png", "manual1/0{n}_{kind}.png"),
}


@every_case("case", list(NAMED))
def test_masks_are_of_the_photo_that_their_names_mean(tmp_path: Path, case: str) -> None:
    expected = {}
    for place, boxes in enumerate(SCENES.values()):
        side, n = place % 2, place // 2
        words = {"i": place, "side": side, "n": n, "kind": ("cat", "dog")[side], "split": ("train", "val")[side]}
        photo, mask = (name.format(**words, Ts=("Tr", "Ts")[side]) for name in NAMED[case])
        drawn.draw(tmp_path / photo, boxes)
        save(tmp_path / mask, drawn.class_map(boxes))
        expected[tmp_path / photo] = drawn.class_map(boxes)
    data = open_data(str(tmp_path), near=False)
    assert data.task.name == "semantic"
    every = [(source, index) for source in data.splits.values() for index in range(len(source))]
    found = {Path(source.describe(index)): source.label(index) for source, index in every}
    assert found.keys() == expected.keys()
    for path, values in expected.items():
        assert np.array_equal(found[path].class_map(), values)  # type: ignore[union-attr]


ODD: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "another photo of the number": ("img_{i}", "mask_{i}", ("more_0",), ()),
    "another mask of the number": ("img_{i}", "mask_{i}", (), ("mask_x_0",)),
    "masks of other photos": ("cat_{i}", "cat_{i}_color_mask", (), ("dog_0_color_mask",)),
    "masks of other patients": ("s1_img_{i}", "s1_mask_{i}", (), ("s2_mask_0",)),
    "objects of another photo": ("img{i}", "img{i}_mask", (), ("img90_0",)),
}


@every_case("case", list(ODD))
def test_masks_that_may_be_of_several_photos_are_of_none(tmp_path: Path, case: str) -> None:
    photo, mask, photos, masks = ODD[case]
    for place, boxes in enumerate(SCENES.values()):
        drawn.draw(tmp_path / "images" / f"{photo.format(i=place)}.png", boxes)
        if place or not masks or "another mask" in case:
            save(tmp_path / "masks" / f"{mask.format(i=place)}.png", drawn.class_map(boxes))
    for name in photos:
        drawn.draw(tmp_path / "images" / f"{name}.png", [])
    for name in masks:
        save(tmp_path / "masks" / f"{name}.png", drawn.class_map(SCENES["photo_0"]))
    data = open_data(f"semantic:{tmp_path}", near=False)
    assert labels(data).keys() == {photo.format(i=place) for place in range(1, len(SCENES))}
    (note,) = [note for note in data.notes if "not told apart by names, left out" in note]
    assert "_0" in note


def test_folders_of_nnunet_are_splits_where_those_of_its_test_have_masks(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "imagesTr", {f"{name}_0000": boxes for name, boxes in SCENES.items()})
    drawn.draw(tmp_path / "imagesTs" / "other_0000.png", SCENES["photo_0"])
    for name, boxes in SCENES.items():
        save(tmp_path / "labelsTr" / f"{name}.png", drawn.class_map(boxes))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, {*data.splits}) == ("semantic", {"train", "validation", "test"})
    assert labels(data).keys() == {f"{name}_0000" for name in SCENES}
    save(tmp_path / "labelsTs" / "other.png", drawn.class_map(SCENES["photo_0"]))
    source = open_data(tmp_path, near=False).splits["test"]
    assert [Path(source.describe(index)).stem for index in range(len(source))] == ["other_0000"]


def test_of_what_is_drawn_by_hand_the_first_is_read_and_no_field_of_view(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "training" / "images", SCENES)
    for name, boxes in SCENES.items():
        save(tmp_path / "training" / "1st_manual" / f"{name}_manual1.png", inside(boxes))
        save(tmp_path / "training" / "2nd_manual" / f"{name}_manual2.png", inside(boxes[:1]))
        save(tmp_path / "training" / "mask" / f"{name}_mask.png", inside([("cell", 5, 5, 70, 50)]))
    drawn.draw(tmp_path / "test" / "images" / "other.png", [])
    save(tmp_path / "test" / "mask" / "other_mask.png", inside([("cell", 5, 5, 70, 50)]))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, data.class_names) == ("semantic", ("background", "object"))
    found = labels(data)
    assert found.keys() == SCENES.keys()
    for name, boxes in SCENES.items():
        assert np.array_equal(found[name].class_map(), inside(boxes) > 0)


def test_of_two_observers_the_first_is_read(tmp_path: Path) -> None:
    drawn.photos(tmp_path, SCENES)
    for name, boxes in SCENES.items():
        save(tmp_path / f"{name}_1stHO.png", inside(boxes))
        save(tmp_path / f"{name}_2ndHO.png", inside(boxes[:1]))
    data = open_data(tmp_path, near=False)
    assert (data.task.name, data.class_names) == ("semantic", ("background", "object"))
    for name, found in labels(data).items():
        assert np.array_equal(found.class_map(), inside(SCENES[name]) > 0)


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

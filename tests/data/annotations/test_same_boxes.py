"""The same boxes as COCO, VOC and YOLO are the same regions, and each format's traps are handled and said."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet, images_of_content
from vitral.errors import VitralError
from vitral.images.run_lengths import counts_text, encode_mask
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.regions import Regions

WRITERS: dict[str, Callable[[Path], None]] = {
    "COCO JSON": drawn.write_coco,
    "Pascal VOC XML": drawn.write_voc,
    "YOLO text": drawn.write_yolo,
    "a table of boxes": drawn.write_table,
}


def labels(data: DataSet) -> dict[str, Regions]:
    found = {}
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            assert isinstance(label, Regions)
            found[Path(source.describe(index)).stem] = label
    return found


def said(data: DataSet, words: str) -> bool:
    return any(words in note for note in data.notes)


@every_case("form", list(WRITERS))
def test_boxes_are_those_that_were_drawn(tmp_path: Path, form: str) -> None:
    WRITERS[form](tmp_path)
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("boxes", drawn.NAMES)
    assert said(data, f"Annotations: {form}, 48 regions of 2 classes in 20 photos, 4 of them with nothing marked")
    assert data.fingerprint
    found = labels(data)
    assert found.keys() == drawn.SCENES.keys()
    for name, boxes in drawn.SCENES.items():
        assert found[name].size == (drawn.HEIGHT, drawn.WIDTH)
        assert found[name].masks is None
        assert [drawn.NAMES[number] for number in found[name].classes] == [kind for kind, *_ in boxes]
        np.testing.assert_allclose(found[name].boxes, np.reshape([box for _, *box in boxes], (-1, 4)), atol=1e-9)
    again = pickle.loads(pickle.dumps(data.splits["train"]))
    assert np.array_equal(again.label(3).boxes, data.splits["train"].label(3).boxes)  # type: ignore[union-attr]


def test_sides_that_are_shares_of_the_photo(tmp_path: Path) -> None:
    drawn.write_shares(tmp_path)
    table = tmp_path / "boxes.csv"
    table.write_text(table.read_text().removesuffix("0") + "1")  # the last box is around several
    data = open_data(tmp_path)
    assert said(data, "Annotations: a table of boxes, 48 regions of 2 classes in 16 photos; the task is 'boxes'")
    assert said(data, "4 images without annotation are left out")
    found, crowds = labels(data), 0
    for name, regions in found.items():
        boxes = drawn.SCENES[name]
        crowds += int(regions.crowd.sum())
        np.testing.assert_allclose(regions.boxes, np.reshape([box for _, *box in boxes], (-1, 4)), atol=1e-6)
    assert crowds == 1


def test_tables_of_splits_count_before_that_of_all_photos(tmp_path: Path) -> None:
    drawn.write_table(tmp_path)
    every = (tmp_path / "_annotations.csv").read_text().splitlines()
    for split, photos in (("train", "photo_0.png photo_1.png photo_2.png"), ("test", "photo_3.png")):
        rows = [line for line in every if line.partition(",")[0] in photos.split()]
        (tmp_path / f"{split}_labels.csv").write_text("\n".join([every[0], *rows]))
    data = open_data(tmp_path)
    assert {name: len(split) for name, split in data.splits.items()}["test"] == 1
    assert said(data, "annotations of photos that other annotations are of, too")


@every_case("wrong", ["x", "", "nan", "inf"])
def test_a_line_without_four_numbers_costs_its_photo(tmp_path: Path, wrong: str) -> None:
    drawn.write_table(tmp_path)
    table = tmp_path / "_annotations.csv"
    header, first, *others = table.read_text().splitlines()
    broken = ",".join([*first.split(",")[:-1], wrong])
    table.write_text("\n".join([header, broken, *others, "gone.png,80,60,cell,1,2,3,4", "photo_1.png"]))
    data = open_data(tmp_path)
    assert labels(data).keys() == drawn.SCENES.keys() - {"photo_0"}
    assert said(data, "photo_0.png")
    assert said(data, "photos with annotations that are not in the folder")


def test_a_table_with_an_endless_cell_is_refused_and_one_of_something_else_is_not_read(tmp_path: Path) -> None:
    drawn.write_table(tmp_path)
    (tmp_path / "notes.csv").write_text('about "x,y\n' + "1" * 200_000)
    assert open_data(tmp_path).task.name == "boxes"
    with (tmp_path / "_annotations.csv").open("a") as table:
        table.write("\nphoto_4.png,80,60," + "c" * 200_000 + ",1,2,3,4\n")
    with pytest.raises(VitralError, match=r"_annotations\.csv' cannot be read as a table"):
        open_data(tmp_path)


def test_photos_in_folders_of_classes_stay_photos_of_a_class(tmp_path: Path) -> None:
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for name, boxes in drawn.SCENES.items():
        kind = drawn.NAMES[int(name.partition("_")[2]) % 2]
        drawn.draw(tmp_path / kind / f"{name}.png", boxes)
        lines.append(f"{name}.png,{kind},1,2,30,40")
    (tmp_path / "boxes.csv").write_text("\n".join(lines))
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("single-label", drawn.NAMES)
    assert said(data, "is not read: folders name the classes")
    assert open_data(f"boxes:{tmp_path}").task.name == "boxes"


def test_changed_annotations_are_changed_data(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path)
    before = open_data(tmp_path)
    path = tmp_path / "Annotations" / "photo_0.xml"
    path.write_text(path.read_text().replace("<xmin>", "<xmin>1", 1))
    after = open_data(tmp_path)
    assert before.fingerprint != after.fingerprint
    assert before.inventory != after.inventory
    assert images(before) == images(after)


def images(data: DataSet) -> set[str]:
    return {digest for written in data.contents.values() for digest in images_of_content(written)}


def change(folder: Path, **more: list[dict[str, Any]]) -> dict[str, Any]:
    path = folder / "annotations" / "instances_default.json"
    values: dict[str, Any] = json.loads(path.read_text())
    for name, items in more.items():
        values[name] = [*items, *values[name]]
    path.write_text(json.dumps(values))
    return values


def test_what_misleads_in_coco_is_handled_and_counted(tmp_path: Path) -> None:
    drawn.write_coco(tmp_path, masks=True)
    mask = np.zeros((drawn.HEIGHT, drawn.WIDTH), dtype=bool)
    mask[5:25, 10:30] = True
    mask[10:20, 15:25] = False  # a hole
    runs = {"size": [drawn.HEIGHT, drawn.WIDTH], "counts": counts_text(encode_mask(mask))}
    plain = {"size": [drawn.HEIGHT, drawn.WIDTH], "counts": encode_mask(mask).tolist()}
    of = {"image_id": 5, "category_id": 3, "bbox": [10, 5, 20, 20], "area": 300, "iscrowd": 0}
    parts = [[0, 0, 9, 0, 9, 9, 0, 9], [40, 40, 60, 40, 60, 50, 40, 50], [1, 1, 2, 2]]
    change(
        tmp_path,
        images=[{"id": 999, "file_name": "gone.png"}, {"id": 998, "file_name": "/data/gone too.png"}],
        categories=[
            {"id": 0, "name": "cells", "supercategory": "none"},
            {"id": 50, "name": "dust", "supercategory": "cells"},
        ],
        annotations=[
            {**of, "segmentation": runs},
            {**of, "segmentation": plain, "iscrowd": 1},
            {**of, "segmentation": parts},
            {**of, "segmentation": [], "bbox": [3, 3, 0, 9]},
            {**of, "image_id": 12345},
            {**of, "category_id": 77},
            {**of, "image_id": 999},
        ],
    )
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("instances", (*drawn.NAMES, "dust"))
    first = labels(data)["photo_0"]
    assert len(first) == 3 + len(drawn.SCENES["photo_0"])
    assert first.crowd.tolist()[:4] == [False, True, False, False]
    bitmaps = first.bitmaps()
    assert np.array_equal(bitmaps[0], mask)
    assert np.array_equal(bitmaps[1], mask)
    assert bitmaps[2][0:9, 0:9].all()
    assert bitmaps[2][41:49, 41:59].all()
    assert first.areas[0] == 300
    for words in (
        "parents of the others and mark nothing ('cells'), left out: 1 in 1 file",
        "photos with annotations that are not in the folder, or one of several of the name: 2",
        "polygons of fewer than three points, left out: 1",
        "boxes without width or height, left out: 1",
        "regions of images that are not listed, left out: 1",
        "regions of classes that are not listed, left out: 1",
        "No training images of 1 of the 3 declared classes: dust.",
    ):
        assert said(data, words), words


def test_what_misleads_in_voc_is_handled_and_counted(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path)
    folder = tmp_path / "Annotations"
    hard = "<object><name>cell</name><difficult>1</difficult><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
    flat = "<object><name>cell</name><bndbox><xmin>5</xmin><ymin>7</ymin><xmax>5</xmax><ymax>9</ymax></bndbox></object>"
    (folder / "photo_0.xml").write_text(
        drawn.voc_xml("photo_0", drawn.SCENES["photo_0"], f"{hard}</bndbox></object>{flat}")
    )
    (folder / "photo_1.xml").write_text("<annotation><object>")
    (folder / "elsewhere.xml").write_text(drawn.voc_xml("elsewhere", drawn.SCENES["photo_0"]))
    (folder / "photo_3.xml").unlink()
    data = open_data(tmp_path)
    first = labels(data)["photo_0"]
    assert first.crowd.tolist() == [False, False, False, True]
    assert "photo_1.xml' cannot be read as XML" in data.bad_images[0].reason
    for words in (
        "boxes without width or height, left out: 1 in 1 file, such as 'Annotations/photo_0.xml'",
        "objects marked as difficult, neither learned nor scored: 1",
        "photos with annotations that are not in the folder, or one of several of the name: 1",
        "1 image without annotation is left out: JPEGImages/photo_3.png.",
        "files that say another name of the photo than their own, which counts: 18",
    ):
        assert said(data, words), words


def test_voc_s_boxes_that_count_from_0_stay_where_they_are(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path)
    more = "<object><name>cell</name><bndbox><xmin>0</xmin><ymin>4</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
    (tmp_path / "Annotations" / "photo_0.xml").write_text(drawn.voc_xml("photo_0", [], more))
    data = open_data(tmp_path)
    assert labels(data)["photo_0"].boxes.tolist() == [[0, 4, 9, 9]]
    assert said(data, "boxes that count from 0")


def test_entities_are_never_read_from_xml(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = tmp_path / "Annotations" / "photo_0.xml"
    path.write_text(f"<!DOCTYPE a [<!ENTITY x SYSTEM 'file://{secret}'>]>" + path.read_text())
    assert "it defines entities" in open_data(tmp_path).bad_images[0].reason


def test_what_misleads_in_yolo_is_handled_and_counted(tmp_path: Path) -> None:
    drawn.write_yolo(tmp_path)
    text = drawn.yolo_text(drawn.SCENES["photo_0"])
    (tmp_path / "labels" / "photo_0.txt").write_text(
        f"{text}{text.splitlines()[0]}\n\n1 0.5 0.5 0 0.1\n1 0.5 0.5 1.005 1.0\n"
    )
    (tmp_path / "labels" / "photo_1.txt").write_text("0 12 30 4 5\n")
    (tmp_path / "labels" / "photo_2.txt").write_text("2 0.5 0.5 0.1 0.1\n")
    data = open_data(tmp_path)
    assert labels(data)["photo_0"].boxes[-1].tolist() == [0, 0, 80, 60]
    assert len(labels(data)["photo_0"]) == 1 + len(drawn.SCENES["photo_0"])
    assert sorted(bad.reason.rpartition(": ")[2] for bad in data.bad_images) == [
        "line 1 has class 2, of 2",
        "line 1 has shares of the photo that are not from 0 to 1",
    ]
    assert said(data, "regions that a file has twice, read once: 1 in 1 file, such as 'labels/photo_0.txt'")
    assert said(data, "boxes without width or height, left out: 1")


@every_case(
    ("description", "images", "labels"),
    [
        ("names: [cell, platelet]\ntrain: ../train/images\n", "{split}/images", "{split}/labels"),
        ("names: {0: cell, 1: platelet}\npath: .\n", "images/{split}", "labels/{split}"),
        ("nc: 2\nnames:\n- cell\n- platelet\n", "{split}", "{split}"),
        ("", "images/{split}", "labels/{split}"),
    ],
)
def test_yolo_s_polygons_are_masks_in_whatever_folders(
    tmp_path: Path, description: str, images: str, labels: str
) -> None:
    for number, name in enumerate(drawn.SCENES):
        split = ("train", "valid")[number % 4 == 0]
        drawn.draw(tmp_path / images.format(split=split) / f"{name}.png", drawn.SCENES[name])
        path = tmp_path / labels.format(split=split) / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1 0.1 0.1 0.5 0.1 0.5 0.6 0.1 0.6\n")
    if description:
        (tmp_path / "data.yaml").write_text(description)
    else:
        (tmp_path / "classes.txt").write_text("cell\nplatelet\n")
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("instances", drawn.NAMES)
    assert data.counts() == {"train": "15", "validation": "5"}
    label = data.splits["train"].label(0)
    assert isinstance(label, Regions)
    assert label.bitmaps()[0][8:35, 10:39].all()
    assert label.areas[0] == pytest.approx(32 * 30, rel=0.1)


@every_case("spec", ["semantic", "instances"])
def test_boxes_are_not_enough_for_masks(tmp_path: Path, spec: str) -> None:
    drawn.write_voc(tmp_path)
    with pytest.raises(VitralError, match=f"not enough for the task '{spec}'"):
        open_data(f"{spec}:{tmp_path}")


def test_classes_of_a_classifier_are_matched_by_name(tmp_path: Path) -> None:
    drawn.write_coco(tmp_path)
    data = open_data(tmp_path, class_names=("none", "platelet", "cell"), trained_on="")
    for name, boxes in drawn.SCENES.items():
        found = set(labels(data)[name].classes.tolist())
        assert found == {{"platelet": 1, "cell": 2}[kind] for kind, *_ in boxes}
    with pytest.raises(VitralError, match="does not know the class 'cell'"):
        open_data(tmp_path, class_names=("platelet", "dust"), trained_on="")


@every_case("turn", [3, 5, 6, 7, 8])
def test_regions_turn_with_a_photo_that_exif_turns(tmp_path: Path, turn: int) -> None:
    """An annotation that has the photo's size unturned is of the pixels as they are stored."""
    from vitral.images.decode import UPRIGHT

    scenes = {name: boxes for name, boxes in drawn.SCENES.items() if boxes}
    for name, boxes in scenes.items():
        drawn.draw(tmp_path / "images" / f"{name}.jpg", boxes, exif=turn)
    (tmp_path / "a.json").write_text(json.dumps(drawn.coco(scenes, masks=True, suffix=".jpg")))
    for spec in (f"{tmp_path}", f"boxes:{tmp_path}"):
        data = open_data(spec)
        source = data.splits["train"]
        for index in range(3):
            label, pixels = source.label(index), source.image(index)
            assert isinstance(label, Regions)
            assert label.size == pixels.shape[:2]
            boxes = scenes[Path(source.describe(index)).stem]
            for number, (_, left, top, right, bottom) in enumerate(boxes):
                mask = np.zeros((drawn.HEIGHT, drawn.WIDTH), dtype=bool)
                mask[top:bottom, left:right] = True
                wanted = mask if turn == 3 else UPRIGHT[turn](mask)  # of equal sizes the regions are upright already
                rows, columns = np.nonzero(wanted)
                box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                np.testing.assert_allclose(label.boxes[number], box, atol=1.01)
                if label.masks is not None:
                    found = label.bitmaps()[number]
                    assert (found & wanted).sum() / (found | wanted).sum() > 0.7


def test_photos_in_folders_of_their_classes_stay_photos_of_one_class(tmp_path: Path) -> None:
    scenes = {name: boxes for name, boxes in drawn.SCENES.items() if boxes}
    values = drawn.coco(scenes)
    for image, (name, boxes) in zip(values["images"], scenes.items(), strict=True):
        image["file_name"] = f"{boxes[0][0]}/{name}.png"
        drawn.draw(tmp_path / image["file_name"], boxes)
    (tmp_path / "_annotations.coco.json").write_text(json.dumps(values))
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("single-label", drawn.NAMES)
    assert said(data, "folders name the classes. To learn from it, put 'boxes:' before the data's name.")
    assert open_data(f"boxes:{tmp_path}").task.name == "boxes"


def test_whole_photos_are_had_by_a_prefix(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path / "voc")
    assert open_data(f"classes:{tmp_path / 'voc'}").multi_label


def test_splits_are_those_of_folders_files_and_lists(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path / "voc")
    names = list(drawn.SCENES)
    lists = tmp_path / "voc" / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    for split, some in (("train", names[:10]), ("val", names[10:15]), ("test", names[15:])):
        (lists / f"{split}.txt").write_text("\n".join(some))
        part = {name: drawn.SCENES[name] for name in some}
        drawn.photos(tmp_path / "coco" / f"{split}2017", part)
        (tmp_path / "coco" / "annotations").mkdir(exist_ok=True)
        (tmp_path / "coco" / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(drawn.coco(part)))
    (tmp_path / "coco" / "annotations" / "all.json").write_text(json.dumps(drawn.coco()))  # the same photos once more
    for form in ("voc", "coco"):
        data = open_data(tmp_path / form)
        assert data.counts() == {"train": "10", "validation": "5", "test": "5"}
        assert {name: len(label) for name, label in labels(data).items()} == {
            name: len(boxes) for name, boxes in drawn.SCENES.items()
        }
    assert said(data, "annotations of photos that other annotations are of, too, left out: 20 in 1 file")


def test_panoptic_maps_have_things_matter_crowds_and_what_is_ignored(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "images")
    annotations = []
    (tmp_path / "panoptic").mkdir()
    for number, (name, boxes) in enumerate(drawn.SCENES.items()):
        codes = np.full((drawn.HEIGHT, drawn.WIDTH), 70_000)
        codes[0] = 0
        for place, (_, left, top, right, bottom) in enumerate(boxes, 1):
            codes[top:bottom, left:right] = 300 * place
        coded = np.dstack([codes % 256, codes // 256 % 256, codes // 65_536]).astype(np.uint8)
        Image.fromarray(coded).save(tmp_path / "panoptic" / f"{name}.png")
        segments = [
            {"id": 300 * place, "category_id": 7 + drawn.NAMES.index(kind), "iscrowd": int(place == 2)}
            for place, (kind, *_) in enumerate(boxes, 1)
            if (codes == 300 * place).any()
        ]
        segments.append({"id": 70_000, "category_id": 3, "iscrowd": 0})
        annotations.append({"image_id": number, "file_name": f"{name}.png", "segments_info": segments})
    values = {
        "images": [{"id": number, "file_name": f"{name}.png"} for number, name in enumerate(drawn.SCENES)],
        "categories": [{"id": 7 + place, "name": name, "isthing": 1} for place, name in enumerate(drawn.NAMES)]
        + [{"id": 3, "name": "sky", "isthing": 0}],
        "annotations": annotations,
    }
    (tmp_path / "panoptic.json").write_text(json.dumps(values))
    data = open_data(tmp_path)
    assert (data.task, data.class_names) == (Panoptic(things=(1, 2)), ("sky", *drawn.NAMES))
    for name, label in labels(data).items():
        boxes = drawn.SCENES[name]
        codes = np.full((drawn.HEIGHT, drawn.WIDTH), 0)
        for kind, left, top, right, bottom in boxes:
            codes[top:bottom, left:right] = 1 + drawn.NAMES.index(kind)
        free = ~label.ignored_bitmap()
        assert free[1:].all()
        assert np.array_equal(label.class_map()[free], codes[free])
        assert label.crowd.sum() <= 1
    assert open_data(f"instances:{tmp_path}").class_names == drawn.NAMES
    assert open_data(f"semantic:{tmp_path}").class_names == ("sky", *drawn.NAMES)


HOSTILE_REGIONS: list[dict[str, Any]] = [
    {"bbox": [10**400, 0, 1, 1]},
    {"bbox": [float("nan"), 0, float("inf"), 1]},
    {"bbox": "0000", "segmentation": "polygon"},
    {"bbox": [1, 1, 5, 5], "segmentation": {"size": [10**9, 10**9], "counts": "0"}},
    {"bbox": [1, 1, 5, 5], "segmentation": {"size": [60, 80], "counts": "~~"}},
    {"bbox": [1, 1, 5, 5], "segmentation": {"size": [60, 80], "counts": [1, -1]}},
    {"bbox": [1, 1, 5, 5], "segmentation": [[1, [2], 3], None, ["a"] * 6, [1e308] * 6]},
    {"bbox": [1, 1, 5, 5], "area": "large", "iscrowd": "no", "category_id": [3]},
    {"image_id": {}, "bbox": None},
]


@every_case("region", HOSTILE_REGIONS)
def test_hostile_regions_harm_no_photo(tmp_path: Path, region: dict[str, Any]) -> None:
    drawn.write_coco(tmp_path, masks=True)
    change(tmp_path, annotations=[{"image_id": 5, "category_id": 3, **region}])
    assert labels(open_data(tmp_path)).keys() == drawn.SCENES.keys()


@every_case(
    "line", ["inf 0.1 0.1 0.1 0.1", "nan 0 0 0 0", "1e18 0.1 0.1 0.1 0.1", "0 nan 0.1 0.1 0.1", "0 1", "\x00\xff"]
)
def test_a_hostile_line_of_yolo_leaves_out_its_photo(tmp_path: Path, line: str) -> None:
    drawn.write_yolo(tmp_path)
    (tmp_path / "data.yaml").unlink()
    (tmp_path / "labels" / "photo_0.txt").write_text(line, encoding="latin-1")
    data = open_data(tmp_path)
    assert ["photo_0" in bad.path for bad in data.bad_images] == [True]
    assert data.class_names == ("0", "1")

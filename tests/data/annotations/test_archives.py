"""Annotated photos in an archive are read as those of the folder that it was made of, and damaged archives are one line."""

import io
import json
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.checks.check_data import check_data
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.tasks.regions import Regions


def write_masks(folder: Path) -> None:
    drawn.photos(folder / "images")
    (folder / "masks").mkdir()
    for name, boxes in drawn.SCENES.items():
        Image.fromarray(drawn.class_map(boxes)).save(folder / "masks" / f"{name}.png")


def write_objects(folder: Path) -> None:
    """Write an image an object; of photos with nothing in them an empty folder of masks."""
    for name, boxes in drawn.SCENES.items():
        drawn.draw(folder / name / "images" / f"{name}.png", boxes)
        (folder / name / "masks").mkdir()
        for number, box in enumerate(boxes):
            mask = (drawn.class_map([box]) > 0).astype(np.uint8) * 255
            Image.fromarray(mask).save(folder / name / "masks" / f"{number}.png")


def write_cvat(folder: Path) -> None:
    drawn.photos(folder / "images")
    shapes = {
        name: "".join(f'<box label="{kind}" xtl="{a}" ytl="{b}" xbr="{c}" ybr="{d}"/>' for kind, a, b, c, d in boxes)
        for name, boxes in drawn.SCENES.items()
    }
    images = "".join(
        f'<image name="{name}.png" width="80" height="60">{inside}</image>' for name, inside in shapes.items()
    )
    (folder / "annotations.xml").write_text(f"<annotations>{images}</annotations>")


def write_label_studio(folder: Path) -> None:
    drawn.photos(folder / "images")
    size = {"original_width": 80, "original_height": 60, "rotation": 0}
    tasks = [
        {
            "image": f"/data/upload/1/0a1b2c3d-{name}.png",
            "label": [
                {"x": a / 0.8, "y": b / 0.6, "width": (c - a) / 0.8, "height": (d - b) / 0.6, **size, "labels": [kind]}
                for kind, a, b, c, d in boxes
            ],
        }
        for name, boxes in drawn.SCENES.items()
    ]
    (folder / "export.json").write_text(json.dumps(tasks))


def write_panoptic(folder: Path) -> None:
    drawn.photos(folder / "images", suffix=".jpg")
    (folder / "panoptic_train").mkdir()
    annotations = []
    for number, (name, boxes) in enumerate(drawn.SCENES.items()):
        labels = drawn.class_map(boxes)
        pixels = np.stack([labels * 5, labels, labels], axis=2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "panoptic_train" / f"{name}.png")
        there = [each for each in np.unique(labels).tolist() if each]
        segments = [{"id": each * (5 + 256 + 65536), "category_id": each} for each in there]
        annotations.append({"image_id": number, "file_name": f"{name}.png", "segments_info": segments})
    images = [{"id": number, "file_name": f"{name}.jpg"} for number, name in enumerate(drawn.SCENES)]
    classes = [{"id": number, "name": name, "isthing": number % 2} for number, name in enumerate(drawn.NAMES, 1)]
    values = {"images": images, "annotations": annotations, "categories": classes}
    (folder / "panoptic_train.json").write_text(json.dumps(values))


WRITERS: dict[str, Callable[[Path], None]] = {
    "COCO": drawn.write_coco,
    "COCO panoptic": write_panoptic,
    "VOC": drawn.write_voc,
    "YOLO": drawn.write_yolo,
    "mask images": write_masks,
    "an image an object": write_objects,
    "CVAT": write_cvat,
    "Label Studio": write_label_studio,
}
KINDS = ("zip", "tar", "gztar")


def regions(data: DataSet) -> dict[str, Regions]:
    found = {}
    for source in data.splits.values():
        sent = pickle.loads(pickle.dumps(source))  # as it is to worker processes
        for index in range(len(source)):
            label = sent.label(index)
            assert isinstance(label, Regions)
            found[Path(source.describe(index)).stem] = label
    return found


@every_case("form", list(WRITERS))
def test_an_archive_is_read_as_its_folder_is(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "set"
    WRITERS[form](folder)
    of_folder = open_data(folder)
    expected = regions(of_folder)
    assert len(expected) == len(drawn.SCENES)
    assert sum(map(len, expected.values())) > 0
    for number, kind in enumerate(KINDS):
        root, inside = (tmp_path, "set") if number else (folder, ".")
        archive = shutil.make_archive(str(tmp_path / kind), kind, root, inside)
        data = open_data(archive)
        assert (data.task, data.class_names) == (of_folder.task, of_folder.class_names)
        assert data.counts() == of_folder.counts()
        assert data.notes[0] == of_folder.notes[0]
        found = regions(data)
        assert found.keys() == expected.keys()
        for name, each in expected.items():
            assert found[name].boxes.tolist() == each.boxes.tolist()
            assert found[name].classes.tolist() == each.classes.tolist()
            assert np.array_equal(found[name].class_map(), each.class_map()) if each.masks is not None else True


def test_splits_of_an_archive_are_those_of_its_lists(tmp_path: Path) -> None:
    drawn.write_voc(tmp_path / "set")
    lists = tmp_path / "set" / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join(list(drawn.SCENES)[:12]))
    (lists / "val.txt").write_text("\n".join(list(drawn.SCENES)[12:]))
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "set")
    assert open_data(archive).counts() == {"train": "12", "validation": "8"}
    drawn.write_yolo(tmp_path / "yolo")
    (tmp_path / "yolo" / "data.yaml").write_text("names: [cell, platelet]\ntrain: ./a.txt\nval: b.txt\n")
    (tmp_path / "yolo" / "a.txt").write_text("\n".join(f"./images/{name}.png" for name in list(drawn.SCENES)[:15]))
    (tmp_path / "yolo" / "b.txt").write_text("\n".join(f"./images/{name}.png" for name in list(drawn.SCENES)[15:]))
    archive = shutil.make_archive(str(tmp_path / "text"), "gztar", tmp_path, "yolo")
    assert open_data(archive).counts() == {"train": "15", "validation": "5"}


def test_an_archive_of_another_task_and_one_to_check(tmp_path: Path) -> None:
    drawn.write_coco(tmp_path / "set", masks=True)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "set")
    assert open_data(f"boxes:{archive}").task.name == "boxes"
    assert open_data(f"semantic:{archive}").task.name == "semantic"
    found = check_data(archive)
    assert found.regions is not None
    assert found.regions.total == 48
    assert not found.bad


def test_names_that_lead_out_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    drawn.write_coco(tmp_path / "set")
    secret = tmp_path / "photo_0.png"
    drawn.draw(secret, [])
    (tmp_path / "set" / "images" / "photo_0.png").unlink()
    path = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "set"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(tmp_path / "set" / "images" / "photo_1.png", "../../images/photo_0.png")
        archive.writestr("/etc/photo_99.png", b"no image")
    data = open_data(path, skip_bad_images=True)
    assert len(regions(data)) == len(drawn.SCENES)
    assert {each.name for each in tmp_path.iterdir()} == {"set", "photo_0.png", "packed.zip"}


def encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for sign, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(sign)
        while place >= 0:
            content[place + flags] |= 1
            place = content.find(sign, place + 4)
    path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def damaged_annotations(path: Path) -> None:
    """Change a byte of the packed annotations."""
    with zipfile.ZipFile(path) as archive:
        info = next(info for info in archive.infolist() if info.filename.endswith(".json"))
    content = bytearray(path.read_bytes())
    content[info.header_offset + 200] ^= 0xFF
    path.write_bytes(content)


@every_case(
    ("kind", "damage", "why"),
    [
        ("zip", encrypted, "encrypted"),
        ("zip", cut, "cannot be read as a zip"),
        ("gztar", cut, "cannot be read as a tar"),
        ("tar", cut, "cut short|cannot be read as a tar"),
        ("zip", damaged_annotations, "instances_default.json' is damaged in the archive"),
    ],
)
def test_a_damaged_archive_is_one_line(tmp_path: Path, kind: str, damage: Callable[[Path], None], why: str) -> None:
    drawn.write_coco(tmp_path / "set")
    path = Path(shutil.make_archive(str(tmp_path / "packed"), kind, tmp_path / "set"))
    damage(path)
    with pytest.raises(VitralError, match=why) as caught:
        open_data(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_mask_in_an_archive_is_named(tmp_path: Path) -> None:
    write_masks(tmp_path / "set")
    (tmp_path / "set" / "masks" / "photo_3.png").write_bytes(b"no image")
    data = open_data(shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path / "set"))
    (bad,) = data.bad_images
    assert "packed.tar.gz:./masks/photo_3.png' cannot be read as a mask" in bad.reason
    assert not list(Path.cwd().glob("masks"))


def test_of_files_of_one_name_the_last_counts(tmp_path: Path) -> None:
    drawn.write_coco(tmp_path / "set")
    values = drawn.coco()
    path = tmp_path / "packed.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(tmp_path / "set" / "images", "images")
        for listed in (values["annotations"], values["annotations"][:5]):
            content = json.dumps({**values, "annotations": listed}).encode()
            info = tarfile.TarInfo("a.json")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert sum(map(len, regions(open_data(path)).values())) == 5

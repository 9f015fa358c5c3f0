"""Folders and archives as other tools and authors lay them out: read as they mean it, or refused by name."""

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.published.written import jpeg, write
from tests.data.written import encode
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import DataError, ImageError

NAMES = ("crack", "rust")


def classes_of(data: DataSet) -> dict[str, tuple[str, ...]]:
    """Return the classes of each image by its file name."""
    found = {}
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            numbers = label if isinstance(label, tuple) else (label,)
            found[Path(source.describe(index)).name] = tuple(data.class_names[int(number or 0)] for number in numbers)  # type: ignore[arg-type]
    return found


def images(root: Path, count: int = 20, folder: str = "") -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (root / folder / f"{number}.png").write_bytes(encode(0, number))


EXPECTED = {f"{number}.png": (NAMES[number % 2],) for number in range(20)}


@every_case("folder", ["", "images", "default"])
def test_an_export_of_cvat_has_the_names_of_its_synsets(tmp_path: Path, folder: str) -> None:
    images(tmp_path, folder=folder)
    (tmp_path / "synsets.txt").write_text("\n".join(NAMES) + "\n")
    (tmp_path / "default.txt").write_text("".join(f"{number}.png {number % 2}\n" for number in range(20)))
    assert classes_of(open_data(tmp_path)) == EXPECTED
    assert classes_of(open_data(tmp_path / "default.txt")) == EXPECTED


def test_synsets_beside_class_folders_change_nothing(tmp_path: Path) -> None:
    for name in NAMES:
        images(tmp_path, 6, name)
    (tmp_path / "synsets.txt").write_text("\n".join(NAMES) + "\n")
    assert open_data(tmp_path).class_names == NAMES


def metadata(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@every_case(
    ("label", "expected"),
    [
        (lambda n: {"label": NAMES[n % 2]}, EXPECTED),
        (lambda n: {"text": f"image {n}", "category": NAMES[n % 2]}, EXPECTED),
        (lambda n: {"label": n % 2}, {name: (str(NAMES.index(label)),) for name, (label,) in EXPECTED.items()}),
        (lambda n: {"labels": list(NAMES[: n % 3])}, {f"{n}.png": NAMES[: n % 3] for n in range(20)}),
        (lambda n: {"label": NAMES[n % 2], "objects": {"bbox": [[1, 2, 3, 4]]}, "coarse_label": "x"}, EXPECTED),
    ],
)
@every_case("folder", ["", "photos/deep/"])
def test_metadata_of_an_image_folder_are_read(
    tmp_path: Path, label: Callable[[int], dict[str, object]], expected: dict[str, tuple[str, ...]], folder: str
) -> None:
    images(tmp_path, folder=folder)
    metadata(tmp_path / "metadata.jsonl", [{"file_name": f"{folder}{n}.png", **label(n)} for n in range(20)])
    assert classes_of(open_data(tmp_path)) == expected


def test_metadata_in_the_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images(tmp_path, folder=split)
        metadata(tmp_path / split / "metadata.jsonl", [{"file_name": n, "label": c} for n, (c,) in EXPECTED.items()])
    data = open_data(tmp_path)
    assert {name: len(source) for name, source in data.splits.items()} == {"train": 18, "validation": 2, "test": 20}
    assert data.splits["test"].describe(0).startswith(str(tmp_path / "test"))


SITES: list[dict[str, object]] = [
    {"file_name": f"{n}.png", "label": NAMES[n % 2], "site": f"s{n // 4}"} for n in range(20)
]


def test_metadata_follow_the_rules_of_all_tables(tmp_path: Path) -> None:
    for split, rows in (("train", SITES), ("test", [{"file_name": site["file_name"]} for site in SITES])):
        images(tmp_path / split)
        metadata(tmp_path / split / "metadata.jsonl", rows)
    data = open_data(tmp_path, group="site")
    assert sorted(data.splits) == ["train", "validation"]
    assert any("20 images of the test split have no labels" in note for note in data.notes)
    assert any("5 groups" in note for note in data.notes)


def test_lines_of_json_that_are_named_say_yes_or_no_of_each_label(tmp_path: Path) -> None:
    images(tmp_path)
    metadata(
        tmp_path / "signs.jsonl", [{"file_name": f"{n}.png", "crack": 1 - n % 2, "rust": n % 2} for n in range(20)]
    )
    assert classes_of(open_data(tmp_path / "signs.jsonl")) == EXPECTED


def test_images_that_no_metadata_name_are_counted(tmp_path: Path) -> None:
    for folder in ("train", "test/crack", "test/rust"):
        images(tmp_path, folder=folder)
    metadata(tmp_path / "train" / "metadata.jsonl", SITES)
    assert any(note.startswith("40 images") and "test/crack/0.png" in note for note in open_data(tmp_path).notes)


def test_metadata_without_classes_leave_them_to_the_folders(tmp_path: Path) -> None:
    for name in NAMES:
        images(tmp_path, 6, name)
    metadata(tmp_path / "metadata.jsonl", [{"file_name": "crack/0.png", "text": "a crack"}])
    data = open_data(tmp_path)
    assert data.class_names == NAMES
    assert any("metadata.jsonl" in note for note in data.notes)


def test_metadata_in_an_archive_are_named(tmp_path: Path) -> None:
    images(tmp_path / "photos", folder="all")
    metadata(tmp_path / "photos" / "metadata.jsonl", [{"file_name": n, "label": c} for n, (c,) in EXPECTED.items()])
    with pytest.raises(DataError, match="has a table, photos/metadata.jsonl.* unpack it"):
        open_data(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "photos"))


@every_case(
    ("lines", "message"),
    [
        ('{"file_name": "0.png", "label": "b"}\n{"label": "a"}\n', "line 2, names no image"),
        ('{"file_name": "0.png", "label": "a"}\n[]\n', "line 2, is not a JSON object"),
        ('{"file_name": "0.png", "label": "a"}\n{"file_name"\n', "line 2, is not JSON"),
        ('{"file_name": "0.png", "label": {"x": 1}}\n', "'metadata.jsonl'.*no column of classes"),
        ('{"file_name": "0.png", "label": null}\n', "metadata.jsonl' has a class for none"),
        ('{"file_name": "0.png", "category": "a", "class": "b"}\n', "'category', 'class'.*columns:label=category:"),
        ('{"scan": "zero", "label": "b"}\n', "no column of images.*columns:image=NAME:"),
        ("[" * 100_000, "line 1, is not JSON"),
    ],
)
def test_bad_metadata_are_refused_in_one_line(tmp_path: Path, lines: str, message: str) -> None:
    images(tmp_path, 2)
    (tmp_path / "metadata.jsonl").write_text(lines)
    with pytest.raises(DataError, match=message):
        open_data(tmp_path)


def test_an_image_that_metadata_name_and_that_is_not_there(tmp_path: Path) -> None:
    images(tmp_path)
    rows = [{"file_name": f"{number}.png", "kind": NAMES[number % 2]} for number in range(21)]
    metadata(tmp_path / "metadata.jsonl", [dict(row) for row in rows])
    with pytest.raises(ImageError, match="1 of 21 .*20.png.*line 21"):
        open_data(f"columns:label=kind:{tmp_path}", skip_bad_images=False)
    assert classes_of(open_data(f"columns:label=kind:{tmp_path}", skip_bad_images=True)) == EXPECTED


WNIDS = ("n01443537", "n02124075")


def tiny_files() -> dict[str, bytes]:
    """Two classes of Tiny ImageNet, each image with a seed of its own."""
    root = "tiny-imagenet-200"
    files = {f"{root}/wnids.txt": "\n".join(WNIDS).encode(), f"{root}/words.txt": b"n01443537\tgoldfish\n"}
    for place, name in enumerate(WNIDS):
        files[f"{root}/train/{name}/{name}_boxes.txt"] = b"n_0.JPEG\t0\t0\t9\t9\n"
        for number in range(5):
            files[f"{root}/train/{name}/images/{name}_{number}.JPEG"] = jpeg(100 * place + number)
    lines = [f"val_{number}.JPEG\t{WNIDS[number % 2]}\t0\t32\t44\t62" for number in range(4)]
    files[f"{root}/val/val_annotations.txt"] = ("\n".join(lines) + "\n").encode()
    files |= {f"{root}/val/images/val_{number}.JPEG": jpeg(900 + number) for number in range(4)}
    return files | {f"{root}/test/images/test_{number}.JPEG": jpeg(990 + number) for number in range(3)}


def tiny_folder(root: Path) -> Path:
    return write(root, tiny_files()) / "tiny-imagenet-200"


def tiny_zip(root: Path) -> Path:
    shutil.make_archive(str(root / "tiny-imagenet-200"), "zip", write(root / "unpacked", tiny_files()))
    shutil.rmtree(root / "unpacked")
    return root / "tiny-imagenet-200.zip"


def tiny_sorted(root: Path) -> Path:
    """Write it with the validation images in folders of classes, as many sort them."""
    folder = tiny_folder(root)
    for number in range(4):
        place = folder / "val" / WNIDS[number % 2]
        place.mkdir(exist_ok=True)
        (folder / "val" / "images" / f"val_{number}.JPEG").rename(place / f"val_{number}.JPEG")
    return folder


@every_case("form", [tiny_folder, tiny_sorted, tiny_zip, lambda root: tiny_zip(root).parent])
def test_tiny_imagenet_is_read_in_its_own_layout(tmp_path: Path, form: Callable[[Path], Path]) -> None:
    path = form(tmp_path)
    data = open_data(f"tiny-imagenet:{path}")
    assert data.class_names == WNIDS
    assert {name: len(source) for name, source in data.splits.items()} == {"train": 8, "validation": 2, "test": 4}
    assert data.splits["test"].labels().tolist() == [0, 1, 0, 1]
    assert any("10 train images" in note and "100,000" in note for note in data.notes)
    found: dict[str, int] = {}
    for split in ("train", "validation"):
        source = data.splits[split]
        found |= {Path(source.describe(i)).name: int(source.labels()[i]) for i in range(len(source))}
    assert found == {f"{name}_{number}.JPEG": place for place, name in enumerate(WNIDS) for number in range(5)}


@every_case("form", [tiny_folder, tiny_zip])
def test_tiny_imagenet_without_its_name_is_refused_with_it(tmp_path: Path, form: Callable[[Path], Path]) -> None:
    path = form(tmp_path)
    with pytest.raises(DataError, match=f"tiny-imagenet:{path}"):
        open_data(path)
    if form is tiny_folder:
        shutil.rmtree(tmp_path / "tiny-imagenet-200")
        path = tiny_sorted(tmp_path)
        with pytest.raises(DataError, match=f"tiny-imagenet:{path}"):
            open_data(path)
        shutil.rmtree(path / "test")
        data = open_data(path)  # a folder of classes like any other
        assert {name: len(source) for name, source in data.splits.items()} == {"train": 10, "validation": 4}
        assert data.class_names == WNIDS


@every_case(
    ("change", "message"),
    [
        (lambda files: {p: c for p, c in files.items() if "val_2.JPEG" not in p}, "val_2.JPEG, named in val/val_ann"),
        (lambda files: {p: c for p, c in files.items() if "annotations" not in p}, "no 'val/val_annotations.txt'"),
        (lambda files: {p: c for p, c in files.items() if "/train/" not in p}, "no training images"),
        (
            lambda files: {p: c.replace(b"n02124075\t", b"n09\t") for p, c in files.items()},
            "val_1.JPEG.*of the 2 classes",
        ),
        (lambda files: {**files, "copy/val/images/val_0.JPEG": b""}, "holds an image twice"),
    ],
)
def test_a_damaged_tiny_imagenet_is_refused(
    tmp_path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], message: str
) -> None:
    write(tmp_path, change(tiny_files()))
    with pytest.raises(DataError, match=message):
        open_data(f"tiny-imagenet:{tmp_path}")


def packed(kind: str, name: str) -> bytes:
    buffer = io.BytesIO()
    content = encode(0, 1)
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(f"{name}/0.png", content)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            info = tarfile.TarInfo(f"{name}/0.png")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@every_case("outer", ["folder", "zip", "tar"])
@every_case("kind", ["zip", "tar"])
@every_case("beside", [False, True])
def test_archives_in_an_archive_or_a_folder_are_named(tmp_path: Path, outer: str, kind: str, beside: bool) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for name in NAMES:
        (root / f"{name}.{kind}").write_bytes(packed(kind, name))
    if beside:
        images(root, 6, "a")
        images(root, 6, "b")
    path = root if outer == "folder" else Path(shutil.make_archive(str(root), outer, tmp_path, "photos"))
    if beside:
        data = open_data(path)
        assert data.class_names == ("a", "b")
        assert any(f"crack.{kind}" in note and f"rust.{kind}" in note for note in data.notes)
    else:
        with pytest.raises(DataError, match=f"archives and no images: .*crack.{kind}, .*rust.{kind}; unpack"):
            open_data(path)


@every_case("table", ["labels.csv", "labels.xlsx"])
def test_folders_of_single_images_beside_a_table_name_no_classes(tmp_path: Path, table: str) -> None:
    rows = ["image,label"]
    for number in range(24):
        images(tmp_path, 1, f"IMD{number:03}/photo-{number}")
        rows.append(f"IMD{number:03}/photo-{number}/0.png,{'mole' if number % 2 else 'nevus'}")
    (tmp_path / table).write_text("\n".join(rows))
    with pytest.raises(DataError, match=f"24 images in 24 folders.*{table}.*leaf"):
        open_data(tmp_path)
    assert len(open_data(tmp_path, classes="path").class_names) == 24
    if table.endswith(".csv"):
        assert open_data(tmp_path / table).class_names == ("mole", "nevus")


def test_crosses_mark_the_labels_of_an_image(tmp_path: Path) -> None:
    images(tmp_path, 8)
    rows = ["image,nevus,melanoma", *(f"{number}.png,{',X' if number % 2 else 'x,'}" for number in range(8))]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    assert set(open_data(tmp_path / "labels.csv").class_names) == {"nevus", "melanoma"}

"""Tables and lists of images as people have them: without column names, with other separators, paths from elsewhere."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import DataError, ImageError

NAMES = ("cat", "dog")
IMAGES = [f"{NAMES[number % 2]}/{number}.png" for number in range(20)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twenty images below pool/cat and pool/dog."""
    for number, name in enumerate(IMAGES):
        path = tmp_path / "pool" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, "PNG")
        path.write_bytes(buffer.getvalue())
    return tmp_path


def lines(form: Callable[[str, str], str], *, names: list[str] = IMAGES) -> str:
    return "\n".join(form(name, name.split("/")[0]) for name in names) + "\n"


KINDS: dict[str, tuple[str, str]] = {
    "no header": ("all.csv", lines(lambda path, name: f"pool/{path},{name}")),
    "class first": ("all.csv", lines(lambda path, name: f"{name},pool/{path}")),
    "semicolons": ("all.csv", "image;label\n" + lines(lambda path, name: f"pool/{path};{name}")),
    "no header, tabs": ("all.tsv", lines(lambda path, name: f"pool/{path}\t{name}")),
    "path only": ("all.csv", lines(lambda path, name: f"pool/{path}")),
    "list": ("all.txt", lines(lambda path, name: f"pool/{path} {name}")),
    "list of numbers": ("all.txt", lines(lambda path, name: f"pool/{path} {NAMES.index(name)}")),
    "list with tabs": ("all.txt", "# a remark\n\n" + lines(lambda path, name: f"pool/{path}\t{name}")),
    "list of paths": ("all.txt", lines(lambda path, name: f"pool/{path}")),
    "list without endings": ("all.txt", lines(lambda path, name: f"pool/{path[:-4]}")),
    "from the images' folder": ("pool/lists/all.txt", lines(lambda path, name: f"{path} {name}")),
    "beside the images' folder": (
        "lists/images/../all.csv",
        "image,label\n" + lines(lambda path, name: f"{path},{name}"),
    ),
}


def count(data: DataSet) -> int:
    return sum(len(source) for source in data.splits.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_the_usual_kind_is_read(root: Path, kind: str) -> None:
    name, text = KINDS[kind]
    table = root / name
    table.parent.mkdir(parents=True, exist_ok=True)
    if kind.startswith("beside"):
        (root / "lists" / "images").rmdir()
        (root / "pool").rename(root / "lists" / "images")
        table = root / "lists" / "all.csv"
    table.write_text(text)
    if "numbers" in kind:
        (root / "classes.txt").write_text("cat\ndog\n")
    data = open_data(table)
    assert data.class_names == NAMES
    assert count(data) == 20
    for source in data.splits.values():
        for index in range(len(source)):
            assert Path(source.describe(index)).parent.name == data.class_names[int(source.labels()[index])]


def test_a_split_column_without_a_name(root: Path) -> None:
    text = lines(lambda path, name: f"pool/{path},{name},train", names=IMAGES[:14])
    text += lines(lambda path, name: f"pool/{path},{name},test", names=IMAGES[14:])
    (root / "all.csv").write_text(text)
    data = open_data(root / "all.csv")
    assert len(data.splits["test"]) == 6


def test_lists_by_split_next_to_the_images(root: Path) -> None:
    for split, part in (("train", IMAGES[:12]), ("val", IMAGES[12:16]), ("test", IMAGES[16:])):
        (root / "pool" / f"{split}.txt").write_text(lines(lambda path, name: f"{path} {name}", names=part))
    data = open_data(root / "pool")
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 12, "validation": 4, "test": 4}
    assert data.class_names == NAMES


def test_a_text_file_of_such_a_name_that_is_not_a_list_is_ignored(root: Path) -> None:
    (root / "pool" / "train.txt").write_text("trained on a Tuesday\n")
    assert count(open_data(root / "pool")) == 20


def test_paths_that_do_not_exist_are_refused(root: Path) -> None:
    for name, text in (("a.csv", "image,label\n"), ("b.csv", ""), ("c.txt", "")):
        separator = " " if name.endswith("txt") else ","
        (root / name).write_text(text + lines(lambda path, label: f"elsewhere/{path}{separator}{label}"))  # noqa: B023
        with pytest.raises(DataError, match=r"None of the 20 images .*elsewhere/cat/0.png"):
            open_data(root / name)


def test_a_few_paths_that_do_not_exist_are_bad_images(root: Path) -> None:
    (root / "all.csv").write_text(lines(lambda path, name: f"pool/{path},{name}") + "pool/cat/gone.png,cat\n")
    with pytest.raises(ImageError, match=r"1 of 21 .*gone.png' \(.*line 21\) does not exist"):
        open_data(root / "all.csv", skip_bad_images=False)
    assert count(open_data(root / "all.csv")) == 20


def test_a_row_that_is_too_short_is_named(root: Path) -> None:
    (root / "all.csv").write_text("pool/cat/0.png,cat\npool/dog/1.png\n")
    with pytest.raises(DataError, match="line 2, has 1 cell for 2 columns"):
        open_data(root / "all.csv")


def test_a_class_whose_files_are_all_missing_is_named(root: Path) -> None:
    gone = "".join(f"pool/blue/{number}.png,blue\n" for number in range(3))
    (root / "all.csv").write_text(lines(lambda path, name: f"pool/{path},{name}") + gone)
    data = open_data(root / "all.csv", skip_bad_images=True)
    assert data.class_names == NAMES
    assert any("1 of the 3 classes: blue" in note for note in data.notes)
    whole = open_data(root / "pool")
    assert not [note for note in whole.notes if "readable" in note]
    (root / "one.csv").write_text("pool/cat/0.png,cat\npool/cat/2.png,cat\n" + gone)
    with pytest.raises(DataError, match=r"only one class.* 1 of the 2 classes: blue\.$"):
        open_data(root / "one.csv", skip_bad_images=True)


def test_a_class_of_only_damaged_images_is_named(root: Path) -> None:
    for number in range(3):
        path = root / "pool" / "blue" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no image")
    data = open_data(root / "pool", skip_bad_images=True)
    assert data.class_names == NAMES
    assert any("1 of the 3 classes: blue" in note for note in data.notes)


def test_a_table_without_rows_is_refused_as_such(root: Path) -> None:
    (root / "all.csv").write_text("image,label\n")
    (root / "all.txt").write_text("# nothing yet\n")
    parquet.write_table(
        pa.table({"image": pa.array([], pa.string()), "label": pa.array([], pa.string())}), root / "all.parquet"
    )
    for name in ("all.csv", "all.txt", "all.parquet"):
        with pytest.raises(DataError, match=f"{name}' has no rows"):
            open_data(root / name)


def test_quotes_behind_backslashes(root: Path) -> None:
    """As MySQL and C programs write them; backslashes that are no escapes of quotes stay, as in paths of Windows."""
    table = root / "all.csv"
    table.write_text(
        "image,label\n" + lines(lambda path, name: f'"pool\\{path}","the \\"{name}\\", 5\\""'.replace("/", "\\"))
    )
    assert set(open_data(str(table)).class_names) == {'the "cat", 5"', 'the "dog", 5"'}
    table.write_text("image,label\n" + lines(lambda path, name: f'"pool/{path}","{name}\\"'))
    assert set(open_data(str(table)).class_names) == {"cat\\", "dog\\"}

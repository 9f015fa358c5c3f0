"""Corrections: found, listed, applied by moving files, and put back exactly, whenever a command is killed."""

import csv
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.checks.corrections import (
    COLUMNS,
    JOURNAL,
    Correction,
    apply_corrections,
    read_corrections,
    undo_corrections,
    write_table,
)
from vitral.checks.doubtful import Doubtful, DoubtfulLabels, write_corrections
from vitral.data.open import open_data
from vitral.errors import DataError, StorageError
from vitral.report.pages import write_fix_page


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes under the same file names, in splits, one file with an old time."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / name / f"{number}.png")
    os.utime(tmp_path / "photos" / "train" / "cat" / "0.png", (1e9, 1e9))
    return tmp_path / "photos"


WRONG = (Correction("train/cat/0.png", "cat", "dog"), Correction("val/dog/1.png", "dog", "cat"))


def state(folder: Path) -> dict[str, tuple[bytes, int] | None]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_files_are_moved_and_put_back_exactly(photos: Path) -> None:
    before = state(photos)
    assert apply_corrections(photos, WRONG).corrected == 2
    moved = state(photos)
    assert moved["train/dog/0-2.png"] == before["train/cat/0.png"]  # 0.png was taken, and is untouched
    assert moved["train/dog/0.png"] == before["train/dog/0.png"]
    assert "train/cat/0.png" not in moved
    assert len(open_data(photos).splits["train"]) == 12
    again = apply_corrections(photos, WRONG)
    assert (again.corrected, again.before) == (0, 2)
    assert apply_corrections(photos, [Correction("train/dog/3.png", "dog", "cat")]).corrected == 1
    assert undo_corrections(photos).corrected == 1
    assert {**state(photos), JOURNAL: None} == {**moved, JOURNAL: None}
    assert undo_corrections(photos).corrected == 2
    assert state(photos) == before
    with pytest.raises(DataError, match="undone"):
        undo_corrections(photos)


@pytest.mark.parametrize("killed_at", [1, 2])
@pytest.mark.parametrize("undoing", [False, True])
def test_what_was_killed_goes_on(photos: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int, undoing: bool) -> None:
    before, renamed, rename = state(photos), 0, os.rename
    if undoing:
        apply_corrections(photos, WRONG)

    def killed(old: Path, new: Path) -> None:
        nonlocal renamed
        renamed += 1
        if renamed == killed_at:
            raise KeyboardInterrupt
        rename(old, new)

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        undo_corrections(photos) if undoing else apply_corrections(photos, WRONG)
    monkeypatch.undo()
    if not undoing:
        assert apply_corrections(photos, WRONG).before == 2
        assert "train/dog/0-2.png" in state(photos)
    undo_corrections(photos)
    assert state(photos) == before


def test_a_folder_that_was_made_is_removed_again(photos: Path) -> None:
    for path in (photos / "val" / "dog").iterdir():
        path.unlink()
    (photos / "val" / "dog").rmdir()
    before = state(photos)
    apply_corrections(photos, [Correction("val/cat/0.png", "cat", "dog")])
    assert (photos / "val" / "dog" / "0.png").is_file()
    undo_corrections(photos)
    assert state(photos) == before


@every_case(
    ("wrong", "why"),
    [
        (Correction("train/cat/9.png", "cat", "dog"), "9.png"),
        (Correction("train/cat/1.png", "dog", "cat"), "class 'dog'"),
        (Correction("train/cat/1.png", "cat", "dgo"), "Did you mean 'dog'"),
        (Correction("../elsewhere.png", "cat", "dog"), "elsewhere"),
        (Correction("train/cat/link.png", "cat", "dog"), "link"),
    ],
)
def test_one_that_does_not_fit_moves_nothing(photos: Path, wrong: Correction, why: str) -> None:
    link = photos / "train" / "cat" / "link.png"
    link.unlink(missing_ok=True)
    link.symlink_to("1.png")
    before = state(photos)
    with pytest.raises(DataError, match=why):
        apply_corrections(photos, [WRONG[0], wrong])
    assert state(photos) == before


def test_a_journal_that_leads_out_of_the_folder_is_refused(photos: Path) -> None:
    evil = '{"when": 0, "moves": [["../stolen.png", "train/cat/0.png"]], "made": [], "undoing": false}\n'
    (photos / JOURNAL).write_text(evil)
    with pytest.raises(DataError, match="damaged"):
        undo_corrections(photos)
    assert (photos / "train" / "cat" / "0.png").is_file()


def test_a_table_has_the_corrected_classes_and_moves_nothing(photos: Path, tmp_path: Path) -> None:
    before, out = state(photos), tmp_path / "tables" / "photos.csv"
    out.parent.mkdir()
    assert write_table(photos, WRONG, out).corrected == 2
    assert state(photos) == before
    data = open_data(out)
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 12, "validation": 4}
    validation = data.splits["validation"]
    labels = {Path(validation.describe(place)).parts[-2:]: validation.label(place) for place in range(4)}
    assert data.class_names[labels["dog", "1.png"]] == "cat"  # type: ignore[index]
    with pytest.raises(StorageError, match="exists"):
        write_table(photos, WRONG, out)


def test_the_table_to_fill_in_and_the_page_have_every_label(tmp_path: Path) -> None:
    names = ("a.png", "=b.png", "c<script>.png")
    labels = tuple(Doubtful(name, "cat", "dog", 0.75) for name in names)
    found = DoubtfulLabels("photos", ("cat", "dog", 'e"f'), labels, 2, 0.9, (np.zeros((9, 9, 3), np.uint8), None, None))
    write_corrections(found, tmp_path / "corrections.csv")
    with open(tmp_path / "corrections.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert read_corrections(tmp_path / "corrections.csv") == []
    with open(tmp_path / "filled.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({**row, "correction": "dog"} for row in rows)
    assert [one.image for one in read_corrections(tmp_path / "filled.csv")] == list(names)
    write_fix_page(found, "vitral fix photos --apply corrections.csv", tmp_path / "fix.html")
    page = (tmp_path / "fix.html").read_text()
    assert page.count('class="card fix"') == 3
    assert "c&lt;script&gt;.png" in page
    assert "c<script>" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_what_is_filled_in_stays_when_the_table_is_written_again(photos: Path, tmp_path: Path) -> None:
    table, still, no_more, moved = tmp_path / "corrections.csv", "train/cat/1.png", "train/dog/2.png", "train/cat/0.png"

    def found(*images: str) -> DoubtfulLabels:
        labels = tuple(Doubtful(image, Path(image).parent.name, "cat", 0.75) for image in images)
        return DoubtfulLabels(str(photos), ("cat", "dog"), labels, 2, 0.9, (None,) * len(labels))

    assert write_corrections(found(still, no_more, moved), table) == 0
    text = table.read_text()
    table.write_text("\n".join(f"{line}{'dog' if '/cat/' in line else 'cat'}" for line in text.splitlines()[1:]))
    table.write_text(f"{','.join(COLUMNS)}\n{table.read_text()}\n")
    filled = read_corrections(table)
    apply_corrections(photos, [one for one in filled if one.image == moved])
    assert write_corrections(found(still, "val/dog/0.png"), table) == 2
    assert read_corrections(table) == [one for one in filled if one.image != moved]
    assert "val/dog/0.png" in table.read_text()
    assert write_corrections(found(still), table, overwrite=True) == 0
    (tmp_path / "own.csv").write_text("image,label\na.png,cat\n")
    with pytest.raises(StorageError, match="exists"):
        write_corrections(found(still), tmp_path / "own.csv")


def found_in(data: Path, *images: str) -> DoubtfulLabels:
    labels = tuple(Doubtful(image, Path(image).parent.name, "cat", 0.75) for image in images)
    return DoubtfulLabels(str(data), ("cat", "dog"), labels, 2, 0.9, (None,) * len(labels))


def filled(path: Path, *images: str, mark: str = ",", encoding: str = "utf-8") -> bytes:
    """Write a table with a correction of each image, and return it."""
    rows = [COLUMNS, *((image, Path(image).parent.name, "cat", "0.75", "fox") for image in images)]
    path.write_bytes("".join(f"{mark.join(row)}\r\n" for row in rows).encode(encoding))
    return path.read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_corrections_of_other_data_are_not_lost(photos: Path, tmp_path: Path, packed: bool) -> None:
    data = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", photos)) if packed else photos
    there = f"{data}:train/cat/0.png" if packed else "train/cat/0.png"
    table, new = tmp_path / "corrections.csv", found_in(data, there)
    for others in (["hat/1.png", "hat/2.png"], [there, "hat/1.png"]):
        before = filled(table, *others)
        with pytest.raises(StorageError, match=r"would lose .*hat/1\.png.*out.*overwrite"):
            write_corrections(new, table)
        assert table.read_bytes() == before
    filled(table, there)
    assert write_corrections(new, table) == 1
    filled(table, "hat/1.png")
    assert write_corrections(new, table, overwrite=True) == 0


def test_corrections_of_images_that_a_table_in_the_folder_names_elsewhere_stay(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "listed").mkdir()
    rows = [f"../photos/train/{name}/{number}.png,{name}" for name in ("cat", "dog") for number in range(6)]
    (tmp_path / "listed" / "labels.csv").write_text("\n".join(["image,label", *rows]))
    image = str(photos.relative_to(tmp_path) / "train" / "cat" / "0.png")
    filled(Path("corrections.csv"), image)
    assert write_corrections(found_in(Path("listed"), image), Path("corrections.csv")) == 1


@pytest.mark.parametrize(("mark", "encoding"), [(";", "utf-8-sig"), (";", "cp1252"), ("\t", "utf-16")])
def test_a_table_that_a_spreadsheet_saved_is_written_again(
    photos: Path, tmp_path: Path, mark: str, encoding: str
) -> None:
    table, image = tmp_path / "corrections.csv", "train/cat/0.png"
    filled(table, image, mark=mark, encoding=encoding)
    assert write_corrections(found_in(photos, image), table) == 1
    assert read_corrections(table) == [Correction(image, "cat", "fox")]
    table.write_bytes(mark.join(["image", "label", "correction"]).encode(encoding))
    with pytest.raises(StorageError, match="exists"):
        write_corrections(found_in(photos, image), table)


def test_without_a_correction_no_table_is_written(photos: Path, tmp_path: Path) -> None:
    result = write_table(photos, [], tmp_path / "new.csv")
    assert result.lines()[0].startswith("Nothing to correct")
    assert not (tmp_path / "new.csv").exists()


@every_case(("mark", "encoding"), [(",", "utf-8"), (";", "cp1252"), ("\t", "utf-16")])
def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path: Path, mark: str, encoding: str) -> None:
    row = {"image": "1.png", "label": "thé", "correction": "café"}
    lines = [mark.join(COLUMNS), mark.join(row.get(column, "0") for column in COLUMNS)]
    (tmp_path / "filled.csv").write_bytes("\r\n".join(lines).encode(encoding))
    assert read_corrections(tmp_path / "filled.csv") == [Correction("1.png", "thé", "café")]


def test_what_is_no_table_of_corrections_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("image,label\n1.png,cat\n")
    with pytest.raises(DataError, match="correction"):
        read_corrections(tmp_path / "other.csv")
    with pytest.raises(DataError, match="nowhere"):
        read_corrections(tmp_path / "nowhere.csv")

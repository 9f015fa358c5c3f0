"""Corrections of labels: read from a table, applied by moving the files, and put back.

PHOTOS/
  dog/, cat/, ...          the folders of the classes, between which files are moved
  .vitral-corrections.jsonl   a line for each table that was applied: what was moved, written before anything is
"""

import codecs
import csv
import io
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from vitral.classifier.bulk.parts import for_spreadsheets
from vitral.data.classes import Reading
from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL, some
from vitral.data.open import list_data
from vitral.data.text_table import DELIMITERS, read_text
from vitral.errors import DataError, did_you_mean, one_line
from vitral.files import storage_errors, write_file
from vitral.outputs import check_file, locked
from vitral.paths import is_folder, is_regular
from vitral.tasks.shown import Presentable

JOURNAL = ".vitral-corrections.jsonl"
COLUMNS = ("image", "label", "suggestion", "probability", "correction")
NEEDED = ("image", "label", "correction")
BETWEEN = re.compile(rb"[,;\t]")  # cells of a header
HEADER_BYTES = 1024  # at a file's beginning, in which the header of a table of corrections ends


@dataclass(frozen=True, repr=False)
class Corrected(Presentable):
    """What became of corrections.

    Attributes:
        out: The folder in which files were moved, or the table that was written.
        corrected: The images that have another class now; those that have their former one again, after undoing.
        before: The corrections that had been applied before.
        undone: Whether corrections were put back.
    """

    out: str
    corrected: int
    before: int
    undone: bool

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows."""
        what = "1 photo is" if self.corrected == 1 else f"{self.corrected:,} photos are"
        already = f"; {self.before:,} had been moved before" if self.before else ""
        if self.undone:
            return (f"{what} back where {'it' if self.corrected == 1 else 'they'} had been, in {self.out}.",)
        if not (self.corrected or self.before):
            return (
                "Nothing to correct: the column 'correction' is empty. Fill it in, or save the table from the page.",
            )
        return (f"{what} corrected in {self.out}{already}.",)


@dataclass(frozen=True)
class Correction:
    """A row of a table of corrections: an image by its path, its class, and the class that it is to have."""

    image: str
    label: str
    correction: str


def read_corrections(path: str | Path) -> list[Correction]:
    """Return the rows of a table that name a correction.

    Raises:
        DataError: It is no such table.
    """
    read = (Correction(*(_unquoted(row[name]) for name in NEEDED)) for row in table_rows(path))
    return [one for one in read if one.image and one.correction and one.correction != one.label]


def table_rows(path: str | Path) -> list[dict[str, str]]:
    """Return the rows of a table of corrections, the cells of `COLUMNS` by name, empty where there are none.

    Raises:
        DataError: It is no such table.
    """
    text, _ = read_text(Path(path))
    mark = max(DELIMITERS, key=text.partition("\n")[0].count)  # a spreadsheet may have saved it with its country's
    try:
        table = csv.DictReader(io.StringIO(text, newline=""), delimiter=mark)
        rows, there = list(table), table.fieldnames or ()
    except csv.Error as error:
        raise DataError(f"'{path}' cannot be read as a table of corrections ({one_line(error)}).") from error
    if missing := [name for name in NEEDED if name not in there]:
        raise DataError(f"'{path}' has no column '{missing[0]}'; the columns of corrections are {', '.join(COLUMNS)}.")
    return [{name: row.get(name) or "" for name in COLUMNS} for row in rows]


def corrections_table(rows: Iterable[Mapping[str, str]]) -> str:
    """Return a table of corrections as text, of cells by the names of `COLUMNS`."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def table_mark(path: str | Path) -> bytes:
    """Return what marks a file as a table of corrections: its own header, also if a spreadsheet saved the table again.

    Of a file that is none, or that is not there, it is the header that is written.
    """
    own = ",".join(COLUMNS).encode()
    try:
        with open(path, "rb") as file:
            start = file.read(HEADER_BYTES)
    except OSError:
        return own
    plain = start.removeprefix(codecs.BOM_UTF8).replace(b"\0", b"")  # which UTF-16 has in every letter of a header
    header = plain.removeprefix(codecs.BOM_UTF16_LE).removeprefix(codecs.BOM_UTF16_BE).partition(b"\n")[0]
    cells = [cell.strip(b'" \r') for cell in BETWEEN.split(header)]
    return start if cells[: len(COLUMNS)] == [name.encode() for name in COLUMNS] else own


def moved_images(folder: str | Path) -> set[str]:
    """Return the images of a folder that corrections have moved, by the absolute paths that they had before."""
    try:
        batches = _journal(Path(folder)) if is_folder(folder) else []
    except DataError:  # a damaged journal, which says so where files are to be moved
        return set()
    return {os.path.abspath(Path(folder, before)) for batch in batches for before, _ in batch.moves}


def _unquoted(cell: str) -> str:
    """Return a cell without the apostrophe before what a spreadsheet would take for a formula."""
    plain = cell.strip()
    return plain[1:] if plain.startswith("'") and for_spreadsheets(plain[1:]) == plain else plain


def write_table(
    data: str | Path,
    corrections: Sequence[Correction],
    path: Path,
    *,
    classes: Reading | None = None,
    overwrite: bool = False,
) -> Corrected:
    """Write the images with their corrected classes as a table, which `open_data` takes; no file is moved.

    Without a correction nothing is written.

    Raises:
        DataError: The images are no files, or a correction does not fit them.
        StorageError: The table cannot be written, or exists.
    """
    check_file(path, inputs=[data], overwrite=overwrite)
    listing = list_data(str(data), Opening(classes=classes))
    changes = _fitting(data, listing, corrections, {})
    if not changes:
        return Corrected(str(path), 0, 0, undone=False)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    splits = set(listing.entries) != {ALL}
    writer.writerow(("image", "label", "split") if splits else ("image", "label"))
    for split, entries in listing.entries.items():
        for entry in entries:
            image = listing.store.name(entry.store_index)
            if not is_regular(image):
                raise DataError(f"'{image}' is no file of its own, so no table can name it; unpack the images first.")
            where = Path(os.path.relpath(image, path.absolute().parent)).as_posix()
            where = where if where.startswith("..") else f"./{where}"  # which no spreadsheet takes for a formula
            label = changes[image].correction if image in changes else ", ".join(entry.classes)
            writer.writerow((where, label, split) if splits else (where, label))
    write_file(path, text.getvalue())
    return Corrected(str(path), len(changes), 0, undone=False)


def _fitting(
    data: str | Path, listing: Listing, corrections: Iterable[Correction], done: Mapping[str, str]
) -> dict[str, Correction]:
    """Return the corrections by the path of their image, without those that are done.

    Raises:
        DataError: One is of an image that is not there or has another class, or names a class that is not there.
    """
    there = {
        os.path.abspath(listing.store.name(entry.store_index)): (listing.store.name(entry.store_index), entry.classes)
        for entries in listing.entries.values()
        for entry in entries
    }
    names = {name for _, classes in there.values() for name in classes}
    fitting: dict[str, Correction] = {}
    for one in corrections:
        path = os.path.abspath(Path(data, one.image) if is_folder(data) else one.image)
        if path in done:
            continue
        if path not in there or there[path][1] != (one.label,):
            raise DataError(f"'{one.image}' is no image of the class '{one.label}' in '{data}'; nothing was changed.")
        if one.correction not in names:
            near = did_you_mean(one.correction, names)
            raise DataError(f"'{data}' has no class '{one.correction}', only {some(names)}.{near} Nothing was changed.")
        fitting[there[path][0]] = one
    return fitting


@dataclass(frozen=True)
class Moves:
    """The moves of one table, of paths below the folder of the data.

    Attributes:
        when: The time, seconds since 1970.
        undoing: Whether they are being put back.
    """

    when: float
    moves: tuple[tuple[str, str], ...]
    made: tuple[str, ...]
    undoing: bool = False


def apply_corrections(
    folder: str | Path, corrections: Sequence[Correction], *, classes: Reading | None = None
) -> Corrected:
    """Move images into the folders of their corrected classes; nothing is overwritten, and `undo_corrections` puts all back.

    What was interrupted goes on when it is repeated.

    Raises:
        DataError: The folder has no folders of classes, or a correction does not fit; nothing was changed.
        StorageError: A file cannot be moved.
    """
    root = _root(folder)
    with locked(root):
        batches = _journal(root)
        if batches and batches[-1].undoing:
            batches = _undo(root, batches)
        if batches:
            _move(root, batches[-1])  # what was interrupted; nothing where it is done
        done = {os.path.abspath(root / before): after for batch in batches[-1:] for before, after in batch.moves}
        listing = list_data(str(root), Opening(classes=classes))
        changes = _fitting(folder, listing, corrections, done)
        before = sum(os.path.abspath(root / one.image) in done for one in corrections)
        if changes:
            batch = _planned(root, changes)
            _write(root, [*batches, batch])
            _move(root, batch)
        return Corrected(str(folder), len(changes), before, undone=False)


def undo_corrections(folder: str | Path) -> Corrected:
    """Put back what the last table moved; repeated, what the one before it moved.

    Raises:
        DataError: Nothing was moved, or a moved image is no longer there; nothing was changed.
        StorageError: A file cannot be moved.
    """
    root = _root(folder)
    with locked(root):
        batches = _journal(root)
        if not batches:
            raise DataError(f"No corrections of '{folder}' are to be undone.")
        _undo(root, batches)
        return Corrected(str(folder), len(batches[-1].moves), 0, undone=True)


def _root(folder: str | Path) -> Path:
    if not is_folder(folder):
        raise DataError(f"'{folder}' is no folder, in which files could be moved; write a table instead.")
    return Path(folder)


def _journal(root: Path) -> list[Moves]:
    path = root / JOURNAL
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        return [_batch(json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"'{path}' is damaged ({one_line(error)}), so that nothing is moved.") from error


def _batch(values: dict[str, Any]) -> Moves:
    moves = tuple((str(before), str(after)) for before, after in values["moves"])
    for name in (*(name for move in moves for name in move), *values["made"]):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"'{name}' leads out of the folder")
    return Moves(float(values["when"]), moves, tuple(values["made"]), bool(values["undoing"]))


def _write(root: Path, batches: Sequence[Moves]) -> None:
    if batches:
        write_file(root / JOURNAL, "".join(f"{json.dumps(asdict(batch))}\n" for batch in batches))
    else:
        with storage_errors(root / JOURNAL):
            (root / JOURNAL).unlink(missing_ok=True)


def _planned(root: Path, changes: Mapping[str, Correction]) -> Moves:
    """Return where each image goes: to its own name, or with a number where that is taken, in the folder of the other class."""
    moves: list[tuple[str, str]] = []
    made: dict[str, None] = {}
    for image, change in changes.items():
        if Path(image).is_symlink():
            raise DataError(f"'{image}' is a link, which is not moved; write a table instead. Nothing was changed.")
        before = PurePosixPath(Path(image).relative_to(root).as_posix())
        folder = _of_class(before.parent, change)
        above = [folder, *folder.parents][:-1]
        made |= dict.fromkeys(str(path) for path in reversed(above) if not (root / path).exists())
        taken = {after for _, after in moves}
        names = (f"{before.stem}{'' if number == 1 else f'-{number}'}{before.suffix}" for number in range(1, 1_000_000))
        free = (str(folder / name) for name in names if not os.path.lexists(root / folder / name))
        moves.append((str(before), next(name for name in free if name not in taken)))
    return Moves(time.time(), tuple(moves), tuple(made))


def _of_class(folder: PurePosixPath, change: Correction) -> PurePosixPath:
    """Return a folder with the innermost part that is the class replaced by the other class."""
    parts, label = folder.parts, PurePosixPath(change.label).parts
    for start in range(len(parts) - len(label), -1, -1):
        if parts[start : start + len(label)] == label:
            return PurePosixPath(*parts[:start], *PurePosixPath(change.correction).parts, *parts[start + len(label) :])
    raise DataError(
        f"'{change.image}' lies in no folder called '{change.label}'; write a table instead. Nothing was changed."
    )


def _move(root: Path, batch: Moves) -> None:
    """Carry out what is left of a batch."""
    for name in batch.made:
        with storage_errors(root / name):
            (root / name).mkdir(exist_ok=True)
    for before, after in batch.moves:
        if os.path.lexists(root / before) and not os.path.lexists(root / after):
            with storage_errors(root / after):
                os.rename(root / before, root / after)


def _undo(root: Path, batches: Sequence[Moves]) -> list[Moves]:
    """Put back the last batch, and return the others."""
    *others, last = batches
    for before, after in last.moves:
        if os.path.lexists(root / before) == os.path.lexists(root / after):
            what = "is in both its places" if os.path.lexists(root / after) else "is no longer there"
            raise DataError(f"'{root / after}' {what}, so that nothing is put back.")
    _write(root, [*others, replace(last, undoing=True)])
    for before, after in reversed(last.moves):
        if os.path.lexists(root / after):
            with storage_errors(root / before):
                os.rename(root / after, root / before)
    for name in reversed(last.made):
        path = root / name
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    _write(root, others)
    return others

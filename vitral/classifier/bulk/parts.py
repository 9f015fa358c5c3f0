"""Rows of predictions as files, JSON lines, CSV and Parquet with the same values, and the parts of an unfinished file.

Each part is whole on disk or not there; a killed job goes on after them.
"""

import contextlib
import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from vitral.advice import argument, printable, printable_json
from vitral.classifier.prediction import Prediction
from vitral.errors import StorageError, TrainingError, did_you_mean, extra_module
from vitral.files import OUR_PREFIX, sha256, storage_errors, sweep, text_of, write_file
from vitral.outputs import LOCK_FILE, locked
from vitral.paths import is_regular

PARQUET = ".parquet"
SUFFIXES = (PARQUET, ".csv", ".jsonl")
ROWS_AT_ONCE = 10_000  # in memory while a file is written

Row = dict[str, Any]
Columns = dict[str, str]  # pyarrow's names of types by column
IMAGES = 1024  # in a part: what is lost at most
JOB = "job.json"
WRITTEN = "written"  # its entry about the whole file
PART = re.compile(r"part-(\d{9})\.jsonl")
# The beginnings of formulas, in their wide forms, too, which spreadsheets of East Asia take for the same.
FORMULA = re.compile("[=+@\uff1d\uff0b\uff0d\uff20-]")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


def check_suffix(path: Path) -> None:
    """Refuse a file of an unknown form.

    Raises:
        StorageError: the name ends in none of `SUFFIXES`.
        PackageError: what writes it is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        near = did_you_mean(path.suffix.lower(), SUFFIXES)
        raise StorageError(f"Predictions are written to a file that ends in {', '.join(SUFFIXES)}, not '{path}'.{near}")
    if path.suffix.lower() == PARQUET:
        _arrow()


def _arrow(name: str = "pyarrow") -> Any:  # noqa: ANN401  # a module
    return extra_module(name, "tables", "A file of predictions in Parquet")


def row_of(prediction: Prediction) -> Row:
    """Return a prediction as one flat row."""
    row: Row = {"source": _text(prediction.source)}
    for number, (label, probability) in enumerate(prediction.top, 1):
        row |= {_column("label", number): _text(label), _column("probability", number): probability}
    if prediction.sure is not None:
        row["sure"] = prediction.sure
    if prediction.novelty is not None:
        row |= {"known": prediction.known, "novelty": prediction.novelty}
    return row


def error_row(name: str, error: str) -> Row:
    """Return the row of an image that cannot be read."""
    return {"source": _text(name), "error": _text(error)}


def _column(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _text(text: str) -> str:
    """Return text that any file can hold: what is not UTF-8 of a file's name is written as an escape."""
    return text.encode(errors="backslashreplace").decode()


def columns(top: int, *, sure: bool, known: bool = False) -> Columns:
    """Return the columns and their types: source, the most probable classes with their probabilities, and the error."""
    named = {"source": "string"}
    for number in range(1, top + 1):
        named |= {_column("label", number): "string", _column("probability", number): "float"}
    novelty = {"known": "bool", "novelty": "float"} if known else {}
    return {**named, **({"sure": "bool"} if sure else {}), **novelty, "error": "string"}


def write_rows(path: Path, suffix: str, rows: Iterable[Row], schema: Columns, facts: dict[str, Any]) -> int:
    """Write rows to a file, a few at a time in memory; return how many texts were quoted, see `for_spreadsheets`.

    The suffix is one of `SUFFIXES` and tells the form, because the file's own name may be a temporary one. A Parquet file keeps
    the facts, which say what computed the rows, among its metadata.
    """
    if suffix == PARQUET:
        pa, waiting = _arrow(), iter(rows)
        kinds = [(name, pa.type_for_alias(kind)) for name, kind in schema.items()]
        described = pa.schema(kinds, metadata={"vitral": json.dumps(facts)})
        with _arrow("pyarrow.parquet").ParquetWriter(path, described) as table:
            while some := list(islice(waiting, ROWS_AT_ONCE)):
                table.write_table(pa.Table.from_pylist(some, schema=described))
        return 0
    with open(path, "w", newline="" if suffix == ".csv" else None, encoding="utf-8") as file:
        if suffix == ".csv":
            return _write_csv(file, rows, schema)
        file.writelines(line_of({name: row.get(name) for name in schema}) for row in rows)
    return 0


def _write_csv(file: TextIO, rows: Iterable[Row], schema: Columns) -> int:
    writer, quoted = csv.DictWriter(file, list(schema), restval=""), 0
    writer.writeheader()
    for row in rows:
        safe = {name: for_spreadsheets(value) if isinstance(value, str) else value for name, value in row.items()}
        quoted += sum(isinstance(value, str) and value[:1] == "'" != row[name][:1] for name, value in safe.items())
        writer.writerow(safe)
    return quoted


def for_spreadsheets(text: str) -> str:
    r"""Return text for a cell of a CSV file, of which a spreadsheet makes no formula and a terminal no command.

    A name may be `=cmd|…`, which Excel and LibreOffice run. An apostrophe before it keeps it text, as the OWASP foundation
    advises ("CSV Injection"); control characters are written as escapes, such as \x1b.
    """
    shown = printable(text)
    return f"'{shown}" if FORMULA.match(shown) and not NUMBER.fullmatch(shown) else shown


def line_of(row: Row) -> str:
    """Return a row as a line of JSON."""
    return f"{printable_json(json.dumps(row, ensure_ascii=False))}\n"


@dataclass(frozen=True)
class Job:
    """What is predicted, by what; parts of one job alone are put together.

    Attributes:
        names: a hash of their names, in order, of where they are, and of the sizes and times of their files.
        classifier: a hash of what gives the answers.
    """

    images: int
    names: str
    classifier: str
    computed_by: str
    top: int


@dataclass(frozen=True)
class Counts:
    """What is to be said of a file's rows.

    Attributes:
        errors: images that cannot be read.
        quoted: texts that a spreadsheet would take for formulas, and that begin with an apostrophe in its file.
    """

    errors: int
    quoted: int


MEANT = {
    "images": "other images",
    "names": "other images, or with these before they changed",
    "classifier": "another classifier",
    "computed_by": "another engine or precision ({})",
    "top": "another number of classes ({})",
}


class Parts:
    """The folder of parts next to `out`, the file that they become."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.with_name(f"{out.name}.parts")

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder for the block, and remove it afterwards if it is empty.

        Raises:
            StorageError: another job is working in it, or nothing can be written there.
        """
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.folder):
                yield
        except TrainingError as error:
            raise StorageError(str(error)) from error
        finally:
            # Only once the lock is gone: with the folder, it would take that of a job which has begun since.
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def begin(self, job: Job, *, anew: bool) -> None:
        """Take up the folder, which is owned; the parts of another job are removed if it begins anew, and refused otherwise.

        Raises:
            StorageError: the folder holds the parts of another job, or something else; or it cannot be written.
        """
        before = self._job()
        if before is not None and {name: before.get(name) for name in vars(job)} == vars(job):
            return
        if before is not None:
            if not anew:
                name = next(name for name, value in vars(job).items() if before.get(name) != value)
                other = MEANT[name].format(before.get(name))
                raise StorageError(
                    f"'{self.folder}' holds the first part of a job with {other}; name those again, choose another file, or "
                    f"begin anew with {argument('overwrite', True)}."
                )
            self.clear()
        write_file(self.folder / JOB, json.dumps(vars(job), indent=1))

    def _job(self) -> dict[str, Any] | None:
        if not self.folder.is_dir():
            return None
        others = [path.name for path in self.folder.iterdir() if not _is_ours(path.name)]
        if others:
            raise StorageError(f"'{self.folder}' holds something else ('{others[0]}'); choose another file.")
        try:
            job = json.loads(text_of(self.folder / JOB))
        except (OSError, ValueError):
            return {} if self.done() else None
        return job if isinstance(job, dict) else {}

    def seal(self, job: Job, file: Path, counts: Counts) -> None:
        """Note the content of the whole file, just before it takes its name: after a kill it is known by that."""
        about = {"sha256": sha256(file), **vars(counts)}
        write_file(self.folder / JOB, json.dumps({**vars(job), WRITTEN: about}, indent=1))

    def written(self) -> Counts | None:
        """Return the counts of the job's file if it has its name already; None if it has not."""
        about = (self._job() or {}).get(WRITTEN)
        if not isinstance(about, dict) or not is_regular(self.out) or about.pop("sha256", "") != sha256(self.out):
            return None
        return Counts(**about) if about.keys() == vars(Counts(0, 0)).keys() else None

    def tidy(self) -> None:
        """Remove the folder where a job was killed after all else: when nothing is in it but a lock that nobody holds."""
        with contextlib.suppress(OSError, StorageError):
            if self.folder.is_dir() and all(path.name.startswith(OUR_PREFIX) for path in self.folder.iterdir()):
                with self.owned():
                    sweep(self.folder)

    def done(self) -> set[int]:
        """Return the numbers of the parts that are there."""
        with storage_errors(self.folder):
            matches = (PART.fullmatch(path.name) for path in self.folder.iterdir())
            return {int(match[1]) for match in matches if match}

    def write(self, number: int, rows: list[Row]) -> None:
        """Write one part, whole or not at all.

        Raises:
            StorageError: it could not be written.
        """
        write_file(self._path(number), "".join(map(line_of, rows)))

    def rows(self, count: int) -> Iterator[Row]:
        """Give the rows of all parts, so many, in order.

        Raises:
            StorageError: another number of parts is there.
        """
        if self.done() != set(range(count)):
            raise self.incomplete()
        for number in sorted(self.done()):
            with open(self._path(number), encoding="utf-8") as file:
                yield from map(json.loads, file)

    def incomplete(self) -> StorageError:
        """Return the error of parts that do not make up the file."""
        return StorageError(
            f"'{self.folder}' does not hold all rows of '{self.out}', which was not written; remove it and begin again."
        )

    def clear(self) -> None:
        """Remove the parts and what describes them; the folder and its lock stay."""
        with storage_errors(self.folder):
            for path in sorted(self.folder.iterdir(), key=lambda path: path.name == JOB):  # that last
                if path.name != LOCK_FILE:
                    path.unlink()

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:09}.jsonl"


def _is_ours(name: str) -> bool:
    return name == JOB or name.startswith(OUR_PREFIX) or PART.fullmatch(name) is not None

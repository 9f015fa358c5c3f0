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
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vitral.advice import argument
from vitral.classifier.prediction import Prediction
from vitral.errors import StorageError, TrainingError, did_you_mean
from vitral.files import OUR_PREFIX, storage_errors, text_of, write_file
from vitral.outputs import LOCK_FILE, locked

SUFFIXES = (".parquet", ".csv", ".jsonl")
ROWS_AT_ONCE = 10_000  # in memory while a file is written

Row = dict[str, Any]
Columns = dict[str, Any]  # pyarrow's types by name
IMAGES = 1024  # in a part: what is lost at most
JOB = "job.json"
PART = re.compile(r"part-(\d{9})\.jsonl")


def check_suffix(path: Path) -> None:
    """Refuse a file of an unknown form.

    Raises:
        StorageError: the name ends in none of `SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        near = did_you_mean(path.suffix.lower(), SUFFIXES)
        raise StorageError(f"Predictions are written to a file that ends in {', '.join(SUFFIXES)}, not '{path}'.{near}")


def row_of(prediction: Prediction) -> Row:
    """Return a prediction as one flat row."""
    row: Row = {"source": _text(prediction.source)}
    for number, (label, probability) in enumerate(prediction.top, 1):
        row |= {_column("label", number): _text(label), _column("probability", number): probability}
    if prediction.sure is not None:
        row["sure"] = prediction.sure
    return row


def error_row(name: str, error: str) -> Row:
    """Return the row of an image that cannot be read."""
    return {"source": _text(name), "error": _text(error)}


def _column(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _text(text: str) -> str:
    """Return text that any file can hold: what is not UTF-8 of a file's name is written as an escape."""
    return text.encode(errors="backslashreplace").decode()


def columns(top: int, *, sure: bool) -> Columns:
    """Return the columns and their types: source, the most probable classes with their probabilities, and the error.

    Args:
        top: classes that are named.
        sure: whether the classifier tells what it is not sure of.
    """
    named = {"source": pa.string()}
    for number in range(1, top + 1):
        named |= {_column("label", number): pa.string(), _column("probability", number): pa.float32()}
    return {**named, **({"sure": pa.bool_()} if sure else {}), "error": pa.string()}


def write_rows(path: Path, suffix: str, rows: Iterable[Row], schema: Columns, facts: dict[str, Any]) -> None:
    """Write rows to a file, a few at a time in memory.

    Args:
        path: the file.
        suffix: one of `SUFFIXES`, which tells the form: the file's own name may be a temporary one.
        rows: values by column; a missing one is empty.
        schema: the columns.
        facts: what computed them, which a Parquet file keeps among its metadata.
    """
    if suffix == ".parquet":
        described, waiting = pa.schema(list(schema.items()), metadata={"vitral": json.dumps(facts)}), iter(rows)
        with pq.ParquetWriter(path, described) as table:
            while some := list(islice(waiting, ROWS_AT_ONCE)):
                table.write_table(pa.Table.from_pylist(some, schema=described))
        return
    with open(path, "w", newline="" if suffix == ".csv" else None, encoding="utf-8") as file:
        if suffix == ".csv":
            writer = csv.DictWriter(file, list(schema), restval="")
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(line_of({name: row.get(name) for name in schema}) for row in rows)


def line_of(row: Row) -> str:
    """Return a row as a line of JSON."""
    return f"{json.dumps(row, ensure_ascii=False)}\n"


@dataclass(frozen=True)
class Job:
    """What is predicted, by what; parts of one job alone are put together.

    Attributes:
        images: how many there are.
        names: a hash of their names, in order, of where they are, and of the sizes and times of their files.
        classifier: a hash of what gives the answers.
        computed_by: the runtime and the precision.
        top: classes that are named.
    """

    images: int
    names: str
    classifier: str
    computed_by: str
    top: int


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
        """Take up the folder, which is owned.

        Args:
            job: what is to be computed.
            anew: remove the parts of another job, instead of refusing them.

        Raises:
            StorageError: the folder holds the parts of another job, or something else; or it cannot be written.
        """
        before = self._job()
        if before is not None and before != vars(job):
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
        """Give the rows of all parts in order.

        Args:
            count: how many parts there are to be.

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
            for path in self.folder.iterdir():
                if path.name != LOCK_FILE:
                    path.unlink()

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:09}.jsonl"


def _is_ours(name: str) -> bool:
    return name == JOB or name.startswith(OUR_PREFIX) or PART.fullmatch(name) is not None

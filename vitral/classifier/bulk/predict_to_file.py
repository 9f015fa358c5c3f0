"""Predictions of any number of images as a file: a table with a row an image."""

import contextlib
import hashlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from vitral import distributed, torchrun
from vitral.advice import argument, counted, none_readable
from vitral.classifier.bulk.ahead import BATCH_SIZE, Ready, answer, batches, prepare_ahead
from vitral.classifier.bulk.parts import (
    IMAGES,
    Counts,
    Job,
    Parts,
    Row,
    check_suffix,
    columns,
    error_row,
    row_of,
    write_rows,
)
from vitral.classifier.classifier import Classifier, fingerprint
from vitral.classifier.load import as_classifier
from vitral.data.image_files import LazyImage
from vitral.data.image_stream import check_named, stream_unlabelled
from vitral.errors import ImageError, ModelError
from vitral.events import Listener, Message, Progress, ignore, show
from vitral.files import new_file
from vitral.machine import keep_freed_memory
from vitral.outputs import check_file
from vitral.tasks.unlabelled import check_knows_classes


@dataclass(frozen=True)
class WrittenPredictions:
    """What was written, and where the time went.

    Attributes:
        images: its rows.
        errors: those of images that cannot be read.
        before: images whose predictions an earlier, interrupted job had left.
        seconds: that this job took.
        images_per_second: The pace over the images of this job; None where there were none.
        shares: Shares of that time: "reading" and "decoding", as far as the network waited for it, "computing", the "rest".
        quoted: texts of a .csv file that a spreadsheet would take for formulas, and that begin with an apostrophe there.
    """

    out: str
    images: int
    errors: int
    computed_by: str
    before: int
    seconds: float
    images_per_second: float | None
    shares: dict[str, float] = field(default_factory=dict)
    quoted: int = 0

    def lines(self) -> tuple[str, ...]:
        """Return it for people."""
        bad = f", {self.errors:,} of them cannot be read (column 'error')" if self.errors else ""
        lines = [f"{self.out}: {counted(self.images, 'image')}{bad}; computed by {self.computed_by}."]
        if self.quoted:
            what = "name that a spreadsheet would take for a formula begins"
            several = "names that a spreadsheet would take for formulas begin"
            lines.append(f"{counted(self.quoted, what, several)} with an apostrophe there.")
        if self.images_per_second is not None:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
            lines.append(f"{self.images_per_second:.1f} images/s over {self.seconds:.0f} s; of the time: {shares}.")
        return tuple(lines)


@dataclass
class _Clock:
    """Seconds by what they went into; reading and decoding are those of all threads together."""

    computing: float = 0.0
    waiting: float = 0.0
    reading: float = 0.0
    decoding: float = 0.0

    def shares(self, seconds: float) -> dict[str, float]:
        """Return the shares of the whole time; the network's waiting is laid to what its images took."""
        prepared = self.reading + self.decoding
        reading = self.waiting * self.reading / prepared if prepared else 0.0
        shares = {"reading": reading, "decoding": self.waiting - reading, "computing": self.computing}
        return {name: value / seconds for name, value in shares.items()} | {
            "rest": max(0.0, seconds - self.waiting - self.computing) / seconds
        }


def predict_to_file(
    classifier: Classifier | str | Path,
    images: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    top: int = 3,
    batch_size: int = BATCH_SIZE,
    workers: int | None = None,
    overwrite: bool = False,
    listener: Listener = show,
) -> WrittenPredictions:
    """Write a row for each image: source, label, probability, label_2, ..., and error where it cannot be read.

    Any number of images: only some are in memory at a time. Parts of the file are kept in a folder beside it until all are
    there; after an interruption the same call goes on from them. The processes of a job share the images out.

    Args:
        classifier: The classifier, which predicts in the precision that it was loaded for, or whatever `load` takes.
        images: what `Classifier.predict` takes by name, one or several.
        out: the file, which ends in .parquet, .csv or .jsonl.
        top: how many classes to name.
        batch_size: images computed at once.
        workers: threads that read and decode; None for one a core.
        overwrite: replace the file, and the parts of another job.
        listener: receives progress and what is gone on from.

    Raises:
        StorageError: the file or its parts cannot be written, are of something else, or another job is writing them.
        ImageError: there are no images, or none of them can be read; a name is neither a file nor a folder nor data.
        WeightsError: there is no such classifier, or it cannot be read.
        DataError: an archive, a table or a dataset cannot be read.
        ModelError: the network gives no number, as damaged weights do, or learned without labels; `top` or `batch_size` is
            below 1.
    """
    started, out = time.perf_counter(), Path(out)
    names = [str(name) for name in ([images] if isinstance(images, str | Path) else images)]
    if min(top, batch_size) < 1:
        raise ModelError("At least one class is named and one image computed; set top and batch_size to 1 or more.")
    check = partial(check_out, out, names, overwrite=overwrite)
    check()
    classifier = as_classifier(classifier, listener)
    check_knows_classes(classifier.task)
    if classifier.task.dense:
        raise ModelError(
            f"Photos of this classifier {classifier.task.labelled}, for which a table has no room; a folder for "
            f"{argument('out')}, such as 'found', has maps, counts and what to look at."
        )
    keep_freed_memory()
    parts, clock, counts = Parts(out), _Clock(), Counts(0, 0)
    with parts.owned() if torchrun.is_main() else contextlib.nullcontext():
        check()  # a job that has ended since may have written it
        job = _job(classifier, names, min(top, len(classifier.class_names)), listener)
        if torchrun.is_main():
            parts.begin(job, anew=overwrite)
        distributed.barrier()
        written = torchrun.is_main() and parts.written() is not None
        done = distributed.broadcast(set(range(-(-job.images // IMAGES))) if written else parts.done())
        before = sum(min(IMAGES, job.images - number * IMAGES) for number in done)
        if before:
            listener(Message(f"Goes on after {before:,} of {counted(job.images, 'image')}, from '{parts.folder}'."))
        threads, pending = workers or os.cpu_count() or 1, _pending(names, done)
        ready = prepare_ahead(pending, classifier.preprocessing, workers=threads, batch_size=batch_size)
        _compute(classifier, _timed(ready, clock), parts, job, batch_size, before, clock, listener)
        distributed.barrier()
        if torchrun.is_main():
            counts = _assemble(parts, classifier, job, check)
    seconds, count = time.perf_counter() - started, job.images - before
    pace, shares = count / seconds if count else None, clock.shares(seconds)
    return WrittenPredictions(
        str(out), job.images, counts.errors, job.computed_by, before, seconds, pace, shares, counts.quoted
    )


def check_out(out: Path, images: Iterable[str], *, overwrite: bool) -> None:
    """Check that predictions may be written to a file, before anything is computed.

    Raises:
        StorageError: they may not; what is there is untouched.
        ImageError: a name is neither a file nor a folder nor data.
    """
    check_suffix(out)
    images = list(images)
    for name in images:
        check_named(name)
    parts = Parts(out)
    if torchrun.is_main():
        parts.tidy()
    # A job that was killed after its file took its name is ended by the same command.
    check_file(out, inputs=images, overwrite=overwrite or parts.written() is not None)


def _all(names: Iterable[str], listener: Listener) -> Iterator[LazyImage]:
    return itertools.chain.from_iterable(stream_unlabelled(name, listener) for name in names)


def _job(classifier: Classifier, names: list[str], top: int, listener: Listener) -> Job:
    """List the images once, to know how many there are and whether they are those of an earlier job."""
    count, digest = 0, hashlib.sha256()
    for name in names:
        digest.update(_identity(name))
    for image in _all(names, listener):
        digest.update(_identity(image.name))
        count += 1
    if not count:
        raise ImageError("No images are named; name files, folders or a dataset.")
    return Job(count, digest.hexdigest(), fingerprint(classifier), classifier.predictor.computed_by, top)


def _identity(name: str) -> bytes:
    """Return a name and, of a path, where it is, its size and its time, by which a changed file is told."""
    where = ""
    with contextlib.suppress(OSError, ValueError):  # most data are no paths
        status = os.stat(name)
        where = os.path.abspath(name)
        if stat.S_ISREG(status.st_mode):
            where += f" {status.st_size} {status.st_mtime_ns}"
    return f"{name}\0{where}\0".encode(errors="surrogateescape")


def _pending(names: list[str], done: set[int]) -> Iterator[tuple[int, LazyImage]]:
    """Give the images of this process's parts that are not there yet, with their positions among all."""
    for index, image in enumerate(_all(names, ignore)):  # `_job` has said what there is to say
        part = index // IMAGES
        if part not in done and part % distributed.world() == distributed.rank():
            yield index, image


def _timed(images: Iterator[Ready], clock: _Clock) -> Iterator[Ready]:
    while True:
        started = time.perf_counter()
        image = next(images, None)
        clock.waiting += time.perf_counter() - started
        if image is None:
            return
        clock.reading += image.reading
        clock.decoding += image.decoding
        yield image


def _compute(
    classifier: Classifier,
    images: Iterator[Ready],
    parts: Parts,
    job: Job,
    batch_size: int,
    before: int,
    clock: _Clock,
    listener: Listener,
) -> None:
    """Compute and write the parts one after another."""
    started, count = time.perf_counter(), 0
    for number, of_part in itertools.groupby(images, key=lambda image: image.index // IMAGES):
        rows: dict[int, Row] = {}
        for batch in batches(of_part, batch_size):
            rows |= {image.index: error_row(image.name, image.error) for image in batch if image.pixels is None}
            start = time.perf_counter()
            answers = answer(classifier, batch, top=job.top)
            rows |= {index: row_of(answered.prediction) for index, answered in answers.items()}
            clock.computing += time.perf_counter() - start
            count += len(batch)
            pace = {"images_per_second": count / (time.perf_counter() - started)}
            listener(Progress("predict", min(before + count * distributed.world(), job.images), job.images, pace))
        parts.write(number, [rows[index] for index in sorted(rows)])


def _assemble(parts: Parts, classifier: Classifier, job: Job, check: Callable[[], None]) -> Counts:
    """Put the parts together, remove them, and return what is to be said of the rows.

    `check` is asked just before the file takes its name, and raises StorageError where it may not. After an error what stood
    there is untouched; the parts are removed only where no image could be read.
    """
    if (written := parts.written()) is not None:
        parts.clear()
        return written
    count = 0
    bad: list[str] = []

    def numbered() -> Iterator[Row]:
        nonlocal count
        for row in parts.rows(-(-job.images // IMAGES)):
            count += 1
            if "error" in row:
                bad.append(row["error"])
            yield row

    sure = classifier.calibration is not None and classifier.calibration.threshold is not None
    out = parts.out
    suffix = out.suffix.lower()
    with new_file(out) as partial:
        quoted = write_rows(
            partial, suffix, numbered(), columns(job.top, sure=sure, known=classifier.tells_novelty), vars(job)
        )
        if count != job.images:
            raise parts.incomplete()
        if len(bad) == count:
            parts.clear()
            raise ImageError(f"{none_readable(count)}, so that nothing was written; the first: {bad[0]}")
        check()
        counts = Counts(len(bad), quoted)
        parts.seal(job, partial, counts)
    parts.clear()
    return counts

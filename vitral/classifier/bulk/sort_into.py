"""Photos copied into a folder per class, by what a classifier says of them; the originals stay as they are.

OUT/
  dog/, cat/, ...      copies of the photos of each class
  not sure/            photos whose probability is below the classifier's threshold, where it has one
  none of these/       photos unlike those of its classes, where it can tell
  sorted.csv           a row a photo: where it was, where its copy is, the class and its probability
"""

import csv
import filecmp
import io
import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vitral.advice import argument, counted, function
from vitral.classifier.bulk.ahead import BATCH_SIZE, answer, batches, prepare_ahead
from vitral.classifier.bulk.parts import for_spreadsheets
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.classifier.prediction import Prediction
from vitral.data.image_files import LazyImage, of_file, plain_images
from vitral.errors import ImageError, ModelError, StorageError
from vitral.events import Listener, Progress, show, skipping
from vitral.files import new_file, storage_errors, sweep
from vitral.outputs import check_location, locked
from vitral.paths import is_regular, look_at, nearest_path
from vitral.tasks.shown import Presentable, Table
from vitral.tasks.unlabelled import check_classifies

RECORD = "sorted.csv"
COLUMNS = ("photo", "copy", "label", "probability")
NOT_SURE = "not sure"
NONE_OF_THESE = "none of these"
# What a name of a folder may not hold, or be, on one system or another.
UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
LONGEST = 100  # characters of a folder's name


@dataclass(frozen=True, repr=False)
class SortedPhotos(Presentable):
    """What became of photos that were sorted.

    Attributes:
        counts: The photos in each folder, those of an earlier, interrupted command among them.
        before: The photos that an earlier command had sorted.
        unread: The photos that cannot be read, which have no copy.
        decided: Whether the classifier has a threshold, below which it is not sure.
    """

    out: str
    counts: dict[str, int]
    before: int
    unread: tuple[str, ...]
    decided: bool

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        total = sum(self.counts.values())
        lines = [f"{counted(total, 'photo')} sorted into {self.out}; the originals are unchanged."]
        if self.before:
            lines.append(f"{self.before:,} of them were sorted before.")
        if self.unread:
            have = "has" if len(self.unread) == 1 else "have"
            lines.append(f"{counted(len(self.unread), 'photo')} cannot be read, and {have} no copy.")
        if not self.decided:
            lines.append(
                "Photos are in a class however unsure the answer; to have these apart, first set how often an answer shall be "
                f"right: {function('calibrate')} with {argument('accuracy', 0.95)} and {argument('write', True)}."
            )
        return tuple(lines)

    def tables(self) -> tuple[Table, ...]:
        """Return the count per folder."""
        rows = tuple((name, f"{count:,}") for name, count in self.counts.items())
        return (Table("Photos in each folder", ("Folder", "Photos"), rows),)


def sort_into(
    classifier: Classifier | str | Path,
    images: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    listener: Listener = show,
) -> SortedPhotos:
    """Copy photos into a folder per class, unsure ones apart; nothing is overwritten, and the originals are unchanged.

    A copy whose name is taken gets a number. A command that was killed goes on when it is repeated.

    Raises:
        StorageError: The folder cannot be written, holds something else, or holds the photos or lies among them.
        ImageError: A name is no image file and no folder of such, or none of the images can be read.
        ModelError: An image has several classes, so that it belongs in no single folder.
    """
    names = [str(name) for name in ([images] if isinstance(images, str | Path) else images)]
    check_sorted(out, names)
    listed = list({_key(image.name): image for name in names for image in _plain(name, listener)}.values())
    classifier = as_classifier(classifier, listener)
    check_classifies(classifier.task, "A folder for each class")
    if not classifier.task.exclusive:
        raise ModelError(
            f"Images of this classifier {classifier.task.labelled}, so they cannot be sorted into a folder each; "
            f"{argument('out')} writes a table."
        )
    target = Path(out)
    with storage_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    with locked(target):
        return _sorted(classifier, listed, _Copies(target, classifier.class_names), listener)


def check_sorted(out: str | Path, images: Iterable[str]) -> None:
    """Check that photos may be sorted into a folder, before anything is computed.

    Raises:
        StorageError: They may not; what is there is untouched.
    """
    target = Path(out)
    check_location(target / RECORD)
    resolved = target.resolve()
    for origin in (Path(name).resolve() for name in images):
        if resolved.is_relative_to(origin) or origin.is_relative_to(resolved):
            raise StorageError(f"'{target}' holds the photos or lies among them; choose a folder beside them.")
    if target.exists() and not is_regular(target / RECORD):
        others = sorted(entry.name for entry in target.iterdir() if not entry.name.startswith("."))
        if others:
            raise StorageError(f"'{target}' holds something else ('{others[0]}'); choose a new folder.")


def _plain(name: str, listener: Listener) -> list[LazyImage]:
    if (found := plain_images(name, listener)) is not None:
        return found
    if is_regular(name):
        return [of_file(Path(name), name)]  # whose content tells what it is
    near = "" if look_at(name) else nearest_path(name)
    raise ImageError(f"'{name}' is no image file and no folder of such, of which alone copies can be made.{near}")


class _Copies:
    """The copies in a folder, and the record of them."""

    def __init__(self, out: Path, class_names: Iterable[str]) -> None:
        self.out, self.path = out, out / RECORD
        self.folders = folder_names(class_names)
        self.copies: dict[str, str] = {}  # by photo
        if self.path.exists():
            self._read()
        else:
            self._append(COLUMNS)

    def _read(self) -> None:
        with open(self.path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # the end of a row that was being written
            os.truncate(self.path, len(whole.encode("utf-8", errors="surrogateescape")))
        rows = list(csv.reader(io.StringIO(whole, newline="")))
        if not rows or tuple(rows[0]) != COLUMNS:
            raise StorageError(f"'{self.path}' was not written by this command; choose a new folder.")
        self.copies = {row[0]: row[1] for row in rows[1:] if len(row) == len(COLUMNS) and (self.out / row[1]).exists()}

    def _append(self, row: Iterable[object]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerow(row)
        with open(self.path, "a", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text.getvalue())

    def holds(self, photo: str) -> bool:
        """Tell whether a photo was sorted before."""
        return _key(photo) in self.copies

    def add(self, prediction: Prediction) -> None:
        """Copy a photo into its folder, and record that."""
        folder = NONE_OF_THESE if prediction.known is False else NOT_SURE if prediction.sure is False else None
        name = self.folders[prediction.label] if folder is None else folder
        source = Path(prediction.source)
        copy = f"{name}/{self._free(self.out / name, source)}"
        if not (self.out / copy).exists():
            with new_file(self.out / copy) as partial:
                shutil.copy2(source, partial)
        self.copies[_key(prediction.source)] = copy
        label = for_spreadsheets(prediction.label)
        self._append((_key(prediction.source), copy, label, f"{prediction.probability:.4f}"))

    def _free(self, folder: Path, source: Path) -> str:
        """Return the name of a photo's copy: its own, or with a number where that is another's.

        A copy that is there without being recorded was made just before a command was killed.
        """
        for number in itertools.count(1):
            name = source.name if number == 1 else f"{source.stem}-{number}{source.suffix}"
            path = folder / name
            if not os.path.lexists(path):
                return name
            recorded = f"{folder.name}/{name}" in self.copies.values()
            if not recorded and is_regular(path) and filecmp.cmp(source, path, shallow=False):
                return name
        raise AssertionError

    def counts(self) -> dict[str, int]:
        """Return the copies in each folder, in the order of the classes, those of unsure ones last."""
        found = Counter(copy.partition("/")[0] for copy in self.copies.values())
        order = (*self.folders.values(), NOT_SURE, NONE_OF_THESE)
        return {name: found[name] for name in dict.fromkeys((*order, *found)) if found[name]}


def _key(photo: str) -> str:
    return for_spreadsheets(os.path.abspath(photo))


def folder_names(class_names: Iterable[str]) -> dict[str, str]:
    """Return a name of a folder for each class, all different on any system, and none that leads elsewhere."""
    taken = {NOT_SURE, NONE_OF_THESE, RECORD}
    names: dict[str, str] = {}
    for label in class_names:
        plain = UNSAFE.sub("_", label).lstrip("=+-@ .")[:LONGEST].rstrip(" .") or "_"
        plain = f"{plain}_" if RESERVED.fullmatch(plain) else plain
        choices = (plain if number == 1 else f"{plain} {number}" for number in itertools.count(1))
        names[label] = next(name for name in choices if name.casefold() not in taken)
        taken.add(names[label].casefold())
    return names


def _sorted(classifier: Classifier, listed: list[LazyImage], copies: _Copies, listener: Listener) -> SortedPhotos:
    before = sum(copies.holds(image.name) for image in listed)
    waiting = ((index, image) for index, image in enumerate(listed) if not copies.holds(image.name))
    threads = os.cpu_count() or 1
    unread: list[str] = []
    done = before
    for folder in {copies.out, *(copies.out / name for name in copies.counts())}:
        sweep(folder)
    ready = prepare_ahead(waiting, classifier.preprocessing, workers=threads, batch_size=BATCH_SIZE)
    with skipping(listener) as skip:
        for batch in batches(ready, BATCH_SIZE):
            for image in batch:
                if image.pixels is None:
                    unread.append(image.name)
                    skip(image.error)
            for answered in answer(classifier, batch, top=1).values():
                copies.add(answered.prediction)
            done += len(batch)
            listener(Progress("sort", done, len(listed)))
    if len(unread) == len(listed):
        raise ImageError(f"None of {counted(len(listed), 'photo')} can be read.")
    decided = classifier.calibration is not None and classifier.calibration.threshold is not None
    return SortedPhotos(str(copies.out), copies.counts(), before, tuple(unread), decided)

"""Photos of requests that the classifier was least sure of, for a person to name: the way from service back to training.

FOLDER/
  labels.csv              the photos that have a name, as corrections of labels are written; data are read by it
  photos/HASH.jpeg        these, and those that wait for a name
  .vitral-collected.json  what the classifier said of each

A photo is written before what speaks of it and deleted after, so that a kill leaves at most photos that nothing speaks of.
"""

import contextlib
import hashlib
import io
import json
import math
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Full, Queue

from PIL import Image

from vitral.checks.corrections import COLUMNS, corrections_table, table_rows
from vitral.classifier.prediction import Prediction
from vitral.errors import StorageError, VitralError, one_line
from vitral.files import storage_errors, sweep, write_file
from vitral.images.decode import formats
from vitral.outputs import locked
from vitral.paths import is_regular
from vitral.serving.refusals import RequestRefused

TABLE = "labels.csv"
PHOTOS = "photos"
INDEX = ".vitral-collected.json"
NAME = re.compile(r"[0-9a-f]{32}\.[a-z]{3,4}")  # of a photo: the beginning of the SHA-256 of its content
DIGITS = 32
MOST_PHOTOS = 500  # that wait for a name
MOST_BYTES = 500_000_000  # of these
QUEUED = 8  # photos that are about to be written; more of them are let go, so that no request waits for a disk


@dataclass(frozen=True)
class CollectedPhoto:
    """The bytes of a photo, and the most probable classes with their probabilities, highest first."""

    size: int
    top: tuple[tuple[str, float], ...]

    @property
    def sureness(self) -> float:
        """The probability of the answer, 0 to 1."""
        return self.top[0][1]


class Collection:
    """Collects photos in a folder, bounded in number and bytes: the least sure stay. `tell` hears why one could not be written.

    Raises:
        StorageError: It holds something else, or nothing can be written there.
        TrainingError: Another process collects there.
    """

    def __init__(self, folder: str | Path, tell: Callable[[str], None]) -> None:
        self.folder, self.tell = Path(folder), tell
        self._lock = threading.RLock()  # of who writes; what is read is replaced, never changed
        self._queue: Queue[tuple[bytes, Prediction] | None] = Queue(QUEUED)
        with contextlib.ExitStack() as held:
            self._known = self._opened(held)
            self._labels = self._read_labels()
            self._delete_unknown()
            self._held = held.pop_all()
        self._bar = self._next_bar()
        self._thread = threading.Thread(target=self._work, name="collector", daemon=True)
        self._thread.start()

    def _opened(self, held: contextlib.ExitStack) -> dict[str, CollectedPhoto]:
        index = self.folder / INDEX
        if not is_regular(index):
            with storage_errors(self.folder):
                if self.folder.exists() and any(self.folder.iterdir()):
                    raise StorageError(
                        f"'{self.folder}' holds something else than collected photos; name a new folder."
                    )
            write_file(index, "{}")
        held.enter_context(locked(self.folder))
        try:
            read = json.loads(index.read_text(encoding="utf-8"))
            tops = {name: tuple((str(a), float(b)) for a, b in one["top"]) for name, one in read.items()}
            sound = (name for name, top in tops.items() if top and NAME.fullmatch(name))
            return {name: CollectedPhoto(int(read[name]["size"]), tops[name]) for name in sound}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageError(f"'{index}' is damaged ({one_line(error)}); name a new folder.") from error

    def _delete_unknown(self) -> None:
        """Delete the photos of our own names that a kill has left without a word of them."""
        with storage_errors(self.folder / PHOTOS):
            (self.folder / PHOTOS).mkdir(exist_ok=True)
            sweep(self.folder / PHOTOS)
            for path in (self.folder / PHOTOS).iterdir():
                if NAME.fullmatch(path.name) and path.name not in self._known and path.name not in self._labels:
                    path.unlink()

    def wants(self, sureness: float) -> bool:
        """Tell whether a photo of an answer of so much probability would stay, without waiting for a disk."""
        return sureness < self._bar

    def offer(self, content: bytes, prediction: Prediction) -> None:
        """Take a photo, if it is less sure than others and nothing waits for the disk; returns at once."""
        with contextlib.suppress(Full):
            self._queue.put_nowait((content, prediction))

    def listed(self) -> list[tuple[str, CollectedPhoto, str | None]]:
        """Return the photos by name with the classes that a person has given: first those that wait, the least sure first."""
        known, labels = self._known, self._labels
        named = [name for name in known if name in labels]
        return [(name, known[name], labels.get(name)) for name in (*self._waiting(), *named)]

    def photo(self, name: str) -> bytes:
        """Return a photo as it came.

        Raises:
            RequestRefused: There is none of that name.
        """
        self._check(name)
        try:
            return (self.folder / PHOTOS / name).read_bytes()
        except OSError:
            raise _gone() from None

    def table(self) -> str:
        """Return the table of the photos that have a name."""
        with self._lock:
            return corrections_table(self._rows())

    def name(self, name: str, label: str | None) -> None:
        """Give a photo its class, or with None take it back.

        Raises:
            RequestRefused: There is no such photo.
            VitralError: The table cannot be read or written; what was there stays.
        """
        with self._lock:
            self._check(name)
            image, known = f"{PHOTOS}/{name}", self._known[name]
            rows = [row for row in self._rows() if row["image"] != image]
            if label is not None:
                guess, probability = known.top[0]
                rows.append(dict(zip(COLUMNS, (image, label, guess, f"{probability:.4f}", ""), strict=True)))
            write_file(self.folder / TABLE, corrections_table(rows))
            self._labels = self._read_labels()
            self._bar = self._next_bar()

    def remove(self, name: str) -> None:
        """Delete a photo.

        Raises:
            RequestRefused: There is no such photo.
            VitralError: It cannot be deleted.
        """
        with self._lock:
            self._check(name)
            if name in self._labels:
                self.name(name, None)
            self._forget([name])

    def end(self) -> None:
        """Write what waits for the disk, and let go of the folder."""
        self._queue.put(None)
        self._thread.join()
        self._held.close()

    def _check(self, name: str) -> None:
        if name not in self._known:
            raise _gone()

    def _waiting(self) -> list[str]:
        """Return the names of the photos that no person has named, the least sure first."""
        known, labels = self._known, self._labels
        return sorted((name for name in known if name not in labels), key=lambda name: known[name].sureness)

    def _next_bar(self) -> float:
        """Return the probability from which on an answer is too sure: that of the surest photo, where there is no more room."""
        waiting = self._waiting()
        has_room = len(waiting) < MOST_PHOTOS and sum(self._known[name].size for name in waiting) < MOST_BYTES
        return math.inf if has_room else self._known[waiting[-1]].sureness

    def _rows(self) -> list[dict[str, str]]:
        """Return the rows of the table as it is now: a person may have changed it."""
        return table_rows(self.folder / TABLE) if is_regular(self.folder / TABLE) else []

    def _read_labels(self) -> dict[str, str]:
        return {Path(row["image"]).name: row["label"] for row in self._rows()}

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            try:
                self._take(*taken)
            except Exception as error:  # such as a full disk: requests are answered all the same
                self.tell(one_line(error))

    def _take(self, content: bytes, prediction: Prediction) -> None:
        with Image.open(io.BytesIO(content), formats=formats()) as image:
            suffix = str(image.format).lower()
        name = f"{hashlib.sha256(content).hexdigest()[:DIGITS]}.{suffix}"
        with self._lock:
            if name in self._known or not self.wants(prediction.probability):
                return
            write_file(self.folder / PHOTOS / name, content)
            before = self._known
            self._known = {**before, name: CollectedPhoto(len(content), prediction.top)}
            try:
                self._forget(self._surplus())
            except VitralError:
                self._known = before
                (self.folder / PHOTOS / name).unlink(missing_ok=True)
                raise

    def _surplus(self) -> list[str]:
        """Return the surest photos that are too many or too large together."""
        waiting = self._waiting()
        total, surplus = sum(self._known[name].size for name in waiting), []
        while waiting and (len(waiting) > MOST_PHOTOS or total > MOST_BYTES):
            surplus.append(waiting.pop())
            total -= self._known[surplus[-1]].size
        return surplus

    def _forget(self, names: list[str]) -> None:
        """Write what is known without some photos, and delete these."""
        left = {name: photo for name, photo in self._known.items() if name not in names}
        write_file(self.folder / INDEX, json.dumps({name: asdict(photo) for name, photo in left.items()}))
        self._known = left
        self._bar = self._next_bar()
        for name in names:
            with storage_errors(self.folder / PHOTOS / name):
                (self.folder / PHOTOS / name).unlink(missing_ok=True)


def _gone() -> RequestRefused:
    return RequestRefused(404, "no_such_photo", "There is no such photo here any more; load the page again.")

"""WebDataset shards: tar files in which the files of one example share a name, such as 000001.jpg and 000001.cls.

Shards may be anywhere that fsspec reaches. Their headers are read once, into an index that gives random access; so the
order is a function of seed and step as everywhere, and a resumed run reads nothing twice. The classes of an image:

| file | holds |
|---|---|
| .cls | the number of the class, in the order of classes.txt next to the shards if there is one |
| .txt | the class's name |
| .json | an object with "label", or "labels" for several |
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
import numpy as np

from vitral.data.archive import UNREADABLE, headers, regular
from vitral.data.columns import UNREAD
from vitral.data.listing import Listing
from vitral.data.names import (
    NAMES_FILE,
    NAMES_LIMIT,
    address_errors,
    common_folder,
    is_address,
    listed_names,
    names_in,
    natural_key,
    open_address,
    open_anywhere,
)
from vitral.data.stored import Entry, Handles, Strings, located
from vitral.data.tables import split_of_file
from vitral.errors import DataError, ImageError, StorageError, one_line
from vitral.events import Listener, Progress
from vitral.files import write_file
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk, cache, is_regular
from vitral.tasks.registry import task_of

LABELS = (".cls", ".txt", ".json")
LABEL_LIMIT = 1 << 20  # bytes of a label file
CACHE = cache("shards")


@dataclass(frozen=True)
class Example:
    """An image in a shard: the example's name, the image's offset and size, and its label file's kind and text, if any."""

    name: str
    offset: int
    size: int
    kind: str
    label: str


class ShardImages:
    """Images in tar files at paths or addresses, read by offset; each process has its own file handles."""

    def __init__(self, shards: Sequence[str], examples: Sequence[Sequence[Example]]) -> None:
        self._shards = list(shards)
        every = [example for listed in examples for example in listed]
        self._names = Strings([example.name for example in every])
        self._offsets = np.array([example.offset for example in every], dtype=np.int64)
        self._sizes = np.array([example.size for example in every], dtype=np.int64)
        self._ends = np.cumsum([len(listed) for listed in examples])
        self._handles = Handles(open_anywhere)

    def read(self, index: int) -> bytes:
        """Return an image's bytes. See `Store`."""
        size = int(self._sizes[index])
        try:
            file = self._handles.get(self._shard(index))
            file.seek(int(self._offsets[index]))
            data: bytes = file.read(size)
        except Exception as error:  # each file system raises its own types
            raise ImageError(f"'{self.name(index)}' cannot be read ({one_line(error)}).") from error
        if len(data) != size:
            raise ImageError(f"'{self.name(index)}' is cut short: the shard ends before it; fetch it again.")
        return data

    def name(self, index: int) -> str:
        """Return shard and example, such as "train-000.tar:000001"."""
        return f"{self._shard(index)}:{self._names[index]}"

    def _shard(self, index: int) -> str:
        return self._shards[located(self._ends, index)[0]]


def list_shards(title: str, shards: Sequence[str], listener: Listener, *, labelled: bool = True) -> Listing:
    """Return the images of shards at paths or addresses, by the split that each shard's name begins with.

    Raises:
        DataError: a shard cannot be read, or an example has no class that is to be read.
    """
    examples = []
    for done, shard in enumerate(shards, 1):
        examples.append(_index(shard))
        listener(Progress("index shards", done, len(shards)))
    remote = any(map(is_address, shards))
    declared = _declared(shards[0])
    base = common_folder(shards)
    entries: dict[str, list[Entry]] = {}
    ends: dict[str, list[int]] = {}
    several = False
    store_index = 0
    for shard, listed in zip(shards, examples, strict=True):
        split = split_of_file(shard[len(base) :].lstrip("/"))
        for example in listed:
            classes, plural = _classes(example, declared, shard) if labelled else (UNREAD, False)
            several = several or plural
            name = f"{shard[len(base) :]}:{example.name}"
            entries.setdefault(split, []).append(Entry(store_index, name, classes, example.size))
            store_index += 1
        ends.setdefault(split, []).append(len(entries.get(split, [])))
    if not store_index:
        raise DataError(f"'{title}' holds no examples with an image ({', '.join(EXTENSIONS)}).")
    numbered = labelled and all(example.kind == ".cls" for listed in examples for example in listed)
    names = declared
    if numbered and names is None:
        most = max(int(entry.classes[0]) for listed in entries.values() for entry in listed)
        names = tuple(str(number) for number in range(most + 1))
    return Listing(
        title=title,
        name=_short(title),
        store=ShardImages(shards, examples),
        entries=entries,
        class_names=names,
        task=task_of(several=several),
        # A single shard is like a file of any other kind.
        shards={split: tuple(positions) for split, positions in ends.items()} if len(shards) > 1 else {},
        remote=remote,
    )


def is_shard(path: str) -> bool:
    """Tell whether a tar is a shard: whether a label file accompanies every image."""
    try:
        examples = _index(path)
    except DataError:
        return False
    return bool(examples) and all(example.kind for example in examples)


def shard_files(folder: Path, walked: Walk) -> list[str]:
    """Return the tar files of a folder, in order."""
    paths = [str(folder / file.path) for file in walked.files if file.path.endswith(".tar")]
    return sorted(filter(is_regular, paths), key=natural_key)


def _index(shard: str) -> list[Example]:
    if not is_address(shard):
        return _read_index(shard)
    with address_errors(shard):
        filesystem, path = fsspec.url_to_fs(shard)
        state = filesystem.ukey(path)
    cached = CACHE / f"{hashlib.sha256(f'{shard} {state}'.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # unusable: made again
        return [Example(**fields) for fields in json.loads(cached.read_text())]
    examples = _read_index(shard)
    with contextlib.suppress(StorageError):  # without a writable home only time is lost
        write_file(cached, json.dumps([asdict(example) for example in examples]))
    return examples


def _read_index(shard: str) -> list[Example]:
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, tuple[str, str]] = {}
    try:
        with open_anywhere(shard) as file:
            for info in headers(file):
                if not regular(info) or PurePosixPath(info.name).name.startswith("."):
                    continue
                key, extension = _parts(info.name)
                if extension in EXTENSIONS:
                    images[key] = (info.offset_data, info.size)
                elif extension in LABELS:
                    labels.setdefault(key, (extension, _label(file, info.offset_data, info.size)))
            end = max((offset + size for offset, size in images.values()), default=0)
            if file.seek(0, os.SEEK_END) < end:
                raise DataError(f"The shard '{shard}' is cut short; fetch it again.")
    except UNREADABLE as error:
        raise DataError(
            f"The shard '{shard}' cannot be read as a tar file ({one_line(error)}); fetch it again."
        ) from error
    return [Example(key, *images[key], *labels.get(key, ("", ""))) for key in images]


def _label(file: Any, offset: int, size: int) -> str:  # noqa: ANN401  # fsspec's own file
    """Return a label file's text, and restore the file's position."""
    position = file.tell()
    file.seek(offset)
    content: bytes = file.read(min(size, LABEL_LIMIT))
    file.seek(position)
    return content.decode()


def _parts(name: str) -> tuple[str, str]:
    """Return an example's name and a file's extension, which begins at the first dot of the last part, as in WebDataset."""
    folder, _, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    return (f"{folder}/{stem}" if folder else stem), (dot + extension).lower()


def _classes(example: Example, declared: tuple[str, ...] | None, shard: str) -> tuple[tuple[str, ...], bool]:
    """Return an example's classes, and whether it may have several."""
    where = f"{shard}:{example.name}"
    if not example.kind:
        raise DataError(f"'{where}' has an image without a class ({', '.join(LABELS)}).")
    if example.kind == ".txt":
        return (example.label.strip(),), False
    try:
        value = json.loads(example.label)
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{where}{example.kind}' cannot be read ({error}).") from error
    if example.kind == ".cls":
        if not isinstance(value, int) or value < 0 or (declared is not None and value >= len(declared)):
            raise DataError(f"'{where}.cls' must hold the number of a class, not '{example.label.strip()[:40]}'.")
        return (declared[value] if declared else str(value),), False
    if isinstance(value, Mapping) and isinstance(value.get("labels"), list):
        return tuple(_named(label, declared) for label in value["labels"]), True
    if isinstance(value, Mapping) and isinstance(value.get("label"), str | int):
        return (_named(value["label"], declared),), False
    raise DataError(f'\'{where}.json\' has neither "label" nor "labels".')


def _named(value: object, declared: tuple[str, ...] | None) -> str:
    if declared is not None and isinstance(value, int) and 0 <= value < len(declared):
        return declared[value]
    return str(value)


def _declared(shard: str) -> tuple[str, ...] | None:
    folder = shard.rpartition("/")[0]
    path = f"{folder}/{NAMES_FILE}" if folder else NAMES_FILE
    if not is_address(path):
        return names_in(Path(path))
    try:
        with open_address(path) as file:
            return listed_names(file.read(NAMES_LIMIT).decode())
    except Exception:  # there is no such file; each file system reports that in its own way
        return None


def _short(title: str) -> str:
    return PurePosixPath(title.split("://")[-1]).name.split("{")[0].split(".")[0].strip("-_") or "shards"

"""WebDataset shards: tar files in which the files of one example share a name, such as 000001.jpg and 000001.cls.

Shards may be anywhere that fsspec reaches. Their headers are read once, into an index that gives random access; so the
order is a function of seed and step as everywhere, and a resumed run reads nothing twice. `vitral.data.examples` tells which
files are an example. The classes of an image:

| file | holds |
|---|---|
| .cls | the number of the class, in the order of classes.txt next to the shards or above their splits; or its name |
| .txt | the class's name |
| .json | an object with "label", or "labels" for several |

Where there are several, .cls is meant. A .txt without one may hold a caption or boxes, which are no classes.
"""

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from vitral.data.archive import TarImages, headers, regular
from vitral.data.examples import LABELS, Example, Labels, grouped, image_members
from vitral.data.listing import Listing
from vitral.data.names import (
    NAMES_LIMIT,
    SHARDS_NAMES_FILES,
    address_errors,
    common_folder,
    is_address,
    listed_names,
    names_in,
    open_address,
    open_anywhere,
    split_named,
    splits_of_files,
)
from vitral.data.packed import UNREADABLE, packing
from vitral.data.stored import UNREAD, Entry, Handles, JoinedStores, Store
from vitral.errors import DataError, StorageError, one_line
from vitral.events import Listener, Progress
from vitral.files import write_file
from vitral.images.decode import EXTENSIONS
from vitral.paths import cache, is_hidden
from vitral.tasks.registry import task_of

LABEL_LIMIT = 1 << 20  # bytes of a label file
CACHE = cache("shards")
FORM = 2  # of an index in the cache


def list_shards(
    title: str, shards: Sequence[str], listener: Listener, *, labelled: bool = True, named: bool = True
) -> Listing:
    """Return the images of shards at paths or addresses, by the split that each shard's name begins with.

    Args:
        title: What the shards are called.
        shards: Their paths or addresses.
        listener: Receives the progress of reading.
        labelled: Whether classes are read.
        named: Whether a file beside the shards names the classes that have numbers.

    Raises:
        DataError: a shard cannot be read, or an example has no class that is to be read.
    """
    examples = []
    for done, shard in enumerate(shards, 1):
        examples.append(_index(shard))
        listener(Progress("index shards", done, len(shards)))
    if not any(examples):
        raise DataError(f"'{title}' holds no examples with an image ({', '.join(EXTENSIONS)}).")
    members = image_members(title, shards, examples)
    declared = _declared(shards[0]) if named else None
    read = Labels(title, declared).of(shards, examples) if labelled else None
    base = common_folder(shards)
    splits = splits_of_files([shard[len(base) :].lstrip("/") for shard in shards])
    entries: dict[str, list[Entry]] = {}
    ends: dict[str, list[int]] = {}
    indices, handles = itertools.count(), Handles(open_anywhere)
    stores: list[tuple[Store, int]] = []
    for shard, split, listed in zip(shards, splits, members, strict=True):
        stores.append((TarImages(shard, shard, listed, handles), len(listed)))
        for member in listed:
            index = next(indices)
            classes = UNREAD if read is None else read.classes[index]
            name = f"{shard[len(base) :]}:{member.name}"
            entries.setdefault(split, []).append(Entry(index, name, classes, member.size))
        ends.setdefault(split, []).append(len(entries.get(split, [])))
    return Listing(
        title=title,
        name=_short(title),
        store=JoinedStores(stores),
        entries=entries,
        class_names=declared if read is None else read.class_names,
        task=task_of(several=read is not None and read.several),
        # A single shard is like a file of any other kind.
        shards={split: tuple(positions) for split, positions in ends.items()} if len(shards) > 1 else {},
        remote=any(map(is_address, shards)),
    )


def is_shard(path: str) -> bool:
    """Tell whether a tar is a shard: whether a label file accompanies every image.

    Captions or boxes beside images that lie in several folders do not make the tar a shard.
    """
    try:
        examples = _index(path)
        if not examples or not all(example.labels for example in examples):
            return False
        if len({example.name.rpartition("/")[0] for example in examples}) > 1:
            Labels(path, _declared(path)).of([path], [examples])
    except DataError:
        return False
    return True


def _index(shard: str) -> list[Example]:
    if not is_address(shard):
        return _read_index(shard)
    with address_errors(shard):
        filesystem, path = fsspec.url_to_fs(shard)
        state = filesystem.ukey(path)
    cached = CACHE / f"{hashlib.sha256(f'{FORM} {shard} {state}'.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # unusable: made again
        return [Example(**fields) for fields in json.loads(cached.read_text())]
    examples = _read_index(shard)
    with contextlib.suppress(StorageError):  # without a writable home only time is lost
        write_file(cached, json.dumps([asdict(example) for example in examples]))
    return examples


def _read_index(shard: str) -> list[Example]:
    try:
        with open_anywhere(shard) as file:
            examples = grouped(_files(file), shard)
            end = max((offset + size for example in examples for offset, size in example.images.values()), default=0)
            if file.seek(0, os.SEEK_END) < end:
                raise DataError(f"The shard '{shard}' is cut short; fetch it again.")
    except UNREADABLE as error:
        if packed := packing(shard):
            raise DataError(
                f"The shard '{shard}' is compressed ({packed}), so its images have no place in the file; unpack it to a .tar."
            ) from error
        raise DataError(
            f"The shard '{shard}' cannot be read as a tar file ({one_line(error)}); fetch it again."
        ) from error
    return examples


def _files(file: Any) -> Iterator[tuple[str, tuple[int, int] | str]]:  # noqa: ANN401  # fsspec's own file
    """Yield the name of each file of a shard, and an image's offset and size, or a label's text."""
    for info in headers(file):
        if not regular(info) or any(map(is_hidden, PurePosixPath(info.name).parts)):
            continue
        if info.name.lower().endswith(EXTENSIONS):
            yield info.name, (info.offset_data, info.size)
        elif info.name.lower().endswith(LABELS):
            yield info.name, _label(file, info.offset_data, info.size)


def _label(file: Any, offset: int, size: int) -> str:  # noqa: ANN401  # fsspec's own file
    """Return a label file's text, and restore the file's position."""
    position = file.tell()
    file.seek(offset)
    content: bytes = file.read(min(size, LABEL_LIMIT))
    file.seek(position)
    return content.decode(errors="surrogateescape")


def _declared(shard: str) -> tuple[str, ...] | None:
    """Return the class names that a file beside a shard lists, or beside the folder of its split; None if there is none."""
    folder = shard.rpartition("/")[0]
    above, slash, name = folder.rpartition("/")
    folders = (folder, above if slash else ".") if split_named(name) else (folder or ".",)
    listed = (_listed(f"{each}/{file}") for each in folders for file in SHARDS_NAMES_FILES)
    return next((names for names in listed if names is not None), None)


def _listed(path: str) -> tuple[str, ...] | None:
    if not is_address(path):
        return names_in(Path(path))
    try:
        with open_address(path) as file:
            return listed_names(file.read(NAMES_LIMIT).decode())
    except Exception:  # there is no such file; each file system reports that in its own way
        return None


def _short(title: str) -> str:
    return PurePosixPath(title.split("://")[-1]).name.split("{")[0].split(".")[0].strip("-_") or "shards"

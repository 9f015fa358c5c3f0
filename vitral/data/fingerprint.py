"""What a data set is, in a few bytes: a fingerprint of all that a run depends on, and enough to say what changed."""

import hashlib
import json
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np

from vitral import distributed
from vitral.data.stored import Store
from vitral.errors import VitralError

SCHEME = "2-"  # begins a fingerprint; those of earlier versions were of names and sizes alone
HASHED = 50_000  # images up to which the bytes of every one count; of more, those of so many spread over them
DIGEST_BYTES = 16

Inventory = Mapping[str, Mapping[str, tuple[int, str]]]  # by split and class: how many images, and what they are


class Listed(Protocol):
    """An image of a listing."""

    @property
    def place(self) -> int:
        """Its number in the store."""
        ...

    @property
    def name(self) -> str:
        """Its name there."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Its classes."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...


Splits = Mapping[str, Sequence[Listed]]


def hash_contents(store: Store, splits: Splits, *, remote: bool) -> dict[int, str]:
    """Return a hash of the bytes of images by their place, each process of a job having read its share.

    Of very many images a part is read, and none that would come over a network: their names and sizes must do.
    """
    every = [] if remote else [image.place for images in splits.values() for image in images]
    if len(every) > HASHED:
        every = [every[place] for place in np.linspace(0, len(every) - 1, HASHED).astype(int)]
    mine = every[distributed.rank() :: distributed.world()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(mine, pool.map(lambda place: _hash(store, place), mine), strict=True))
    return {place: digest for theirs in distributed.gather(found) for place, digest in theirs.items()}


def fingerprint(splits: Splits, contents: Mapping[int, str]) -> str:
    """Return one hash of every image's split, name, classes, size and, where it was read, content."""
    return SCHEME + _together(_line(split, image, contents) for split, images in splits.items() for image in images)


def former_fingerprint(splits: Splits) -> str:
    """Return the fingerprint that versions up to 0.2 gave: of names and sizes."""
    lines = sorted(f"{image.name}\t{image.size}" for images in splits.values() for image in images)
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def take_inventory(splits: Splits, contents: Mapping[int, str]) -> Inventory:
    """Return for every split and class how many images it has, and a hash of what they are."""
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for split, images in splits.items():
        lines: dict[str, list[str]] = defaultdict(list)
        for image in images:
            for name in image.classes or ("",):
                lines[name].append(_line(split, image, contents))
        found[split] = {name: (len(mine), _together(mine)[: 2 * DIGEST_BYTES]) for name, mine in lines.items()}
    return found


def changes(before: Inventory, now: Inventory) -> list[str]:
    """Return what became of a data set, one phrase for each class of each split that is not as it was."""
    found: list[str] = []
    for split in (*before, *(name for name in now if name not in before)):
        old, new = before.get(split, {}), now.get(split, {})
        for name in (*old, *(name for name in new if name not in old)):
            was, has = old.get(name, (0, "")), new.get(name, (0, ""))
            if was[0] != has[0]:
                found.append(f"{split}/{name} has {has[0]} images, and had {was[0]}")
            elif tuple(was) != tuple(has):
                found.append(f"{split}/{name} has other images, or other names or contents of its {has[0]}")
    return found


def _line(split: str, image: Listed, contents: Mapping[int, str]) -> str:
    return json.dumps([split, image.name, sorted(image.classes), image.size, contents.get(image.place)])


def _together(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _hash(store: Store, place: int) -> str:
    """Return a hash of an image's bytes; an empty one where they cannot be had, which others find fault with."""
    try:
        content = store.read(place)
        if isinstance(content, Path):
            if not stat.S_ISREG(content.stat().st_mode):
                return ""
            content = content.read_bytes()
    except (VitralError, OSError):
        return ""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()

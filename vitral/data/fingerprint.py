"""The identity of a dataset in a few bytes: a fingerprint of all that a run depends on, and enough to say what changed."""

import hashlib
import json
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from vitral import distributed
from vitral.data.sampling import evenly
from vitral.data.stored import Entry, Store
from vitral.data.threads import in_threads
from vitral.errors import VitralError

SCHEME = "2-"  # the beginning of a fingerprint; earlier versions hashed only names and sizes
OF_SHARE = "/part="  # stands before the share of the training images
HASHED = 50_000  # images that are hashed at most, evenly spaced
DIGEST_BYTES = 16

Inventory = Mapping[str, Mapping[str, tuple[int, str]]]  # by split and class: the number of images, and a hash of them
Splits = Mapping[str, Sequence[Entry]]


def hash_contents(store: Store, splits: Splits, *, remote: bool) -> dict[int, str]:
    """Return hashes of the images' bytes by store index; each process of a job reads its share.

    Of very many images only a part is read, and of remote ones none: there, names and sizes must do.
    """
    every = [] if remote else [image.store_index for images in splits.values() for image in images]
    every = evenly(every, HASHED)
    share = every[distributed.rank() :: distributed.world()]
    digests = dict(zip(share, in_threads(lambda index: _hash(store, index), share), strict=True))
    return {index: digest for part in distributed.gather(digests) for index, digest in part.items()}


def fingerprint(splits: Splits, contents: Mapping[int, str]) -> str:
    """Return one hash of every image's split, name, classes, size and, where it was read, content."""
    return SCHEME + _together(_line(split, image, contents) for split, images in splits.items() for image in images)


def of_part(fingerprint: str, share: Fraction) -> str:
    """Return the fingerprint of a share of the training images of data with a fingerprint."""
    return f"{fingerprint}{OF_SHARE}{share}"


def whole(fingerprint: str) -> str:
    """Return the fingerprint of all data, from that of the data or of a share of their training images."""
    return fingerprint.partition(OF_SHARE)[0]


def share_of(fingerprint: str) -> str:
    """Return of what share of the training images a fingerprint is, such as "1/10"; "1" for all of them."""
    return fingerprint.partition(OF_SHARE)[2] or "1"


def same_data(fingerprint: str, other: str) -> bool:
    """Tell whether two fingerprints are known and of the same data, in whatever share of the training images."""
    return bool(fingerprint) and whole(fingerprint) == whole(other)


def former_fingerprint(splits: Splits) -> str:
    """Return the fingerprint of versions up to 0.2, of names and sizes."""
    lines = sorted(f"{image.name}\t{image.size}" for images in splits.values() for image in images)
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def take_inventory(splits: Splits, contents: Mapping[int, str]) -> Inventory:
    """Return for every split and class the number of images, and a hash of them."""
    inventory: dict[str, dict[str, tuple[int, str]]] = {}
    for split, images in splits.items():
        lines: dict[str, list[str]] = defaultdict(list)
        for image in images:
            for name in image.classes or ("",):
                lines[name].append(_line(split, image, contents))
        inventory[split] = {name: (len(each), _together(each)[: 2 * DIGEST_BYTES]) for name, each in lines.items()}
    return inventory


def changes(before: Inventory, now: Inventory) -> list[str]:
    """Return what changed in a dataset, one phrase for each class of each split that differs."""
    phrases: list[str] = []
    for split in (*before, *(name for name in now if name not in before)):
        old, new = before.get(split, {}), now.get(split, {})
        for name in (*old, *(name for name in new if name not in old)):
            was, has = old.get(name, (0, "")), new.get(name, (0, ""))
            if was[0] != has[0]:
                phrases.append(f"{split}/{name} now has {has[0]} images, had {was[0]}")
            elif tuple(was) != tuple(has):
                phrases.append(f"{split}/{name} has other images, or other names or contents for its {has[0]}")
    return phrases


def _line(split: str, image: Entry, contents: Mapping[int, str]) -> str:
    return json.dumps([split, image.name, sorted(image.classes), image.size, contents.get(image.store_index)])


def _together(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def _hash(store: Store, index: int) -> str:
    """Return a hash of an image's bytes; an empty one where they cannot be read, which is reported elsewhere."""
    try:
        content = store.read(index)
        if isinstance(content, Path):
            if not stat.S_ISREG(content.stat().st_mode):
                return ""
            content = content.read_bytes()
    except (VitralError, OSError):
        return ""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()

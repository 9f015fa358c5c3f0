"""TFDS's order of a split: ascending by the md5 of the split's name and the image's key (tensorflow/datasets, core/hashing.py).

No subset that TFDS itself made was compared with it here.
"""

import hashlib
from collections.abc import Sequence

Key = str | bytes | int


def in_order(split: str, keys: Sequence[Key]) -> list[int]:
    """Return the indices of a split's images in TFDS's order.

    Args:
        split: the name under which TFDS generates it, such as "validation".
        keys: of each image.
    """
    salt = hashlib.md5(split.encode(), usedforsecurity=False)

    def position(index: int) -> bytes:
        hashed = salt.copy()
        hashed.update(_bytes(keys[index]))
        return hashed.digest()  # the first byte counts most, so that bytes compare as the integer does

    return sorted(range(len(keys)), key=position)


def _bytes(key: Key) -> bytes:
    """Return a key as it is hashed: an integer as decimal text, a path with '/' on every system."""
    if isinstance(key, bytes):
        return key
    return str(key).replace("\\", "/").encode()

"""What a reader of raw files returns: images by split, with their keys and the features that labels are made of."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Shaped

from vitral.data.listing import Listing
from vitral.data.published.tree import Tree
from vitral.data.stored import Entry, JoinedStores, Store
from vitral.data.vtab.records import Example
from vitral.errors import DataError, one_line

Key = str | bytes | int  # TFDS orders the images of a split by their keys


@dataclass(frozen=True, kw_only=True)
class RawSplit:
    """A split, in any order.

    Attributes:
        keys: The key of each image, by which TFDS orders them.
        indices: The index of each image in the store.
        features: Returns, from an image's number in the split, what its label is made of, under TFDS's names.
    """

    keys: Sequence[Key]
    indices: Sequence[int]
    features: Callable[[int], Example]


@dataclass(frozen=True, kw_only=True)
class RawDataset:
    """A dataset.

    Attributes:
        store: The images of all splits.
        splits: The splits, by the names under which TFDS generates them.
        names: The names of the classes, in order; empty where the dataset does not name them.
    """

    store: Store
    splits: Mapping[str, RawSplit]
    names: tuple[str, ...] = ()


def columns(**values: Sequence[Any] | Shaped[np.ndarray, " images"]) -> Callable[[int], Example]:
    """Return what gives an image's features from all images' values of each."""

    def features(index: int) -> Example:
        return {name: [of_all[index]] for name, of_all in values.items()}

    return features


def labelled(keys: Sequence[Key], indices: Sequence[int], labels: Sequence[Any]) -> RawSplit:
    """Return a split whose labels are classes, as they are stored."""
    return RawSplit(keys=keys, indices=indices, features=columns(label=labels))


def by_class(keys: Sequence[Key], indices: Sequence[int], classes: Sequence[str], names: Sequence[str]) -> RawSplit:
    """Return a split whose labels are names of classes."""
    numbers = {name: number for number, name in enumerate(names)}
    return labelled(keys, indices, [numbers[name] for name in classes])


def of_listing(listing: Listing, key: Callable[[int, Entry], Key]) -> RawDataset:
    """Return a dataset that is also read by its name; `key` gives an image's key from its number in its split and its entry."""
    names = listing.class_names or ()
    splits = {
        split: by_class(
            [key(number, image) for number, image in enumerate(images)],
            [image.store_index for image in images],
            [image.classes[0] for image in images],
            names,
        )
        for split, images in listing.entries.items()
    }
    return RawDataset(store=listing.store, splits=splits, names=names)


def joined(parts: Mapping[str, tuple[Store, Sequence[Key], Callable[[int], Example]]]) -> RawDataset:
    """Return a dataset of which each split has a store of its own, with the keys and the features of the images in it."""
    splits, first = {}, 0
    for split, (_, keys, features) in parts.items():
        splits[split] = RawSplit(keys=keys, indices=range(first, first + len(keys)), features=features)
        first += len(keys)
    store = JoinedStores([(store, len(keys)) for store, keys, _ in parts.values()])
    return RawDataset(store=store, splits=splits)


def plain(tree: Tree, name: str, advice: str) -> Path:
    """Return the path of an unpacked file, or raise DataError if it is missing, there several times, or cannot be opened."""
    path = tree.store.read(tree.file(name, advice))
    assert isinstance(path, Path)
    try:
        path.open("rb").close()
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({one_line(error)}).") from error
    return path


def decoded(content: bytes) -> Shaped[np.ndarray, "height width 3"] | None:
    """Return an image's pixels, blue first, as TFDS decodes it by OpenCV; None where that cannot."""
    if not content:
        return None  # OpenCV would raise an error of its own
    return cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR)


def in_order(split: str, keys: Sequence[Key]) -> list[int]:
    """Return the indices of a split's images in TFDS's order: by the md5 of the split's name and the image's key.

    The rule is that of tensorflow/datasets, core/hashing.py. No subset that TFDS itself made was compared with it here.
    """
    salt = hashlib.md5(split.encode(), usedforsecurity=False)

    def position(index: int) -> bytes:
        hashed = salt.copy()
        hashed.update(_bytes(keys[index]))
        return hashed.digest()  # the first byte is the most significant, so bytes compare as the integer does

    return sorted(range(len(keys)), key=position)


def _bytes(key: Key) -> bytes:
    """Return a key as it is hashed: an integer as decimal text, a path with '/' on every system."""
    if isinstance(key, bytes):
        return key
    return str(key).replace("\\", "/").encode()

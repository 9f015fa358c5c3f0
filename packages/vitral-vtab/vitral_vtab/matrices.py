"""CIFAR-100, SVHN, smallNORB, dSprites and PatchCamelyon: files of arrays, keyed by the running index of an image."""

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Shaped

from vitral.data.published.cifar import CIFAR100, list_cifar
from vitral.data.published.tree import Tree, read_matlab
from vitral.errors import DataError
from vitral_vtab.arrays import ArrayImages, Hdf5Images, MatrixImages, open_hdf5
from vitral_vtab.dataset import RawDataset, columns, joined, of_listing, plain

SVHN = "fetch train_32x32.mat and test_32x32.mat"
NORB = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}
# By the number at the beginning of a file.
NORB_KINDS: dict[int, np.dtype[Any]] = {507333717: np.dtype("<u1"), 507333716: np.dtype("<i4")}
ELEVATION = 1  # the column of the labels
AZIMUTH = 2
DSPRITES = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.hdf5"
ORIENTATION = 3  # the column of the labels
X_POSITION = 4
CAMELYON = {"train": "train", "validation": "valid", "test": "test"}


def read_cifar100(folder: Path) -> RawDataset:
    """Return CIFAR-100 from its binary form; keys are indices in a file."""
    return of_listing(list_cifar(CIFAR100, folder), lambda number, image: number)


def read_svhn(folder: Path) -> RawDataset:
    """Return SVHN's cropped digits; a zero, which the files call 10, is class 0."""
    tree = Tree(folder, "SVHN", {})
    parts = {}
    for split in ("train", "test"):
        path = plain(tree, f"{split}_32x32.mat", SVHN)
        variables = read_matlab(io.BytesIO(path.read_bytes()), f"'{path}'")
        images, labels = np.asarray(variables.get("X")), np.asarray(variables.get("y")).ravel()
        if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8 or labels.dtype.kind not in "iuf":
            raise DataError(f"'{path}' has no images 'X' with labels 'y'; it is not SVHN's, {SVHN} again.")
        _same_length(path, len(labels), images.shape[-1])
        if labels.min() < 1 or labels.max() > 10:
            raise DataError(f"'{path}' has labels outside of 1 to 10; {SVHN} again.")
        store = ArrayImages(path, np.moveaxis(images, -1, 0))
        parts[split] = (store, range(len(labels)), columns(label=labels.astype(np.int64) % 10))
    return joined(parts)


def read_smallnorb(folder: Path) -> RawDataset:
    """Return smallNORB, of each pair of images the first camera's."""
    tree = Tree(folder, "smallNORB", {})
    parts = {}
    for split, name in NORB.items():
        images, labels = (
            plain(tree, f"{name}-{kind}.mat", f"gunzip {name}-{kind}.mat.gz there") for kind in ("dat", "info")
        )
        kind, shape, offset = _matrix(images)
        if kind.itemsize != 1 or len(shape) != 4:
            raise DataError(f"'{images}' holds no pairs of images; fetch it again.")
        step = int(np.prod(shape[1:]))
        store = MatrixImages(images, offset=offset, step=step, shape=(shape[2], shape[3]))
        info = _table(labels)
        _same_length(labels, len(info), shape[0])
        features = columns(label_elevation=info[:, ELEVATION], label_azimuth=info[:, AZIMUTH] // 2)
        parts[split] = (store, range(shape[0]), features)
    return joined(parts)


def _table(path: Path) -> Int32[np.ndarray, "images columns"]:
    kind, shape, offset = _matrix(path)
    if kind.itemsize != 4 or len(shape) != 2 or shape[1] <= AZIMUTH:
        raise DataError(f"'{path}' holds no labels; fetch it again.")
    return np.fromfile(path, dtype=kind, offset=offset).reshape(shape)


def _matrix(path: Path) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return the type and the shape of the array in a file, and the offset of its first value.

    A file begins with a number for the type, one for how many axes there are, and the length of each, but three at least
    (https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/).
    """
    with open(path, "rb") as file:
        head = file.read(8)
        magic, axes = struct.unpack("<2i", head) if len(head) == 8 else (0, 0)
        lengths = file.read(4 * max(3, axes)) if magic in NORB_KINDS and 0 < axes <= 8 else b""
    if not lengths or len(lengths) != 4 * max(3, axes):
        raise DataError(f"'{path}' is not one of smallNORB's files, or damaged; fetch it again.")
    shape = struct.unpack(f"<{axes}i", lengths[: 4 * axes])
    kind, offset = NORB_KINDS[magic], 8 + len(lengths)
    expected = offset + kind.itemsize * int(np.prod(shape))
    if min(shape) < 1 or path.stat().st_size != expected:
        raise DataError(f"'{path}' has {path.stat().st_size:,} bytes and should have {expected:,}; fetch it again.")
    return kind, shape, offset


def read_dsprites(folder: Path) -> RawDataset:
    """Return dSprites, whose pixels are 0 and 1."""
    path = plain(Tree(folder, "dSprites", {}), DSPRITES, f"put {DSPRITES} there")
    classes = _values(path, "latents/classes")
    if classes.ndim != 2 or classes.shape[1] <= X_POSITION:
        raise DataError(f"'{path}' has no six latent classes an image; fetch it again.")
    _same_length(path, len(classes), _shape(path, "imgs")[0])
    features = columns(label_orientation=classes[:, ORIENTATION], label_x_position=classes[:, X_POSITION])
    return joined({"train": (Hdf5Images(path, "imgs"), range(len(classes)), features)})


def read_camelyon(folder: Path) -> RawDataset:
    """Return PatchCamelyon."""
    tree = Tree(folder, "PatchCamelyon", {})
    parts = {}
    for split, name in CAMELYON.items():
        files = (f"camelyonpatch_level_2_split_{name}_{kind}.h5" for kind in "xy")
        images, labels = (plain(tree, file, f"gunzip {file}.gz there") for file in files)
        values = _values(labels, "y").reshape(-1)
        _same_length(labels, len(values), _shape(images, "x")[0])
        keys = [f"{name}_{index}" for index in range(len(values))]
        parts[split] = (Hdf5Images(images, "x"), keys, columns(label=values))
    return joined(parts)


def _values(path: Path, variable: str) -> Shaped[np.ndarray, "..."]:
    _shape(path, variable)
    with open_hdf5(str(path)) as file:
        return np.array(file[variable])


def _shape(path: Path, variable: str) -> Sequence[int]:
    with open_hdf5(str(path)) as file:
        shape: Sequence[int] = getattr(file.get(variable), "shape", ())
    if not shape:
        raise DataError(f"'{path}' has no array '{variable}'; fetch it again.")
    return shape


def _same_length(path: Path, labels: int, images: int) -> None:
    if labels != images:
        raise DataError(f"'{path}' has {labels:,} labels for {images:,} images; fetch images and labels again.")

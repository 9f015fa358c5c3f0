"""DTD, Flowers, Pets, EuroSAT, Resisc45 and SUN397: images in files, with classes by folder or list."""

from pathlib import Path

import cv2
import numpy as np

from vitral.data.names import some
from vitral.data.published.flowers import list_flowers
from vitral.data.published.pets import list_pets
from vitral.data.published.tree import Tree
from vitral.data.stored import ConvertedImages, Entry
from vitral.images.decode import read_image
from vitral_vtab.dataset import RawDataset, RawSplit, by_class, decoded, of_listing

DTD_LISTS = {"train": "train1", "validation": "val1", "test": "test1"}  # the first of ten folds
SUN_LISTS = {"train": "sun397_tfds_tr.txt", "validation": "sun397_tfds_va.txt", "test": "sun397_tfds_te.txt"}
SUN_PIXELS = 120_000  # the largest image


def read_flowers(folder: Path) -> RawDataset:
    """Return Oxford Flowers 102; keys are file names."""
    return of_listing(list_flowers(folder), _file_name)


def read_pets(folder: Path) -> RawDataset:
    """Return Oxford-IIIT Pet; keys are file names. Its few damaged JPEG files, which TFDS encodes again, are as they are."""
    return of_listing(list_pets(folder), _file_name)


def _file_name(number: int, image: Entry) -> str:
    return image.name.rpartition("/")[2]


def read_dtd(folder: Path) -> RawDataset:
    """Return DTD's first fold; keys are paths below images/."""
    tree = Tree(folder, "DTD", {r"dtd-r1\.0\.1": r"labels/train1\.txt"})
    advice = "unpack dtd-r1.0.1.tar.gz there"
    listed = {split: tree.lines(tree.file(f"labels/{name}.txt", advice)) for split, name in DTD_LISTS.items()}
    images = {match[1]: index for index, match in tree.matching(r"images/([^/]+/[^/]+)")}
    return _listed(tree, images, listed, advice)


def read_sun397(folder: Path) -> RawDataset:
    """Return SUN397 in TFDS's partition, of at most 120,000 pixels an image; keys are paths below SUN397/."""
    tree = Tree(folder, "SUN397", {"SUN397": r"SUN397/[a-z]/.+\.jpg"})
    advice = "copy it from TFDS's repository, tensorflow_datasets/image_classification"
    listed = {split: tree.lines(tree.file(name, advice)) for split, name in SUN_LISTS.items()}
    images = {match[1]: index for index, match in tree.matching(r"SUN397(/[a-z]/.+\.jpg)")}
    data = _listed(tree, images, listed, "unpack SUN397.tar.gz there")
    return RawDataset(store=ConvertedImages(data.store, smaller), splits=data.splits, names=data.names)


def _listed(tree: Tree, images: dict[str, int], listed: dict[str, list[str]], advice: str) -> RawDataset:
    """Return the images of lists, whose keys are their paths and whose classes are the folders in these."""
    if missing := [key for keys in listed.values() for key in keys if key not in images]:
        raise tree.incomplete(f"{some(missing)}, named in the lists", advice)
    names = tuple(sorted({_folder(key) for keys in listed.values() for key in keys}))
    splits = {
        split: by_class(keys, [images[key] for key in keys], [_folder(key) for key in keys], names)
        for split, keys in listed.items()
    }
    return RawDataset(store=tree.store, splits=splits, names=names)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def read_eurosat(folder: Path) -> RawDataset:
    """Return EuroSAT's colour images; keys are class and file name, joined by '_'."""
    return _in_folders(Tree(folder, "EuroSAT", {"EuroSAT": r"2750/.+\.jpg"}), "2750", "unpack EuroSAT.zip there")


def read_resisc45(folder: Path) -> RawDataset:
    """Return NWPU-RESISC45; keys are class and file name, joined by '_'."""
    return _in_folders(Tree(folder, "NWPU-RESISC45", {}), "NWPU-RESISC45", "unpack NWPU-RESISC45.rar there")


def _in_folders(tree: Tree, above: str, advice: str) -> RawDataset:
    images = [(index, match[1], match[2]) for index, match in tree.matching(rf"{above}/([^/]+)/([^/]+\.jpg)")]
    if not images:
        raise tree.incomplete(f"images in '{above}'", advice)
    classes = [name for _, name, _ in images]
    names = tuple(sorted(set(classes)))
    split: RawSplit = by_class(
        [f"{name}_{file}" for _, name, file in images], [index for index, _, _ in images], classes, names
    )
    return RawDataset(store=tree.store, splits={"train": split}, names=names)


def smaller(content: bytes) -> bytes:
    """Return an image as a JPEG file of at most 120,000 pixels, as TFDS does, or raise ImageError if it is none."""
    pixels = decoded(content)
    if pixels is None or content.startswith(b"GIF"):
        pixels = read_image(content)  # as TFDS does: such an image is stored with red and blue exchanged
    count = pixels.shape[0] * pixels.shape[1]
    if count > SUN_PIXELS:
        factor = float(np.sqrt(SUN_PIXELS / count))
        pixels = cv2.resize(pixels, dsize=None, fx=factor, fy=factor)
    return cv2.imencode(".jpg", pixels)[1].tobytes()

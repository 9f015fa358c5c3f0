"""Diabetic Retinopathy Detection, with the preprocessing of the competition's winner of 2015 (B. Graham)."""

import csv
from pathlib import Path

import cv2
import numpy as np

from vitral.data.names import some
from vitral.data.published.tree import Tree
from vitral.data.stored import ConvertedImages
from vitral.errors import DataError, ImageError
from vitral_vtab.dataset import RawDataset, decoded, labelled

RADIUS = 300  # pixels, of an eye
REACH = 0.9  # the part of the radius that stays
QUALITY = 72  # of the JPEG files that TFDS makes
# The folder and the list of each split, and the value of the list's column "Usage".
SPLITS = {
    "train": ("train", "trainLabels.csv", None),
    "validation": ("test", "retinopathy_solution.csv", "Public"),
    "test": ("test", "retinopathy_solution.csv", "Private"),
}


def read_retinopathy(folder: Path) -> RawDataset:
    """Return the images of eyes; keys are their names, such as "4_left"."""
    tree = Tree(folder, "Diabetic Retinopathy Detection", {})
    images = {(match[1], match[2]): index for index, match in tree.matching(r"(train|test)/([^/]+)\.jpeg")}
    splits = {}
    for split, (below, file, usage) in SPLITS.items():
        rows = _rows(tree, file, usage)
        if missing := [f"{below}/{name}.jpeg" for name, _ in rows if (below, name) not in images]:
            raise tree.incomplete(f"{some(missing)}, named in {file}", f"unpack {below}.zip there")
        names = [name for name, _ in rows]
        splits[split] = labelled(names, [images[below, name] for name in names], [label for _, label in rows])
    return RawDataset(store=ConvertedImages(tree.store, graham), splits=splits)


def _rows(tree: Tree, file: str, usage: str | None) -> list[tuple[str, int]]:
    lines = tree.lines(tree.file(file, f"put {file} there"))
    try:
        rows = list(csv.DictReader(lines))
        return [(row["image"], int(row["level"])) for row in rows if usage is None or row["Usage"] == usage]
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(
            f"'{file}' in '{tree.title}' is no list of images with their levels; fetch it again."
        ) from error


def graham(content: bytes) -> bytes:
    """Return an eye as a JPEG file: scaled to one radius, minus the local average, cut to nine tenths of the radius.

    Raises:
        ImageError: it cannot be decoded.
    """
    pixels = decoded(content)
    if pixels is None:
        raise ImageError("The image is not a readable image.")
    middle = pixels[pixels.shape[0] // 2].sum(axis=1)
    radius = (middle > middle.mean() / 10).sum() / 2
    factor = RADIUS / (radius if radius >= 1 else pixels.shape[0] / 2)  # the radius cannot be read from a dark image
    scaled = cv2.resize(pixels, dsize=None, fx=factor, fy=factor)
    sharp = cv2.addWeighted(scaled, 4, cv2.GaussianBlur(scaled, (0, 0), RADIUS / 30), -4, 128)
    height, width = sharp.shape[:2]
    reach = int(RADIUS * REACH)
    mask = cv2.circle(np.zeros(sharp.shape), (width // 2, height // 2), reach, (1, 1, 1), thickness=-1)
    masked = (sharp * mask + (1 - mask) * 128).astype(np.uint8)
    top, left = max(height // 2 - reach, 0), max(width // 2 - reach, 0)
    cut = masked[top : height // 2 + reach, left : width // 2 + reach]
    return cv2.imencode(".jpg", cut, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()

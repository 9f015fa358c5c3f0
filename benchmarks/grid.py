"""Quick runs of the default command over sizes, classes, numbers of images and budgets: none at chance, none late.

    python benchmarks/grid.py [--cifar10 FOLDER] [--all | --cell 64,10,500,60 ...] [--seed 0] [--json results.json]

A cell is pixels a side, classes, training images, and seconds of --time. Its images are CIFAR-10's, resized and subsampled,
where FOLDER is given and has so many; otherwise generated ones: each class a coloured pattern, moved about under other
patterns and noise, of which a linear model learns a part. 0 pixels stand for the built-in digits. Images are JPEG files in
class folders, with up to a thousand test images of their own.

A cell fails if the command fails or misses its budget, or is at chance where a linear model on pixels is above it. Exit
status 1 if one did. What --json holds already, of the same version, is not run again.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import product
from kept import Kept, Run
from peers import pixels_accuracy, read
from PIL import Image

PIXEL_SIZES = (32, 16)
TEST_IMAGES = 1_000  # at most, and at most as many as a class has others
LEAST_TEST_IMAGES = 200
QUALITY = 95  # of the JPEG files
PATTERN = 6  # squares a side of a generated pattern, before it is smoothed


class Cell(NamedTuple):
    """Pixels a side, classes, training images and seconds; 0 pixels stand for the built-in digits."""

    size: int
    classes: int
    images: int
    seconds: float

    def __str__(self) -> str:
        if not self.size:
            return f"digits, {self.seconds:g} s"
        return f"{self.size} px, {self.classes} classes, {self.images:,} images, {self.seconds:g} s"


# 46 minutes of budgets: every size, number of classes and number of images at least twice, most budgets short.
CELLS = (
    Cell(0, 10, 1_259, 30),
    Cell(28, 2, 40, 30),
    Cell(28, 10, 1_000, 60),
    Cell(28, 10, 60_000, 180),
    Cell(32, 10, 500, 60),
    Cell(32, 10, 45_000, 300),
    Cell(32, 100, 5_000, 120),
    Cell(64, 2, 200, 60),
    Cell(64, 10, 2_000, 120),
    Cell(64, 100, 20_000, 300),
    Cell(96, 5, 100, 30),
    Cell(96, 20, 2_000, 180),
    Cell(128, 10, 500, 60),
    Cell(128, 50, 5_000, 300),
    Cell(224, 2, 40, 30),
    Cell(224, 10, 500, 120),
    Cell(224, 100, 2_000, 240),
    Cell(384, 2, 100, 60),
    Cell(384, 10, 200, 30),
    Cell(384, 20, 1_000, 180),
    Cell(384, 100, 500, 240),
)
SIZES, CLASSES, IMAGES = (28, 32, 64, 96, 224, 384), (2, 10, 100), (40, 500, 5_000, 60_000)
SECONDS = (30.0, 300.0, 3600.0)
MOST_PIXELS = 1e9  # of all the images of a cell of the whole grid: more would be gigabytes of files


def whole_grid() -> list[Cell]:
    """Return every cell with at least four training images a class, and no more pixels than fit."""
    cells = itertools.starmap(Cell, itertools.product(SIZES, CLASSES, IMAGES, SECONDS))
    return [cell for cell in cells if cell.images >= 4 * cell.classes and cell.size**2 * cell.images <= MOST_PIXELS]


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10's splits, as sources with an `image` and `labels`."""

    train: Any
    test: Any

    def covers(self, cell: Cell) -> bool:
        """Tell whether a cell can be filled with its images."""
        return 0 < cell.classes <= 10 and cell.images <= len(self.train) * cell.classes // 10

    def images(self, cell: Cell, split: str, rng: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
        """Return class and pixels of as many images as the cell wants, the same number of each class."""
        source = self.train if split == "train" else self.test
        labels = source.labels()
        for label, count in enumerate(shares(cell, split)):
            for index in rng.permutation(np.flatnonzero(labels == label))[:count]:
                whole = Image.fromarray(source.image(int(index)))
                yield label, np.asarray(whole.resize((cell.size, cell.size), Image.Resampling.BICUBIC))


def shares(cell: Cell, split: str) -> list[int]:
    """Return how many images of each class there are."""
    total = cell.images if split == "train" else min(TEST_IMAGES, max(LEAST_TEST_IMAGES, cell.images // 5))
    total = max(total, 2 * cell.classes)
    return [total // cell.classes + (label < total % cell.classes) for label in range(cell.classes)]


def generated(cell: Cell, split: str, rng: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
    """Return class and pixels of generated images: the class's pattern, moved, under one that is the image's own."""
    patterns = np.random.default_rng(0).random((cell.classes, PATTERN, PATTERN, 3))
    for label, count in enumerate(shares(cell, split)):
        for _ in range(count):
            moved = np.roll(
                smooth(patterns[label], cell.size), rng.integers(-cell.size // 8, cell.size // 8 + 1, 2), (0, 1)
            )
            mixed = moved + smooth(rng.random((PATTERN, PATTERN, 3)), cell.size) + 0.2 * rng.random(moved.shape)
            yield label, (255 * mixed / 2.2).astype(np.uint8)


def smooth(pattern: np.ndarray, size: int) -> np.ndarray:
    """Return a small pattern at a size, without edges."""
    small = Image.fromarray((255 * pattern).astype(np.uint8))
    return np.asarray(small.resize((size, size), Image.Resampling.BICUBIC)) / 255


def write(cell: Cell, cifar: Cifar | None, seed: int, folder: Path) -> str:
    """Write a cell's images as class folders in train/ and test/, and return what --data takes."""
    if not cell.size:
        return "digits"
    for split in ("train", "test"):
        rng = np.random.default_rng([seed, *map(int, cell), split == "test"])
        real = cifar is not None and cifar.covers(cell)
        images = cifar.images(cell, split, rng) if real else generated(cell, split, rng)
        for number, (label, pixels) in enumerate(images):
            target = folder / split / f"class-{label:03}"
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(target / f"{number:05}.jpg", quality=QUALITY)
    return str(folder)


def run(cell: Cell, cifar: Cifar | None, seed: int) -> Run:
    """Make a cell's images, fit a linear model on their pixels, and run the command."""
    from vitral.data.open import open_data

    with tempfile.TemporaryDirectory() as folder:
        data = write(cell, cifar, seed, Path(folder) / "images")
        splits = open_data(data, verify=False).splits
        learn, score = (read(splits[split], max(PIXEL_SIZES)) for split in ("train", "test"))
        linear, _ = pixels_accuracy(learn, score, PIXEL_SIZES)
        made = product.finetune(data, cell.seconds, seed, [])
    commonest = score.labels.bincount().max().item() / len(score)
    return {**made, "linear": linear, "scored": len(score), "commonest": commonest}


def verdict(cell: Cell, made: Run) -> str:
    """Return why a cell fails, or nothing."""
    if "failed" in made:
        return f"failed: {made['failed']}"
    if product.late(made["seconds"], cell.seconds):
        return f"late by {made['seconds'] - cell.seconds:.0f} s"
    ours, linear = (product.at_chance(made[name], made["scored"], made["commonest"]) for name in ("accuracy", "linear"))
    return "at chance, where a linear model is not" if ours and not linear else ""


def cell_of(text: str) -> Cell:
    """Read SIZE,CLASSES,IMAGES,SECONDS."""
    size, classes, images, seconds = text.split(",")
    return Cell(int(size), int(classes), int(images), float(seconds))


def main() -> None:
    """Run the cells, a line each, and say which failed."""
    from vitral.data.open import open_data

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar10", help="CIFAR-10, as `open_data` takes it")
    parser.add_argument("--all", action="store_true", help="the whole grid, which takes days")
    parser.add_argument("--cell", type=cell_of, action="append", help="pixels,classes,images,seconds; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cells, kept = options.cell or (whole_grid() if options.all else CELLS), Kept(options.json)
    splits = open_data(options.cifar10, verify=False).splits if options.cifar10 else {}
    cifar = Cifar(splits["train"], splits["test"]) if splits else None
    print(f"{len(cells)} cells, {sum(cell.seconds for cell in cells) / 60:.1f} minutes of --time", flush=True)
    print(f"{'cell':46}{'images':>11}{'chance':>8}{'linear':>8}{'ours':>8}{'took':>7}  what it was", flush=True)
    failed = []
    for cell in cells:
        real = "built-in" if not cell.size else "CIFAR-10" if cifar and cifar.covers(cell) else "generated"
        versions = {"torch": metadata.version("torch"), "vitral": product.version()}
        asked = {"cell": [*cell], "images": real, "seed": options.seed, "versions": versions}
        made = kept.get(asked, partial(run, cell, cifar, options.seed))
        why = verdict(cell, made)
        failed += [f"{cell}: {why}"] if why else []
        figures = f"{made['commonest']:8.1%}{made['linear']:8.1%}{made['accuracy']:8.1%}{made['seconds']:6.0f}s"
        print(f"{cell!s:46}{real:>11}{figures}  {made['chose']}{'  FAILED: ' if why else ''}{why}", flush=True)
    print("\n" + "\n".join(failed or ["No cell failed."]))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Training images per second on one core: Vitral's input against the torchvision pipeline that timm uses.

    python benchmarks/input_speed.py FOLDER [--rounds 5] [--size 224]

FOLDER holds photos, at any depth. The peer: Pillow decodes, PIL `RandomResizedCrop`, flip, to tensor, normalise, as timm's
create_transform without augmentation policy. Ours decodes, crops, resizes and flips to 8 bits, which is all that a worker does:
normalisation is the device's. Both in one thread, in turns; the figure is the ratio of the medians.
"""

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np
import torch
from PIL import Image
from torchvision import transforms

from vitral.images.augment import Augmentation, training_view
from vitral.images.decode import Pixels, Shrink, read_image


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    paths = sorted(path for path in options.folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    size = (options.size, options.size)
    peer = transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale=(0.08, 1.0), interpolation=transforms.InterpolationMode.BILINEAR),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5,) * 3, (0.5,) * 3),
        ]
    )

    def theirs(path: Path, number: int) -> None:
        with Image.open(path) as image:
            peer(image.convert("RGB"))

    def ours(how: Augmentation, path: Path, number: int) -> None:
        def read(shrink: Shrink | None) -> Pixels:
            return read_image(path, shrink=shrink)

        training_view(read, how, size=size, rng=np.random.default_rng(number))

    kinds: dict[str, Callable[[Path, int], None]] = {
        "torchvision, as timm": theirs,
        "Vitral": functools.partial(ours, Augmentation(crop="resized", min_area=0.08)),
        "Vitral, decode=scaled": functools.partial(ours, Augmentation(crop="resized", min_area=0.08, decode="scaled")),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(options.rounds + 1):
        for name, prepare in kinds.items():
            start = time.perf_counter()
            for number, path in enumerate(paths):
                prepare(path, number + turn)
            if turn:  # the first round only warms up
                rates[name].append(len(paths) / (time.perf_counter() - start))
    versions = {name: metadata.version(name) for name in ("torchvision", "pillow", "simplejpeg")}
    print(f"{len(paths)} photos to {options.size} pixels, one thread, {versions}")
    base = statistics.median(rates["torchvision, as timm"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"{name}: {rate:.0f} images/s, {rate / base:.2f} times")


if __name__ == "__main__":
    main()

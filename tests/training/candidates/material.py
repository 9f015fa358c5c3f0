"""What the tests here learn from, and how they end a run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.events import Event, Message
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.position import PositionKind
from vitral.models.vit_config import ViTConfig

SIZE = 16
TINY = ViTConfig(image_size=(SIZE, SIZE), patch_size=(4, 4), dim=64, depth=1, mlp_dim=64, num_heads=2, num_classes=5)


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def shades(folder: Path, count: int = 20, *, apart: int = 140) -> Path:
    """Dark and light images: what a linear model on pixels tells at once; of noise alone where they are not apart."""
    random = np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", apart)):
        for index in range(count):
            write(folder / name / f"{index}.png", random.integers(low, low + 100, (SIZE, SIZE, 3)))
    return folder


def stripes(folder: Path, count: int = 60, *, seed: int = 0) -> Path:
    """Rows and columns of stripes, of any phase and sign: no linear model on pixels tells them apart."""
    random = np.random.default_rng(seed)
    for name in ("columns", "rows"):
        for index in range(count):
            wave = np.sin(2 * np.pi * (np.arange(SIZE) / 4 + random.random()))
            plane = np.broadcast_to(wave, (SIZE, SIZE))
            plane = plane if name == "columns" else plane.T
            noise = random.normal(0, 8, (SIZE, SIZE, 3))
            write(folder / name / f"{index}.png", np.clip(128 + 80 * plane[:, :, None] + noise, 0, 255))
    return folder


def a_start(folder: Path, *, depth: int = 1, position: PositionKind = "learned") -> Path:
    """Save a classifier whose features are of some use."""
    config = replace(TINY, depth=depth, position=position)
    return save(Classifier(build(config, seed=2), PHOTOS.with_size((SIZE, SIZE))), folder)


class Killed(BaseException):
    """Stands for the end of a process."""


def at_message(text: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Message) and text in event.text


def killed_when(meets: Callable[[Event], bool]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if meets(event):
            raise Killed

    return listen

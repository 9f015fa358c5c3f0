"""The first commands of a user, with an installed Vitral on any system: `python first_commands.py FOLDER`.

It takes nothing from this repository, so that a wheel alone can be tried, and ends with status 0 where all went well.
"""

import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from vitral.cli.main import main

CLASSES = 3
SIDE = 24  # pixels
TRAINED = (
    *("finetune", "--data", "photos", "--from", "vit-mu4", "--image-size", "24", "--out", "runs/photos"),
    *("--set", "workers=1", "--set", "batch_size=6", "--set", "checkpoint.every_steps=5"),
)
COMMANDS = (
    ("check", "photos"),
    ("finetune", "--data", "photos", "--quick", "--out", "runs/quick"),
    (*TRAINED, "--set", "steps=10"),
    (*TRAINED, "--set", "steps=15", "--resume"),
    ("evaluate", "--classifier", "runs/photos", "--data", "photos", "--report", "scores.html"),
    ("predict", "photos/val", "--classifier", "runs/photos", "--out", "answers.csv"),
    ("explain", "photos/val", "--classifier", "runs/photos", "--out", "maps.html"),
)
WRITTEN = (
    "runs/photos/report.html",
    "runs/photos/classifier/classifier.json",
    "scores.html",
    "answers.csv",
    "maps.html",
)


def write_photos(folder: Path) -> None:
    """Write stripes in as many directions as there are classes, 10 images a class to train on and 4 to validate."""
    rng = np.random.default_rng(0)
    down, right = np.mgrid[:SIDE, :SIDE]
    for split, count in (("train", 10), ("val", 4)):
        for turn in range(CLASSES):
            (folder / split / f"turned {turn}").mkdir(parents=True)
            for number in range(count):
                along = down * np.sin(np.pi * turn / CLASSES) + right * np.cos(np.pi * turn / CLASSES)
                wave = 128 + 90 * np.sin(along + rng.uniform(0, 6))[:, :, None] + rng.normal(0, 20, (SIDE, SIDE, 3))
                image = Image.fromarray(wave.clip(0, 255).astype(np.uint8))
                image.save(folder / split / f"turned {turn}" / f"{number}.png")


def run() -> dict[str, int]:
    """Give the commands in the current folder, and return the status of each, and 1 for each file that is not there."""
    write_photos(Path("photos"))
    statuses = {" ".join(command): main(command) for command in COMMANDS}
    return statuses | {name: 0 if Path(name).is_file() else 1 for name in WRITTEN}


if __name__ == "__main__":  # and not in the processes that prepare images
    os.chdir(sys.argv[1])
    failed = [name for name, status in run().items() if status]
    print(f"failed: {failed}" if failed else "All commands ended well.")
    sys.exit(bool(failed))

"""Whether the short trainings that doubt how images vary are right: what the default's choice of views rests on.

    python benchmarks/views.py FOLDER... [--seeds 0 1 2] [--seconds 60] [--trained] [--passes 30] [--csv views.csv]

FOLDER is what `open_data` takes. For each seed the trials of `starting.view_trials` are made as the command makes them, and
printed with how many standard errors the networks without each doubted thing are better. --trained then trains the default's
network at 32 pixels with each combination for so many passes, and scores it on the test images: what a trial was to tell
beforehand. It takes minutes a set.
"""

import argparse
import csv
import math
import time
from itertools import product as combinations
from pathlib import Path
from typing import Any

import product

COLUMNS = ("set", "images", "classes", "seed", "doubt", "answers", "kept", "left_out", "errors", "seconds")


def trials(data: str, seed: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each thing in doubt."""
    from vitral.data.open import open_data
    from vitral.training.choose.network import COARSE, doubts, views
    from vitral.training.starting.view_trials import try_views

    opened = open_data(data, verify=False)
    usual = views(opened.augmentation, COARSE)
    start = time.perf_counter()
    found = try_views(opened, usual, doubts(usual, ()), seconds, seed=seed)
    taken = round(time.perf_counter() - start)
    return [
        {
            "set": Path(data).name,
            "images": len(opened.splits["train"]),
            "classes": len(opened.class_names),
            "seed": seed,
            "doubt": name,
            "answers": tried.answers,
            "kept": f"{tried.kept / tried.answers:.3f}",
            "left_out": f"{tried.left_out / tried.answers:.3f}",
            "errors": f"{(tried.left_out - tried.kept) / math.sqrt(max(tried.different, 1)):.1f}",
            "seconds": taken,
        }
        for name, tried in found.items()
    ]


def trained(data: str, seed: int, passes: float) -> list[str]:
    """Return a line with the test accuracy for each combination of views."""
    lines = []
    for area, flip in combinations((0.35, 0.9), ("alternating", "false")):
        changes = [f"augmentation.min_area={area}", f"augmentation.flip={flip}", f"epochs={passes:g}"]
        more = ["--no-baselines", "--image-size", "32", *(word for change in changes for word in ("--set", change))]
        made = product.finetune(data, None, seed, more)
        lines.append(f"{Path(data).name}, seed {seed}: area {area}, flip {flip}: {made['accuracy']:.1%}")
    return lines


def main() -> None:
    """Make the trials of every set and seed, and write them as CSV if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=60.0, help="that the trials of a set may take")
    parser.add_argument("--trained", action="store_true", help="train with each combination, too")
    parser.add_argument("--passes", type=float, default=30.0)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for data in options.data:
        for seed in options.seeds:
            for row in trials(data, seed, options.seconds):
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                rows.append(row)
            for line in trained(data, seed, options.passes) if options.trained else ():
                print(line, flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

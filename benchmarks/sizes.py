"""At which size images teach a network most from scratch for the same arithmetic: what the default's choice rests on.

    python benchmarks/sizes.py FOLDER... [--passes 10 40] [--sizes 48 64 96 128] [--seed 0] [--json results.json]
        [--csv docs/sizes.csv]

FOLDER is what `open_data` takes; `part:25%:FOLDER` has fewer training images. Each run is `vitral finetune` at a size, so long
that it multiplies as often as that many passes over the images at 64 pixels; it takes no time budget, so that the machine's
speed does not matter, and several of these commands may share it. All are scored on the whole test split, or the validation
split where there is none. What --json holds already, of the same versions, is not run again. --csv writes the table that
`vitral.training.choose.network` is held against.
"""

import argparse
import csv
import math
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import product
from kept import Kept, Run

REFERENCE = 64  # pixels, of the passes that are said
PASSES, SIZES = (10.0, 40.0), (48, 64, 96, 128)
COLUMNS = ("set", "images", "classes", "side", "scored", "size", "passes", "accuracy", "arithmetic")


def run(data: str, passes: float, seed: int, size: int) -> Run:
    """Make one run."""
    more = ["--no-baselines", "--image-size", str(size), "--set", f"epochs={passes:g}", "--set", "fit_to_data=false"]
    return product.finetune(data, None, seed, more)


def question(data: str, passes: float, seed: int, size: int) -> dict[str, Any]:
    """Return what a kept run must have answered."""
    versions = {"torch": metadata.version("torch"), "vitral": product.version()}
    return {"data": data, "passes": passes, "seed": seed, "size": size, "versions": versions}


def table(runs: dict[float, dict[int, Run]], learned: int) -> list[str]:
    """Return a line for each amount of arithmetic, a column for each size: accuracy, and how often each image was seen."""
    lines = [f"  {'':>10}" + "".join(f"{f'{size} px':>12}{'passes':>7}" for size in next(iter(runs.values())))]
    for passes, made in runs.items():
        cells = "".join(f"{one['accuracy']:>12.1%}{one['images'] / learned:>7.1f}" for one in made.values())
        lines.append(f"  {passes:>10g}{cells}")
    return lines


def main() -> None:
    """Run every size on every folder, and print a table of each folder."""
    from vitral.data.open import open_data
    from vitral.training.choose.network import ENLARGED
    from vitral.training.facts import median_sides

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--passes", nargs="+", type=float, default=PASSES)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="pixels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    kept, lines = Kept(options.json), []
    for data in options.data:
        opened = open_data(data, verify=False)
        train, score = opened.splits["train"], opened.splits[opened.scored_split()]
        (side, _), learned = median_sides(train, detailed=False), len(train)
        runs: dict[float, dict[int, Run]] = {}
        for passes in options.passes:
            for size in (size for size in options.sizes if size <= ENLARGED * side):
                seen = passes * (REFERENCE / size) ** 2
                made = kept.get(question(data, seen, options.seed, size), partial(run, data, seen, options.seed, size))
                runs.setdefault(passes, {})[size] = made
                own = (Path(data).name, learned, len(opened.class_names), round(side), len(score))
                lines.append([*own, size, f"{made['images'] / learned:.2f}", f"{made['accuracy']:.4f}", f"{passes:g}"])
        spread = 50 / math.sqrt(len(score))
        about = f"{learned:,} images of {len(opened.class_names)} classes, {side:.0f} pixels; {len(score):,} to score"
        print(f"{data}: {about}, at most {spread:.1f} points of standard error")
        print("\n".join(table(runs, learned)), flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


if __name__ == "__main__":
    main()

"""Whether images that `vitral select` chooses teach more than others: a linear head before and after they are labelled.

    python benchmarks/selection.py FEATURES.npz... [--csv docs/selection.csv]

Each file holds train_x, train_y, test_x and test_y. Five images a class are labelled; of 2,000 others as many again are chosen:
by chance, by margin alone, by distance alone, and by their product, which is `vitral.select_images`. Mean accuracy on at most
1,000 test images, and its standard deviation, over five draws of the first images.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitral.classifier.novelty import KnownImages, Space
from vitral.deployment.select_images import select, unsureness
from vitral.evaluation.probes import fit_probe, sharpness
from vitral.evaluation.unknown_classes import ranks

FIRST, OTHERS, TEST, DRAWS = 5, 2000, 1000, 5
HEADER = ("data", "classes", "chosen", "way", "accuracy", "deviation")


def draw(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, seed: int) -> dict[str, float]:
    """Return the accuracy by way of one draw of the first images."""
    classes = int(labels.max()) + 1
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    first, rest = order[ranks(labels[order]) < FIRST], order[ranks(labels[order]) >= FIRST][:OTHERS]
    probe = fit_probe(train[first], labels[first], classes=classes)
    scores = sharpness(probe.left_out, labels[first]) * (train[rest].double() @ probe.weight.T + probe.bias)
    unsure, count = unsureness(scores.softmax(dim=1).float()), min(FIRST * classes, len(rest) // 3)
    space = Space(KnownImages(train[first], labels[first], torch.zeros(len(first), dtype=torch.bool)))
    ways = {
        "none": torch.arange(0),
        "chance": torch.arange(count),
        "margin": unsure.argsort(descending=True)[:count],
        "distance": select(space, train[rest], torch.ones(len(rest)), count),
        "vitral": select(space, train[rest], unsure, count),
    }
    found = {}
    for way, chosen in ways.items():
        rows = torch.cat([first, rest[chosen]])
        found[way] = fit_probe(train[rows], labels[rows], classes=classes).accuracy(test, truth)
    return found


def main() -> None:
    """Measure every way on all features, and write a row for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for path in options.features:
        with np.load(path) as file:
            train, labels, test, truth = (
                torch.from_numpy(file[key]) for key in ("train_x", "train_y", "test_x", "test_y")
            )
        some = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:TEST]
        draws = [draw(train, labels, test[some], truth[some], seed) for seed in range(DRAWS)]
        classes = int(labels.max()) + 1
        for way in draws[0]:
            figures = [one[way] for one in draws]
            count = 0 if way == "none" else FIRST * classes
            rows.append((path.stem, classes, count, way, f"{np.mean(figures):.3f}", f"{np.std(figures):.3f}"))
            print(*rows[-1], sep=",", flush=True)
    with open(options.csv, "w", newline="") if options.csv else sys.stdout as file:
        csv.writer(file).writerows([HEADER, *rows])


if __name__ == "__main__":
    main()

"""What helps rare classes: sets made unequal on purpose, 1 : 10 and 1 : 30, three draws each.

    python benchmarks/unequal.py FEATURES.npz...            linear models in closed form, seconds
    python benchmarks/unequal.py FOLDER... --set KEY=VALUE  small networks from random weights, minutes

FEATURES.npz holds frozen features and classes of one set: train_x (images, features), train_y, test_x, test_y; FOLDER has
train/ and test/ with a folder a class. The classes get, in an order of the seed, numbers of training images that fall
geometrically from the smallest class's own to 1 : RATIO of that. The test images stay as they are: accuracy is what they would
give if their classes were as unequal as the training images', balanced accuracy the mean of the recalls, rare that of the rare
classes.

    plain            every image has the same weight
    weights          every class has the same weight (in closed form, or objective.class_weights=balanced)
    default          weights unless the left-out training images refute them (objective.class_weights=auto)
    adjusted         plain, logits adjusted by tau = 1 (objective.posthoc_adjustment=1)
    adjusted-auto    adjusted where a tenth of the images, for validation, shows it to pay: the default of trained networks
    loss, sampling   training alone: objective.logit_adjustment=1, sampling=class-balanced
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import vitral
from vitral.evaluation.probes import LinearProbe, fit_rebalanced, sharpness
from vitral.evaluation.rebalanced import rebalanced
from vitral.events import ignore
from vitral.objectives.unequal import ClassWeights, log_prior
from vitral.tasks.class_sizes import ClassSizes

SEEDS = 3
VALIDATION = 0.1
ARMS = {
    "plain": (),
    "weights": ("objective.class_weights=balanced",),
    "adjusted": ("objective.posthoc_adjustment=1",),
    "adjusted-auto": ("objective.posthoc_adjustment=auto",),
    "loss": ("objective.logit_adjustment=1",),
    "sampling": ("sampling=class-balanced",),
}
PLAIN = ("objective.class_weights=none", "objective.posthoc_adjustment=0")

Counts = tuple[int, ...]
Figures = tuple[
    float, float, float
]  # accuracy in the training images' shares, balanced accuracy, recall of the rare classes


def thinned(labels: Int64[np.ndarray, " images"], ratio: float, rng: np.random.Generator) -> Int64[np.ndarray, " kept"]:
    """Return the images that are kept, class by class."""
    counts = np.bincount(labels)
    kept = []
    for place, number in enumerate(rng.permutation(len(counts))):
        most = max(1, round(counts.min() * ratio ** (-place / (len(counts) - 1))))
        kept.append(rng.permutation(np.flatnonzero(labels == number))[:most])
    return np.concatenate(kept)


def halves(labels: Int64[np.ndarray, " images"], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return the images to fit on, and a tenth of every class of three images or more, at least one, for validation."""
    validation = []
    for number in np.unique(labels):
        mine = rng.permutation(np.flatnonzero(labels == number))
        validation.append(mine[: max(1, round(VALIDATION * len(mine))) if len(mine) > 2 else 0])
    left = np.concatenate(validation)
    return torch.from_numpy(np.setdiff1d(np.arange(len(labels)), left)), torch.from_numpy(left)


def figures(recall: Float[np.ndarray, " classes"], counts: Counts) -> Figures:
    shares, rare = np.array(counts) / sum(counts), list(ClassSizes(counts).rare)
    return float(shares @ recall), float(recall.mean()), float(recall[rare].mean())


def logits(probe: LinearProbe, features: Tensor, labels: Tensor) -> Tensor:
    return sharpness(probe.left_out, labels) * (features.double() @ probe.weight.T + probe.bias)


def closed_form(file: Path, ratio: float, seed: int) -> dict[str, Figures]:
    """Return the figures of each way to fit a linear model on one draw."""
    kept, rng = np.load(file), np.random.default_rng(seed)
    drawn = thinned(kept["train_y"], ratio, rng)
    features, labels = torch.from_numpy(kept["train_x"][drawn]), torch.from_numpy(kept["train_y"][drawn])
    fit, left = halves(labels.numpy(), rng)
    test, truth = torch.from_numpy(kept["test_x"]), kept["test_y"]
    classes = int(truth.max()) + 1
    counts = tuple(torch.bincount(labels[fit], minlength=classes).tolist())
    ways: tuple[ClassWeights, ...] = ("none", "balanced")
    plain, weighed = (fit_rebalanced(features[fit], labels[fit], classes=classes, weigh=weigh) for weigh in ways)
    assert weighed.rebalanced is not None, "the classes are unequal"
    refuted = weighed.rebalanced.refuted
    known = logits(plain, features[left], labels[fit])
    now = (known - log_prior(counts)).argmax(1) == labels[left]
    pays = rebalanced(known.argmax(1) == labels[left], now, labels[left]).pays
    scores = {name: logits(probe, test, labels[fit]) for name, probe in (("plain", plain), ("weights", weighed))}
    scores["default"] = scores["plain" if refuted else "weights"]
    scores["adjusted"] = scores["plain"] - log_prior(counts)
    scores["adjusted-auto"] = scores["adjusted" if pays else "plain"]
    found = {name: score.argmax(1).numpy() for name, score in scores.items()}
    recalls = {
        name: np.array([(answer[truth == k] == k).mean() for k in range(classes)]) for name, answer in found.items()
    }
    return {name: figures(recall, counts) for name, recall in recalls.items()}


def trained(folder: Path, ratio: float, seed: int, source: str | None, changes: list[str]) -> dict[str, Figures]:
    """Return the figures of each way to train a network on one draw."""
    listed = [(path, name.name) for name in sorted((folder / "train").iterdir()) for path in sorted(name.iterdir())]
    names = sorted({name for _, name in listed})
    labels = np.array([names.index(name) for _, name in listed])
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for index in thinned(labels, ratio, np.random.default_rng(seed)):
            path, name = listed[index]
            target = Path(place) / "data" / "train" / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())
        (Path(place) / "data" / "test").symlink_to((folder / "test").resolve())
        for name, own in ARMS.items():
            result = vitral.finetune(
                Path(place) / "data",
                source=source,
                recipe="scratch",
                baselines=False,
                out=Path(place) / name,
                overrides=[*PLAIN, f"seed={seed}", *changes, *own],
                listener=ignore,
            )
            scores = result.evaluation.to_json()
            recall = np.array([value or 0.0 for value in scores["recall"]])
            found[name] = figures(recall, tuple(scores["class_images"]))
    return found


def table(title: str, made: list[dict[str, Figures]]) -> Iterator[str]:
    yield f"{title:34}{'accuracy':>10}{'balanced':>10}{'rare':>8}"
    for name in made[0]:
        means = 100 * np.mean([one[name] for one in made], axis=0)
        yield f"  {name:32}{means[0]:10.1f}{means[1]:10.1f}{means[2]:8.1f}"


def main() -> None:
    """Print a table of every set and ratio, and one of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--ratios", nargs="+", type=int, default=[10, 30])
    parser.add_argument("--from", dest="source", help="the network that is trained, such as vit-mu4")
    parser.add_argument(
        "--set", dest="changes", nargs="+", default=[], help="settings of the training, such as steps=400"
    )
    asked = parser.parse_args()
    every: dict[int, list[dict[str, Figures]]] = {ratio: [] for ratio in asked.ratios}
    for place in asked.sets:
        for ratio in asked.ratios:
            make = partial(trained, source=asked.source, changes=asked.changes) if place.is_dir() else closed_form
            made = [make(place, ratio, seed) for seed in range(SEEDS)]
            every[ratio] += made
            sys.stdout.write("\n".join(table(f"{place.stem}, 1 : {ratio}", made)) + "\n")
            sys.stdout.flush()
    for ratio, made in every.items():
        sys.stdout.write("\n".join(table(f"all {len(asked.sets)} sets, 1 : {ratio}", made)) + "\n")


if __name__ == "__main__":
    main()

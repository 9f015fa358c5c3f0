"""Which head that needs no training is best on frozen features, by images a class: what the first classifier rests on.

    python benchmarks/heads.py FEATURES... [--per-class 1 2 5 10 25 50] [--seeds 3] [--most 500] [--csv docs/heads.csv]

FEATURES are files SET__NETWORK__PIXELS.npz of `train_x` (images, features), `train_y`, `test_x`, `test_y`; with `train_m` and
`test_m`, the mean of the patches beside the class token, there are rows of both together, too. Each seed draws that many images
of every class (all of a class that has fewer), and every head sees the same. At most --most test images are scored, drawn once.
Accuracy and cross-entropy are means over the seeds; the seconds of a fit are good for ratios alone where the machine is busy.
What --csv holds already is not measured again. At the end stand the means over all sets of features that have so many images.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from vitral.evaluation.heads import fit_head
from vitral.evaluation.probes import LinearProbe, fit_probe, sharpness

COLUMNS = ("set", "network", "pixels", "per_class", "images", "head", "accuracy", "cross_entropy", "seconds")
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # of the logistic regression whose C is chosen
FOLDS = 3

Array = np.ndarray
Head = Callable[[Array, Array, Array], Array]  # training features, their classes, test features: probabilities of those


def answers(probe: LinearProbe, test: Array, factor: float = 1.0) -> Array:
    """Return the probabilities of a linear layer."""
    return torch.softmax(factor * (torch.from_numpy(test) @ probe.weight.T + probe.bias), dim=1).numpy()


def directions(train: Array, labels: Array, test: Array) -> Array:
    """Ours: ridge regression on directions, the penalty by the likelihood of what is left out."""
    return answers(fit_head(torch.from_numpy(train), torch.from_numpy(labels)), test)


def ridge(train: Array, labels: Array, test: Array) -> Array:
    """Ridge regression of features divided by their own deviations, the penalty by leave-one-out accuracy."""
    truth = torch.from_numpy(labels)
    probe = fit_probe(torch.from_numpy(train), truth)
    return answers(probe, test, sharpness(probe.left_out, truth))


def plain_logistic(train: Array, labels: Array, test: Array) -> Array:
    """What twenty lines of scikit-learn have."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, labels).predict_proba(test)


def logistic(train: Array, labels: Array, test: Array) -> Array:
    """Logistic regression on directions, its C by cross-validation where every class has two images."""
    lengths = np.linalg.norm(train, axis=1, keepdims=True)
    mean = (train / lengths).mean(axis=0)
    scale = np.sqrt(((train / lengths - mean) ** 2).mean())
    _, _, axes = np.linalg.svd(train / lengths - mean, full_matrices=False)
    known, asked = ((each - mean) @ axes.T / scale for each in (train / lengths, test / lengths.mean()))
    folds = min(FOLDS, int(np.bincount(labels).min()))
    strength = 1.0
    if folds > 1:
        parts = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(known, labels))
        losses = []
        for each in STRENGTHS:
            left_out = [LogisticRegression(C=each).fit(known[a], labels[a]).predict_proba(known[b]) for a, b in parts]
            losses.append(log_loss(np.concatenate([labels[b] for _, b in parts]), np.concatenate(left_out)))
        strength = STRENGTHS[int(np.argmin(losses))]
    return LogisticRegression(C=strength).fit(known, labels).predict_proba(asked)


def prototypes(train: Array, labels: Array, test: Array) -> Array:
    """The nearest class mean by cosine, about the mean of all; without probabilities."""
    mean = normalize(train).mean(axis=0)
    known, asked = normalize(normalize(train) - mean), normalize(normalize(test) - mean)
    means = np.stack([known[labels == name].mean(axis=0) for name in range(int(labels.max()) + 1)])
    return asked @ normalize(means).T


def neighbours(train: Array, labels: Array, test: Array) -> Array:
    """The five nearest images by cosine; without probabilities worth the name."""
    count = min(5, len(train))
    return KNeighborsClassifier(count, metric="cosine", weights="distance").fit(train, labels).predict_proba(test)


def discriminant(train: Array, labels: Array, test: Array) -> Array:
    """Linear discriminant analysis, its covariance shrunk as Ledoit and Wolf do; without probabilities of single images."""
    if np.bincount(labels).min() < 2:
        return prototypes(train, labels, test)
    axes = np.linalg.svd(train - train.mean(axis=0), full_matrices=False)[2].T
    fitted = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(train @ axes, labels)
    return fitted.predict_proba(test @ axes)


HEADS: dict[str, Head] = {
    "directions": directions,
    "ridge": ridge,
    "scikit-learn": plain_logistic,
    "logistic": logistic,
    "prototypes": prototypes,
    "neighbours": neighbours,
    "discriminant": discriminant,
}
CALIBRATED = ("directions", "ridge", "scikit-learn", "logistic")


def inputs(file: Path, most: int) -> dict[str, tuple[Array, Array, Array, Array]]:
    """Return by network the training features with their classes, and the test features with theirs."""
    kept = np.load(file)
    network, labels, truth = file.stem.split("__")[1], kept["train_y"].astype(np.int64), kept["test_y"].astype(np.int64)
    shown = np.random.default_rng(0).permutation(len(truth))[:most]
    train, test = kept["train_x"].astype(np.float64), kept["test_x"].astype(np.float64)[shown]
    found = {network: (train, labels, test, truth[shown])}
    if "train_m" in kept:
        both = np.hstack([train, kept["train_m"]]), np.hstack([test, kept["test_m"][shown]])
        found[f"{network} and patches"] = (both[0], labels, both[1], truth[shown])
    return found


def measure(given: tuple[Array, Array, Array, Array], per_class: int, seeds: int) -> list[tuple[str | int, ...]]:
    """Return the columns from the number of images on, a row a head."""
    train, labels, test, truth = given
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in HEADS}
    images = 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        rows = [random.permutation(np.flatnonzero(labels == name))[:per_class] for name in range(int(labels.max()) + 1)]
        drawn = np.concatenate(rows)
        images = len(drawn)
        for name, head in HEADS.items():
            began = time.perf_counter()
            scores = head(train[drawn], labels[drawn], test)
            seconds = time.perf_counter() - began
            loss = -np.log(scores[np.arange(len(truth)), truth].clip(1e-12)).mean() if name in CALIBRATED else np.nan
            found[name].append((float((scores.argmax(axis=1) == truth).mean()), float(loss), seconds))
    rows = []
    for name, each in found.items():
        accuracy, loss, seconds = np.mean(each, axis=0)
        rows.append((images, name, f"{accuracy:.4f}", "" if np.isnan(loss) else f"{loss:.3f}", f"{seconds:.2f}"))
    return rows


def summary(rows: list[dict[str, str]]) -> list[str]:
    """Return the means over all sets of features, a line for each number of images a class."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        for per_class in sorted({int(row["per_class"]) for row in rows}):
            some = [row for row in rows if row["network"] == network and int(row["per_class"]) == per_class]
            cells = []
            for head in HEADS:
                own = [row for row in some if row["head"] == head]
                mean = np.mean([100 * float(row["accuracy"]) for row in own]) if own else np.nan
                losses = [float(row["cross_entropy"]) for row in own if row["cross_entropy"]]
                cells.append(f"{head} {mean:.1f}" + (f" ({np.mean(losses):.2f})" if losses else ""))
            if some:
                lines.append(f"{network}, {per_class} a class, {len(some) // len(HEADS)} sets: " + ", ".join(cells))
    return lines


def main() -> None:
    """Measure every set of features, a row in the table as soon as it is known, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", type=Path)
    parser.add_argument("--per-class", nargs="+", type=int, default=(1, 2, 5, 10, 25, 50))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=500, help="test images")
    parser.add_argument("--csv", type=Path, default=Path("docs/heads.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "The number of unique classes")  # of one image a class
    if not options.csv.exists():
        options.csv.write_text(",".join(COLUMNS) + "\n")
    for per_class in options.per_class:
        for file in options.features:
            name, _, pixels = file.stem.split("__")
            for network, given in inputs(file, options.most).items():
                made = {tuple(row[:4]) for row in csv.reader(options.csv.read_text().splitlines())}
                own = (name, network, pixels, str(per_class))
                if own in made or np.bincount(given[1]).max() < per_class:
                    continue
                with options.csv.open("a", newline="") as table:
                    writer = csv.writer(table, lineterminator="\n")
                    writer.writerows((*own, *row) for row in measure(given, per_class, options.seeds))
    print("\n".join(summary(list(csv.DictReader(options.csv.read_text().splitlines())))))


if __name__ == "__main__":
    main()

"""Which distance tells images of no known class: each class of a dataset is left out, and its test images are to be told.

    python benchmarks/unknown_classes.py DATA... [--from START] [--image-size 126] [--seed 0]
        [--csv docs/unknown_classes.csv]

DATA is what `open_data` takes, read by the start's features; or an .npz file of such features (train_x, train_y, test_x and
test_y). Nothing of a class that is left out is seen: neither by the head, nor by the covariance, nor among the neighbours. Of
more than 12 classes an eighth is left out at a time. `accepted` is at the distance that 95 % of the known test images keep.

    max-probability, max-logit, energy   of the linear probe (arXiv 1610.02136, 1911.11132, 2010.03759)
    mahalanobis, relative-mahalanobis    shared covariance, shrunk (arXiv 1807.03888, 2106.09022)
    cosine-N                             the Nth neighbour's (arXiv 2204.06507)
    whitened-cosine-N                    the same after whitening within the classes
    vim                                  residual outside of the principal space beside the energy (arXiv 2203.10807)
    vitral                               mahalanobis or whitened-cosine-1, by the known classes: what a run delivers; the
                                         shares at its own limit, and last the share of unknown images that it says it accepts
"""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional

from vitral.classifier.novelty import whitening
from vitral.evaluation.probes import fit_probe, sharpness
from vitral.evaluation.unknown_classes import ranks, remembered, set_limit

Features = tuple[Tensor, Tensor, Tensor, Tensor]  # of training images, their labels, of test images, their labels
FEW, PARTS = 12, 8
KNOWN = 0.95  # of the known images, that are accepted
MOST_TEST = 600
HEADER = ("data", "images_a_class", "method", "auroc", "unknown_accepted", "known_refused", "said_accepted")


def scores(train: Tensor, labels: Tensor, test: Tensor) -> dict[str, Tensor]:
    """Return how unlike the training images each test image is, by every method."""
    probe = fit_probe(train, labels)
    scale = sharpness(probe.left_out, labels)
    logits, own = (scale * (values @ probe.weight.T + probe.bias) for values in (test, train))
    white = whitening(train, labels)
    mean = train.mean(dim=0)
    means = torch.stack([train[labels == label].mean(dim=0) for label in labels.unique()])
    near = torch.cdist((test - mean) @ white, (means - mean) @ white).square().min(dim=1).values
    background = ((test - mean) @ whitening(train, torch.zeros_like(labels))).square().sum(dim=1)
    plain = _cosines(test - mean, train - mean)
    whitened = _cosines((test - mean) @ white, (train - mean) @ white)
    found = {
        "max-probability": -logits.softmax(dim=1).max(dim=1).values,
        "max-logit": -logits.max(dim=1).values,
        "energy": -logits.logsumexp(dim=1),
        "mahalanobis": near,
        "relative-mahalanobis": near - background,
        "vim": _vim(train - mean, test - mean, own, logits),
    }
    for count in (1, 5):
        found |= {f"cosine-{count}": -plain[:, count - 1], f"whitened-cosine-{count}": -whitened[:, count - 1]}
    return found


def _cosines(test: Tensor, train: Tensor) -> Tensor:
    return (functional.normalize(test, dim=1) @ functional.normalize(train, dim=1).T).topk(5, dim=1).values


def _vim(train: Tensor, test: Tensor, own: Tensor, logits: Tensor) -> Tensor:
    _, vectors = torch.linalg.eigh(train.T @ train)
    residual = vectors[:, : train.shape[1] // 2]  # of the least variance
    lengths = [(values @ residual).norm(dim=1) for values in (train, test)]
    return lengths[1] * own.max(dim=1).values.mean() / lengths[0].mean() - logits.logsumexp(dim=1)


def left_out(labels: Tensor) -> Iterator[Tensor]:
    """Give the classes that are left out together, in turn."""
    classes = labels.unique()
    yield from classes.split(1) if len(classes) <= FEW else classes[torch.randperm(len(classes))].chunk(PARTS)


def few(labels: Tensor, most: int | None) -> Tensor:
    """Return the images of each class, at most so many."""
    order = torch.randperm(len(labels))
    return order[ranks(labels[order]) < (most or len(labels))]


Figures = tuple[float, float, float, float]  # AUROC, unknown images accepted, known ones refused, and what is said


def ours(train: Tensor, labels: Tensor, test: Tensor, new: Tensor, seed: int) -> Figures | None:
    """Return the figures of what a run delivers; None where it delivers none."""
    known = remembered(train, labels, seed=seed)
    limit = set_limit(known, [str(label) for label in range(int(labels.max()) + 1)], learned=False)
    if limit is None:
        return None
    score = known.space.novelty(test, limit.distance)
    beyond = (score > limit.threshold).double()
    return float(roc_auc_score(new, score)), float(1 - beyond[new].mean()), float(beyond[~new].mean()), limit.accepted


def measure(features: Features, most: int | None, seed: int) -> dict[str, Figures]:
    """Return the figures by method, as means over what was left out; the seed draws that, and which images are taken."""
    torch.manual_seed(seed)
    train, labels, test, truth = features
    chosen, tested = few(labels, most), torch.randperm(len(test))[:MOST_TEST]
    train, labels, test, truth = train[chosen].double(), labels[chosen], test[tested].double(), truth[tested]
    found: dict[str, list[Figures]] = {}
    for unknown in left_out(labels):
        seen, new = ~torch.isin(labels, unknown), torch.isin(truth, unknown)
        if not 0 < new.sum() < len(new):
            continue
        known = labels[seen].unique(return_inverse=True)[1]
        for name, score in scores(train[seen], known, test).items():
            accepted = (score[new] <= score[~new].quantile(KNOWN)).double().mean()
            figures = float(roc_auc_score(new, score)), float(accepted), 1 - KNOWN, math.nan
            found.setdefault(name, []).append(figures)
        if (figures := ours(train[seen].float(), known, test.float(), new, seed)) is not None:
            found.setdefault("vitral", []).append(figures)
    return {name: tuple(np.mean(values, axis=0)) for name, values in found.items()}


def read(name: str, load: Callable[[], object]) -> Features:
    """Return the features of some data."""
    if name.endswith(".npz"):
        with np.load(name) as file:
            return tuple(torch.from_numpy(file[key]) for key in ("train_x", "train_y", "test_x", "test_y"))  # type: ignore[return-value]
    from vitral.data.open import open_data
    from vitral.evaluation.baselines import extract_features

    data, network = open_data(name), load()
    return tuple(
        value for split in ("train", data.scored_split()) for value in extract_features(network, data.splits[split])
    )  # type: ignore[arg-type,return-value]


def main() -> None:
    """Measure every method on all data, and write a row for each."""
    import vitral

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--from", dest="start")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.data:
        features = read(name, lambda: vitral.load(options.start, image_size=options.image_size))
        for most in (10, None):
            for method, figures in measure(features, most, options.seed).items():
                rows.append((Path(name).stem, most or "all", method, *(f"{figure:.3f}" for figure in figures)))
                print(*rows[-1], sep=",", flush=True)
    with open(options.csv, "w", newline="") if options.csv else sys.stdout as file:
        csv.writer(file).writerows([HEADER, *rows])


if __name__ == "__main__":
    main()

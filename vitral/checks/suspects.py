"""Which labels are probably wrong: confident learning on what a classifier's features say of each image without its label.

A linear head in closed form is fitted on the frozen features, and each image is judged by the fit that leaves it out: a network
that was trained on a wrong label may well have learned it. From these probabilities follows how many labels are wrong, by
confident learning (Northcutt, Jiang and Chuang, arXiv 1911.00068, section 3.1); the most doubtful are those whose own class is
least probable. Its authors' program, cleanlab, does the same with predictions that users bring.
"""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from vitral.checks.findings import Doubts, InspectedImage, Suspect
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet
from vitral.data.subset import Joined, Subset
from vitral.evaluation.baselines import extract_features
from vitral.evaluation.heads import fit_head
from vitral.evaluation.probes import Features
from vitral.events import Listener

FEWEST = 5  # images of a class, of fewer of which it is not known what belongs to it
AT_ONCE = 20_000  # images that one head is fitted on at most
WEAK = 0.7  # the accuracy below which what the head has wrong outweighs what is labelled wrong
LISTED = 20  # doubtful labels that are given at least, if there are as many,
AS_MANY = 3  # or as many times those that are probably wrong
ROUNDING = 1e-6  # by which a probability may fall below its own mean

Probabilities = Float64[np.ndarray, "images classes"]
Labels = Int64[np.ndarray, " images"]


def find_suspects(
    classifier: Classifier, data: DataSet, inspected: Sequence[InspectedImage], listener: Listener
) -> Doubts | None:
    """Return the labels of readable images that the features of a classifier doubt, the most doubtful first.

    Its own classes play no part. Images of the same pixels count as one, so that none vouches for another.

    Returns:
        The doubts; None of images that need not have exactly one class, and where no two classes have enough images.

    Raises:
        ModelError: The classifier has no features to show, or they are no finite numbers.
    """
    if not data.task.exclusive:
        return None
    images = _of_known_classes(inspected)
    there = {image.classes[0] for image in images}
    names = [name for name in data.class_names if name in there]
    if len(names) < 2:
        return None
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[image.classes[0]] for image in images], dtype=np.int64)
    of_split = itertools.groupby(images, key=lambda image: image.split)
    readable = Joined([Subset(data.splits[split], [image.index for image in own]) for split, own in of_split])
    features, _ = extract_features(classifier, readable, listener=listener)
    first = {_content(image): row for row, image in reversed(list(enumerate(images)))}
    return _doubts(
        images, names, labels, left_out(features, labels, np.array([first[_content(image)] for image in images]))
    )


def _of_known_classes(inspected: Sequence[InspectedImage]) -> list[InspectedImage]:
    """Return the images whose classes have enough different ones, split after split."""
    counts = Counter(name for name, _ in {(image.classes[0], _content(image)) for image in inspected})
    known = (image for image in inspected if counts[image.classes[0]] >= FEWEST)
    splits = list(dict.fromkeys(image.split for image in inspected))
    return sorted(known, key=lambda image: splits.index(image.split))


def _content(image: InspectedImage) -> tuple[str, int, int]:
    return image.digest, image.height, image.width


def _doubts(
    images: Sequence[InspectedImage], names: Sequence[str], labels: Labels, probabilities: Probabilities
) -> Doubts:
    own = probabilities[np.arange(len(labels)), labels]
    likeliest = probabilities.argmax(axis=1)
    accuracy = float((likeliest == labels).mean())
    wrong = int(confidently_wrong(probabilities, labels).sum())
    doubtful = np.flatnonzero(likeliest != labels)
    worst = doubtful[np.argsort(own[doubtful], kind="stable")][
        : max(LISTED, AS_MANY * wrong if accuracy >= WEAK else 0)
    ]
    return Doubts(
        images=len(labels),
        accuracy=accuracy,
        expected=wrong if accuracy >= WEAK else None,
        suspects=tuple(
            Suspect(
                name=images[row].name,
                split=images[row].split,
                label=names[labels[row]],
                predicted=names[likeliest[row]],
                probability=float(probabilities[row].max()),
                own_probability=float(own[row]),
            )
            for row in worst.tolist()
        ),
    )


def left_out(features: Features, labels: Labels, first: Int64[np.ndarray, " images"]) -> Probabilities:
    """Return each image's probabilities by a linear head on the features that was fitted without it.

    `first` is for each image the first of those that are the same; it is judged as that one.
    """
    scores = torch.zeros(len(labels), int(labels.max()) + 1, dtype=torch.float64)
    distinct = np.unique(first)
    for part in range(-(-len(distinct) // AT_ONCE)):
        rows = distinct[part :: -(-len(distinct) // AT_ONCE)]  # interleaved, since images often come class by class
        truth = torch.from_numpy(labels[rows])
        scores[rows] = fit_head(features[rows], truth, classes=scores.shape[1]).left_out
    return torch.softmax(scores, dim=1).numpy()[first]


def confidently_wrong(probabilities: Probabilities, labels: Labels) -> Bool[np.ndarray, " images"]:
    """Return which images lie off the diagonal of the confident joint: their number is how many labels are probably wrong.

    A class is confident of an image to which it gives at least the probability that its own images have from it in the mean. An
    image is counted where the most probable of these classes is not its label, but more probable than that.
    """
    thresholds = np.array([probabilities[labels == name, name].mean() for name in range(probabilities.shape[1])])
    confident = np.where(probabilities >= thresholds - ROUNDING, probabilities, 0.0)
    return confident.max(axis=1) > probabilities[np.arange(len(labels)), labels]

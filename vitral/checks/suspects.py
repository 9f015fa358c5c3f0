"""Labels that a classifier doubts."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from vitral.checks.findings import Suspect
from vitral.checks.looks import Look
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet
from vitral.data.subset import Subset
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener

SURE, DOUBTED = 0.9, 0.05  # probabilities of another class, and of an image's own, from where its label is doubtful


def suspects(classifier: Classifier, data: DataSet, looks: Sequence[Look], listener: Listener) -> list[Suspect]:
    """Return the labels that a classifier doubts, the most doubtful first.

    None where labels cannot be compared: images that need not have exactly one, or classes that the classifier does not know.

    Args:
        classifier: the judge.
        data: the dataset.
        looks: at its readable images, which alone are judged.
        listener: receives progress.
    """
    exclusive = data.task.exclusive and classifier.task.exclusive
    if not exclusive or not set(data.class_names) <= set(classifier.class_names):
        return []
    found = itertools.chain.from_iterable(
        _in_split(classifier, data, split, [look.index for look in looks if look.split == split], listener)
        for split in dict.fromkeys(look.split for look in looks)
    )
    return sorted(found, key=lambda suspect: suspect.own_probability - suspect.probability)


def _in_split(
    classifier: Classifier, data: DataSet, split: str, indices: Sequence[int], listener: Listener
) -> Iterator[Suspect]:
    columns = np.array([classifier.class_names.index(name) for name in data.class_names])
    readable = Subset(data.splits[split], indices)
    values, _ = predict_probabilities(classifier, readable, listener=listener)
    probabilities, truth = values.numpy(), columns[readable.labels()]
    own = probabilities[np.arange(len(truth)), truth]
    surest = probabilities.argmax(axis=1)
    for row in np.flatnonzero((own < DOUBTED) & (probabilities.max(axis=1) > SURE)).tolist():
        yield Suspect(
            name=readable.describe(row),
            split=split,
            label=classifier.class_names[truth[row]],
            predicted=classifier.class_names[surest[row]],
            probability=float(probabilities[row].max()),
            own_probability=float(own[row]),
        )

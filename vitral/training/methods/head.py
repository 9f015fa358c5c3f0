"""The head of a network that learned without labels."""

import math

import torch
from torch.nn import functional

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.evaluation.features import extract_features
from vitral.evaluation.probes import fit_probe
from vitral.events import Listener, Message

PROBE_IMAGES = 4000  # of an endless source, to fit a head on


def fitted_images(train: Source) -> int:
    """Return how many training images a head is fitted on, of as many as there are."""
    return PROBE_IMAGES if train.endless else len(train)


def fit_head(classifier: Classifier, train: Source, listener: Listener) -> None:
    """Give a network that learned without labels a head, in closed form on its features, so that it is a classifier.

    Where the images have no labels it stays without, and is what a fine-tuning may start from.
    """
    if not classifier.task.scored:
        return
    features, labels = extract_features(classifier, train, limit=PROBE_IMAGES, listener=listener)
    probe = fit_probe(features, labels)
    weight, bias = probe.weight, probe.bias
    head = classifier.model.head
    with torch.no_grad():
        head.weight[: len(weight)].copy_(weight)
        head.bias.copy_(functional.pad(bias, (0, len(head.bias) - len(bias)), value=-math.inf))
    listener(
        Message(
            "The network learned without labels; its head is a linear probe on the features of "
            f"{len(features):,} training images."
        )
    )

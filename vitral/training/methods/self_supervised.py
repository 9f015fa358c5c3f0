"""Methods that leave the head to be fitted afterwards, because they learn without labels."""

import math

import torch
from torch.nn import functional

from vitral.classifier.classifier import Classifier
from vitral.data.source import Source
from vitral.evaluation.baselines import extract_features
from vitral.evaluation.heads import fit_head
from vitral.events import Listener, Message
from vitral.tasks.shown import photos_of
from vitral.training.methods.method import Method
from vitral.training.settings.recipe import Recipe

PROBE_IMAGES = 4000  # of an endless source, to fit a head on


class SelfSupervised(Method):
    """A method that trains no head; a linear probe becomes the head at the end."""

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Return False."""
        return False

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Give the network a head in closed form on its features, unless it was trained.

        If the images have no labels, the network stays without a head; fine-tuning may start from it.
        """
        if cls.trains_head(recipe) or not classifier.task.scored:
            return
        features, labels = extract_features(classifier, train, limit=PROBE_IMAGES, listener=listener, keep=False)
        probe, head = fit_head(features, labels), classifier.model.head
        with torch.no_grad():
            head.weight[: len(probe.weight)].copy_(probe.weight)
            head.bias.copy_(functional.pad(probe.bias, (0, len(head.bias) - len(probe.bias)), value=-math.inf))
        listener(
            Message(
                "The network was trained without labels; its head is a linear probe on the features of "
                f"{photos_of('train', len(features))}."
            )
        )


def fitted_images(train: Source) -> int:
    """Return the number of training images that a head is fitted on."""
    return PROBE_IMAGES if train.endless else len(train)

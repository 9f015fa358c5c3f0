"""What a classifier remembers, and its limit for images of none of its classes, set by leaving out each class in turn."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.novelty import DISTANCES, Distance, KnownImages, Novelties, Novelty, Space, present
from vitral.errors import WeightsError
from vitral.models.model import Features
from vitral.seeds import generator

MOST_BYTES = 8 << 20  # of the features that a classifier's folder keeps
BYTES = 2  # of a value there
REFUSED = 0.05  # of new images of the classes that may be taken for images of none
FEWEST = 19  # images, of fewer of which one in 20 cannot be told
LEAST_AREA = 0.6  # under which a limit would mislead more than it tells
TURNS = 8  # in which classes are left out
HELD_OUT = 5  # every so many images of a class are compared with the others, where the network learned from none

Labels = Int64[Tensor, " images"]


def chosen(labels: Labels, most: int, *, seed: int) -> Int64[Tensor, " chosen"]:
    """Return so many images, ascending: of each class as many as of the others, as far as it has them; drawn by the seed."""
    order = torch.from_numpy(generator(seed, "images that a classifier remembers").permutation(len(labels)))
    return order[ranks(labels[order]).argsort(stable=True)[:most]].sort().values


def ranks(labels: Labels) -> Labels:
    """Return how many images of its class come before each image."""
    by_class = labels.argsort(stable=True)
    counts = labels.bincount()
    begins = counts.cumsum(0) - counts
    found = torch.empty_like(labels)
    found[by_class] = torch.arange(len(labels)) - begins[labels[by_class]]
    return found


def bounded(known: KnownImages, *, seed: int = 0) -> KnownImages:
    """Return as many of some images as a classifier's folder keeps."""
    keep = chosen(known.labels, MOST_BYTES // (BYTES * known.features.shape[1]), seed=seed)
    return KnownImages(known.features[keep], known.labels[keep], known.held_out[keep])


def needed(classifier: Classifier, name: str | Path) -> KnownImages:
    """Return the images that a classifier remembers.

    Raises:
        WeightsError: There are none.
    """
    if (known := classifier.known_images) is None:
        raise WeightsError(
            f"'{name}' has no saved features of its training photos, as published weights, classifiers of earlier versions and "
            "those of several labels a photo have none; fine-tune it anew."
        )
    return known


def remembered(features: Features, labels: Labels, *, seed: int) -> KnownImages:
    """Return training images as a network knows them that has learned from none of them: some are held out for the limit."""
    return bounded(KnownImages(features, labels, ranks(labels) % HELD_OUT == HELD_OUT - 1), seed=seed)


def set_limit(known: KnownImages, class_names: Sequence[str], *, learned: bool) -> Novelty | None:
    """Return the limit that a network's images of none of its classes are told by; None where they cannot be.

    Of the images that are held out, 95 % lie within it, counted so that a new one lies beyond it with a probability of at most
    5 % (split conformal prediction, arXiv 1411.6144). Each class is left out in turn, from the covariance, too: so far away lie
    images of a class that is not known.

    Returns:
        The limit; None of fewer than 19 images that are held out, of one class alone, or where the images of a class that is
        left out lie hardly farther than those of one that is not.
    """
    judged = known.where(known.held_out)
    if len(judged.labels) < FEWEST or len(present(known.where(~known.held_out).labels)) < 2:
        return None
    known_at = {way: known.space.novelty(judged.features, way) for way in DISTANCES}
    unknown_at = left_out(known, judged)
    found = {way: (known_at[way], unknown_at[way]) for way in DISTANCES}
    areas = {way: area_under(*distances) for way, distances in found.items()}
    best = max(DISTANCES, key=areas.__getitem__)
    inside, outside = found[best]
    count = len(inside)
    place = min(count, math.ceil((count + 1) * (1 - REFUSED)))
    threshold = float(inside.sort().values[place - 1])
    if areas[best] < LEAST_AREA or threshold <= 0:
        return None
    accepted = {
        class_names[label]: float((outside[judged.labels == label] <= threshold).double().mean())
        for label in present(judged.labels).tolist()
    }
    worst = max(accepted, key=accepted.__getitem__)
    return Novelty(
        distance=best,
        threshold=threshold,
        refused=1 - place / (count + 1),
        accepted=sum(accepted.values()) / len(accepted),
        worst=accepted[worst],
        worst_class=worst,
        area=areas[best],
        images=count,
        learned=learned,
    )


def left_out(known: KnownImages, judged: KnownImages) -> dict[Distance, Novelties]:
    """Return how far images lie, by each distance, from what would be known without any image of their class.

    Of many classes some are left out together.
    """
    learned = known.where(~known.held_out)
    turn, others = judged.labels % TURNS, learned.labels % TURNS
    if len(present(learned.labels)) <= TURNS:
        turn, others = judged.labels, learned.labels
    found = {way: torch.zeros(len(turn)) for way in DISTANCES}
    for each in present(turn).tolist():
        space, here = Space(learned.where(others != each)), turn == each
        for way, far in found.items():
            far[here] = space.novelty(judged.features[here], way)
    return found


def area_under(inside: Float[Tensor, " known"], outside: Float[Tensor, " unknown"]) -> float:
    """Return how often an unknown image lies farther than a known one, equal ones counted half: the area under the ROC."""
    every = inside.sort().values
    below, upto = (torch.searchsorted(every, outside, right=right).double() for right in (False, True))
    return float((below + upto).mean() / (2 * len(every)))

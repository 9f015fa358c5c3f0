"""What a classifier remembers, and its limit for images of none of its classes, set by leaving out each class in turn."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitral.classifier.novelty import KnownImages, Novelty, distance
from vitral.models.model import Features
from vitral.seeds import generator

MOST_BYTES = 8 << 20  # of the features that a classifier's folder keeps
BYTES = 2  # of a value there
REFUSED = 0.05  # of new images of the classes that may be taken for images of none
FEWEST = 19  # images, of fewer of which one in 20 cannot be told
LEAST_AREA = 0.6  # under which a limit would mislead more than it tells
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


def remembered(features: Features, labels: Labels, *, seed: int) -> KnownImages:
    """Return training images as a network knows them that has learned from none of them: some are held out for the limit."""
    keep = chosen(labels, MOST_BYTES // (BYTES * features.shape[1]), seed=seed)
    features, labels = features[keep], labels[keep]
    return KnownImages(features, labels, ranks(labels) % HELD_OUT == HELD_OUT - 1)


def set_limit(known: KnownImages, class_names: Sequence[str], *, learned: bool) -> Novelty | None:
    """Return the limit that a network's images of none of its classes are told by; None where they cannot be.

    Of the images that are held out, 95 % lie within it, counted so that a new one lies beyond it with a probability of at most
    5 % (split conformal prediction, arXiv 1411.6144). Each of them is also compared with the images of all other classes: so
    far away images of a class lie that is left out.

    Args:
        known: The images as the network sees them.
        class_names: The names of the classes.
        learned: Whether the network has learned from images of these classes.

    Returns:
        The limit; None of fewer than 19 images that are held out, of one class alone, or where the images of a class that is
        left out lie hardly farther than those of one that is not.
    """
    judged = known.where(known.held_out)
    if len(judged.labels) < FEWEST or len(known.space.labels.unique()) < 2:
        return None
    cosines = known.space.place(judged.features) @ known.space.directions.T
    own = judged.labels[:, None] == known.space.labels
    inside, outside = distance(cosines), distance(cosines.masked_fill(own, -math.inf))
    count = len(inside)
    place = min(count, math.ceil((count + 1) * (1 - REFUSED)))
    threshold = float(inside.sort().values[place - 1])
    area = area_under(inside, outside)
    if area < LEAST_AREA or threshold <= 0:
        return None
    accepted = {
        class_names[label]: float((outside[judged.labels == label] <= threshold).double().mean())
        for label in judged.labels.unique().tolist()
    }
    worst = max(accepted, key=accepted.__getitem__)
    return Novelty(
        threshold=threshold,
        refused=1 - place / (count + 1),
        accepted=sum(accepted.values()) / len(accepted),
        worst=accepted[worst],
        worst_class=worst,
        area=area,
        images=count,
        learned=learned,
    )


def area_under(inside: Float[Tensor, " known"], outside: Float[Tensor, " unknown"]) -> float:
    """Return how often an unknown image lies farther than a known one, equal ones counted half: the area under the ROC."""
    every = inside.sort().values
    below, upto = (torch.searchsorted(every, outside, right=right).double() for right in (False, True))
    return float((below + upto).mean() / (2 * len(every)))

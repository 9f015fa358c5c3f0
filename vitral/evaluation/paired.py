"""Two classifiers on the same images: what chance alone explains of their difference, and how large it may be.

Only images that one of the two alone gets right tell them apart. By chance each of these would fall to either side alike, which
is McNemar's test (Psychometrika 12, 1947) in its exact form, the binomial distribution; the interval of the difference is the
inversion of that test.
"""

import math
from collections.abc import Sequence

from vitral.tasks.chance import Z_95

LEVEL = 0.05  # how seldom chance alone may tell two classifiers apart
Z_POWER = 0.8416212335729143  # the normal distribution's 80 % point


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return how probable a difference as large as this is by chance alone, two-sided, 0 to 1.

    Args:
        only_first: The number of images that the first alone gets right.
        only_second: The number of images that the second alone gets right.
    """
    from scipy.special import bdtr  # half a second of start-up for all who compare nothing

    images = only_first + only_second
    return 1.0 if images == 0 else min(1.0, 2 * float(bdtr(min(only_first, only_second), images, 0.5)))


def difference_interval(only_first: int, only_second: int, images: int) -> tuple[float, float]:
    """Return the 95 % interval of the first's share of right answers less the second's, -1 to 1, given where they disagree.

    It is the exact interval of the first's share of the images that only one of the two gets right (Clopper and Pearson,
    Biometrika 26, 1934), scaled by how many of all images these are. It excludes 0 exactly where `mcnemar_exact` is below 5 %.

    Args:
        only_first: The number of images that the first alone gets right.
        only_second: The number of images that the second alone gets right.
        images: The number of all images.
    """
    from scipy.special import betaincinv  # as above

    apart = only_first + only_second
    if apart == 0:
        return 0.0, 0.0
    low = float(betaincinv(only_first, only_second + 1, LEVEL / 2)) if only_first else 0.0
    high = float(betaincinv(only_first + 1, only_second, 1 - LEVEL / 2)) if only_second else 1.0
    return (2 * low - 1) * apart / images, (2 * high - 1) * apart / images


def images_needed(only_first: int, only_second: int, images: int) -> int | None:
    """Return how many images would tell the two apart four times in five, if they differ as on these.

    None without a difference. By Connor's formula for McNemar's test (Biometrics 43, 1987).

    Args:
        only_first: The number of images that the first alone gets right.
        only_second: The number of images that the second alone gets right.
        images: The number of all images.
    """
    if only_first == only_second:
        return None
    apart, difference = (only_first + only_second) / images, abs(only_first - only_second) / images
    root = Z_95 * math.sqrt(apart) + Z_POWER * math.sqrt(max(apart - difference**2, 0.0))
    return math.ceil((root / difference) ** 2)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities of chance corrected for how many there are, so that all below a level hold together (Holm, 1979)."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    corrected, largest = [1.0] * len(order), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * probabilities[index]))
        corrected[index] = largest
    return corrected

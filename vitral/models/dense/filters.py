"""A fixed bank of filters over an image: what its pixels look like at several scales, relative to the whole image.

Nothing in it is learned. Colours are the normalised image's; everything else is of grey divided by the image's own spread, so
that a dim image and a bright one look alike. Bright is told from dark by the threshold between the image's two groups of
greys, each the mean of its pixels, which lies half way between them (Ridler and Calvard, IEEE SMC-8, 1978; Otsu's criterion
has its maximum there). Plain convolutions, means and comparisons, which every runtime computes.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.models.layers import Maps
from vitral.models.model import Images

REACHES = (3, 7, 15, 31, 63)  # pixels over which means and deviations are taken
EDGES = (1, 3, 7, 15)  # pixels over which grey is averaged before its slopes are
ROUNDS = 10  # after which the threshold has settled
FLAT = 0.05  # added to deviations, so that noise in an even image is not blown up
STEEP = 4.0  # of the soft step at the threshold
NUM_FILTERS = 17 + 3 * len(REACHES) + 2 * len(EDGES)

Grey = Float[Tensor, "batch 1 rows columns"]
Whole = Float[Tensor, "batch channels 1 1"]


def filtered(images: Images, stride: int) -> Maps:
    """Return what the filters say of each place, (batch, NUM_FILTERS, rows, columns).

    Args:
        images: Normalised images.
        stride: The pixels between two places, over which colours are averaged.
    """
    colours = functional.avg_pool2d(images, stride) if stride > 1 else images
    grey = colours.mean(dim=1, keepdim=True)
    mean, spread = _mean(grey), _spread(grey)
    low, high = _groups(grey)
    signed = (grey - (low + high) / 2) / (high - low + FLAT)
    even = (grey - mean) / spread
    whole = [value.expand_as(grey) for value in (mean, spread, low, high)]
    own = [colours, (colours - _mean(colours)) / _spread(colours), even, signed, torch.tanh(STEEP * signed), *whole]
    hue = colours - grey
    tints = hue, hue.square().sum(dim=1, keepdim=True).sqrt()
    # At a stride of 2 or more, reaches may be the same number of places: each number is computed once, and given as often.
    wide = [_odd(reach, stride) for reach in REACHES]
    narrow = [_odd(reach, stride) if reach > 1 else 1 for reach in EDGES]
    means = {side: _box(even, side) for side in dict.fromkeys((*wide, *narrow))}
    around = {side: _around(even, means[side], side) for side in dict.fromkeys(wide)}
    edges = {side: _edges(means[side]) for side in dict.fromkeys(narrow)}
    maps = [*(around[side] for side in wide), *(edges[side] for side in narrow)]
    return torch.cat([*own, *tints, *(each for several in maps for each in several)], dim=1)


def _mean(values: Maps) -> Whole:
    return values.mean(dim=(2, 3), keepdim=True)


def _spread(values: Maps) -> Whole:
    return (values - _mean(values)).square().mean(dim=(2, 3), keepdim=True).sqrt() + FLAT


def _groups(grey: Grey) -> tuple[Whole, Whole]:
    """Return the means of an image's dark and bright pixels, which the middle between them tells apart."""
    low = high = _mean(grey)
    for _ in range(ROUNDS):
        bright = (grey > (low + high) / 2).to(grey.dtype)
        share, total = _mean(bright), _mean(grey)
        sums = _mean(grey * bright)
        high = sums / share.clamp_min(1e-6)
        low = (total - sums) / (1 - share).clamp_min(1e-6)
    return low, high


def _odd(reach: int, stride: int) -> int:
    """Return an odd number of places that stand for so many pixels, 3 or more."""
    return max(3, reach // stride | 1)


def _box(values: Maps, side: int) -> Maps:
    """Return the means over squares; what lies beyond the edge is as the edge."""
    if side == 1:
        return values
    padded = functional.pad(values, (side // 2,) * 4, mode="replicate")
    # First down, then across: a square at once takes four times as long.
    return functional.avg_pool2d(functional.avg_pool2d(padded, (side, 1), stride=1), (1, side), stride=1)


def _around(even: Grey, mean: Grey, side: int) -> tuple[Maps, Maps, Maps]:
    """Return mean and deviation around each place, and how it differs from that mean."""
    deviation = (_box(even.square(), side) - mean.square()).clamp_min(0).sqrt()
    return mean, deviation, even - mean


def _edges(smooth: Grey) -> tuple[Maps, Maps]:
    """Return how steep averaged grey is, and its Laplacian: whether a place is darker than what is next to it."""
    padded = functional.pad(smooth, (1,) * 4, mode="replicate")
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    return (across.square() + down.square() + 1e-6).sqrt(), _box(smooth, 3) - smooth

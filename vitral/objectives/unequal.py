"""What a loss, or an answer, does about classes of unequal numbers of images; from the numbers of training images alone.

Sources: logit adjustment, as a loss and after training (arXiv 2007.07314, equations 10 and 9); class weights in inverse
proportion to the number of images, one image's being 1 on average (scikit-learn's "balanced", after King and Zeng 2001);
class-balanced and square-root sampling (arXiv 1910.09217, section 3.1).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

SAMPLING = {"instance-balanced": 1.0, "square-root": 0.5, "class-balanced": 0.0}  # the paper's q

ClassWeights = Literal["none", "balanced", "auto"]
PerClass = Float[Tensor, " classes"]


def balanced_weights(images: Sequence[int]) -> PerClass:
    """Return each class's weight: the images of an equal share over its own; 0 for a class without images."""
    counts = torch.tensor(images, dtype=torch.float64)
    there = counts > 0
    return torch.where(there, counts.sum() / (there.sum() * counts.clamp_min(1)), 0.0).float()


def log_prior(images: Sequence[int]) -> PerClass:
    """Return the logarithm of each class's share of the images.

    A class without images was never learned and must not win by its rarity: it has the share of the largest.
    """
    counts = torch.tensor(images, dtype=torch.float64)
    shares = torch.where(counts > 0, counts, counts.max()) / counts.sum()
    return shares.log().float()


def sampling_shares(images: Sequence[int], sampling: str) -> PerClass:
    """Return each class's share of the images that are drawn: its number of images to the power q, over the sum of all.

    Args:
        images: The number of training images of each class.
        sampling: "instance-balanced", "square-root" or "class-balanced".
    """
    counts = torch.tensor(images, dtype=torch.float64)
    powers = torch.where(counts > 0, counts ** SAMPLING[sampling], 0.0)
    return (powers / powers.sum()).float()

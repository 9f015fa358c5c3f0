"""Grad-CAM: which cells of the last feature map speak for a class (arXiv 1610.02391, equations 1 and 2)."""

from jaxtyping import Float
from torch import Tensor

Maps = Float[Tensor, "batch channels rows columns"]


def class_activation(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Weigh each channel by its gradient's mean over the cells (equation 1), sum, and keep what is positive (2).

    All 0 where nothing speaks for the class.

    Args:
        maps: the feature maps A.
        gradients: of the class's logit by A.
    """
    weights = gradients.mean(dim=(2, 3), keepdim=True)
    return (weights * maps).sum(dim=1).relu()

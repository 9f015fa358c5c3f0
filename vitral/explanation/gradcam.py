"""What the cells of the last feature map say of a class: Grad-CAM (arXiv 1610.02391), and of a linear layer on it the exact."""

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


def contributions(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Return what each cell adds to the class's logit, or takes from it: weight times input, summed over the channels.

    Exact for a linear layer on the maps, whose weights are the gradients: with the bias the cells sum to the logit.

    Args:
        maps: the feature maps.
        gradients: of the class's logit by them.
    """
    return (gradients * maps).sum(dim=1)

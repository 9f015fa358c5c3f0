"""The loss that keeps experts evenly used (V-MoE, arXiv 2106.05974, appendix A)."""

from collections.abc import Mapping

import torch
from torch import Tensor

WEIGHT = 0.005  # of the importance loss and of the load loss; the paper's 0.01 for their mean


def balance_loss(auxiliary: Mapping[str, Tensor]) -> Tensor:
    """Return the weighted sum of the auxiliary losses of a model with experts."""
    return WEIGHT * torch.stack([*auxiliary.values()]).sum()

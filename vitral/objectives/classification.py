"""Classification losses, computed in float32 whatever the network's precision."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional


def softmax_cross_entropy(
    logits: Float[Tensor, "batch classes"], labels: Int64[Tensor, " batch"], *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the softmax, with a share `label_smoothing` of each label spread over all classes."""
    return functional.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)


def sigmoid_cross_entropy(logits: Float[Tensor, "batch classes"], labels: Int64[Tensor, " batch"]) -> Float[Tensor, ""]:
    """Return the binary cross-entropies of every class against "it is this one", summed over classes, mean over the batch.

    The loss of the original's pre-training on ImageNet-21k and JFT-300M, with the head's bias at -10 in the beginning.
    """
    targets = torch.zeros_like(logits, dtype=torch.float32).scatter_(1, labels[:, None], 1.0)
    losses = functional.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
    return losses.sum(dim=1).mean()

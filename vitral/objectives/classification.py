"""Classification losses, computed in float32 whatever the model's precision.

Labels are class indices (batch,), or weights of the classes (batch, classes): of mixed images, or a multi-label dataset's 0
and 1.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

Targets = Int64[Tensor, " batch"] | Float[Tensor, "batch classes"]


def softmax_cross_entropy(
    logits: Float[Tensor, "batch classes"], labels: Targets, *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the softmax, with a fraction `label_smoothing` of each label spread over the classes."""
    return functional.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)


def sigmoid_cross_entropy(
    logits: Float[Tensor, "batch classes"],
    labels: Targets,
    *,
    label_smoothing: float = 0.0,
    binary_targets: bool = False,
) -> Float[Tensor, ""]:
    """Return the binary cross-entropy of every class, summed over classes, mean over the batch.

    The loss of the original's pre-training on ImageNet-21k and JFT-300M, with the head's bias initialised to -10.

    Args:
        logits: One per class.
        labels: Class indices, or weights of the classes.
        label_smoothing: Fraction of each label that is spread over all classes.
        binary_targets: Whether every weight above 0 counts as 1 (DeiT III).
    """
    if labels.ndim == 1:
        labels = torch.zeros_like(logits, dtype=torch.float32).scatter_(1, labels[:, None], 1.0)
    if label_smoothing:
        labels = labels * (1 - label_smoothing) + label_smoothing / logits.shape[1]
    if binary_targets:
        labels = (labels > label_smoothing / logits.shape[1]).float()
    losses = functional.binary_cross_entropy_with_logits(logits.float(), labels, reduction="none")
    return losses.sum(dim=1).mean()

"""Classification losses, computed in float32 whatever the model's precision: of labels, of a teacher's answers, of experts.

Labels are class indices (batch,), or weights of the classes (batch, classes): of mixed images, or a multi-label dataset's 0
and 1. Sources of distillation: DeiT (arXiv 2012.12877, section 4, equations 2 and 3; losses.py of its code), and a patient and
consistent teacher (arXiv 2106.05237; the function `dist` of big_vision's evaluators/proj/distill/distance.py). The loss that
keeps experts evenly used is V-MoE's (arXiv 2106.05974, appendix A).
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

Targets = Int64[Tensor, " batch"] | Float[Tensor, "batch classes"]
Logits = Float[Tensor, "batch classes"]
WEIGHT = 0.005  # of the importance loss and of the load loss; the paper's 0.01 for their mean


def softmax_cross_entropy(
    logits: Float[Tensor, "batch classes"],
    labels: Targets,
    *,
    label_smoothing: float = 0.0,
    weights: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the softmax, with a fraction `label_smoothing` of each label spread over the classes.

    With weights of the classes the weighted losses are summed and divided by the number of images, not by that of their
    weights, so that an image counts the same whatever stands beside it in its batch.
    """
    if weights is None:
        return functional.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
    total = functional.cross_entropy(
        logits.float(), labels, weight=weights, label_smoothing=label_smoothing, reduction="sum"
    )
    return total / len(labels)


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


def hard_loss(student: Logits, teacher: Logits) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the teacher's most probable classes, which are not smoothed."""
    return functional.cross_entropy(student.float(), teacher.argmax(dim=1))


def soft_loss(student: Logits, teacher: Logits, temperature: float) -> Float[Tensor, ""]:
    """Return temperature² times the mean divergence KL(teacher || student), both sharpened or softened by the temperature.

    The classes are summed, as in both papers and in big_vision; DeiT's code divides by their number, too.
    """
    ours = functional.log_softmax(student.float() / temperature, dim=1)
    theirs = functional.log_softmax(teacher.float() / temperature, dim=1)
    return temperature**2 * functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def agreement(student: Logits, teacher: Logits) -> Float[Tensor, ""]:
    """Return the share of images of which both say the same."""
    return (student.argmax(dim=1) == teacher.argmax(dim=1)).float().mean()


def balance_loss(auxiliary: Mapping[str, Tensor]) -> Tensor:
    """Return the weighted sum of the auxiliary losses of a model with experts."""
    return WEIGHT * torch.stack([*auxiliary.values()]).sum()

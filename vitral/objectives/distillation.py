"""Losses that a teacher's answers give: hard and soft distillation, and function matching.

Sources: DeiT (arXiv 2012.12877, section 4, equations 2 and 3; losses.py of its code), and a patient and consistent teacher
(arXiv 2106.05237; the function `dist` of big_vision's evaluators/proj/distill/distance.py).
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Logits = Float[Tensor, "batch classes"]


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

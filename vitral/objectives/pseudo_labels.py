"""Which images without labels are learned from, and how: Noisy Student, UDA, Meta Pseudo Labels.

Sources: arXiv 1911.04252 with task.py of its code, arXiv 1904.12848 with image/main.py of its code, arXiv 2003.10580 with
training_utils.py of its code.
"""

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.machine import precise
from vitral.seeds import generator

Logits = Float[Tensor, "batch classes"]


def choose_balanced(
    probabilities: Float[np.ndarray, "images classes"], *, confidence: float, per_class: int | None, seed: int
) -> Int64[np.ndarray, " chosen"]:
    """Return the indices of the images to learn from: those that a teacher is sure of, as many of each class that it finds.

    Of a class with more the surest are taken, of one with fewer each image `per_class` / count times, at random rounded up or
    down.

    Args:
        probabilities: The teacher's.
        confidence: The probability of the most probable class above which an image counts.
        per_class: Images of each class; None for as many as the classes that have some have on average.
        seed: The seed of the rounding.
    """
    found, sureness = probabilities.argmax(axis=1), probabilities.max(axis=1)
    sure = np.flatnonzero(sureness > confidence)
    classes, counts = np.unique(found[sure], return_counts=True)
    wanted = per_class or max(1, round(float(counts.mean()))) if len(counts) else 0
    chosen = []
    for label in classes.tolist():
        own = sure[found[sure] == label]
        own = own[np.argsort(-sureness[own], kind="stable")][:wanted]
        copies, rest = divmod(wanted, len(own))
        once_more = generator(seed, "pseudo labels", label).random(len(own)) < rest / len(own)
        chosen.append(np.repeat(own, copies + once_more))
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def soft_cross_entropy(student: Logits, teacher: Logits) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the teacher's probabilities, which are neither sharpened nor smoothed."""
    return -(teacher.float().softmax(dim=1) * student.float().log_softmax(dim=1)).sum(dim=1).mean()


def consistency_loss(weak: Logits, strong: Logits, *, temperature: float, threshold: float) -> Float[Tensor, ""]:
    """Return UDA's loss: the strong view's cross-entropy to the weak view's sharpened probabilities, which teach and learn not.

    The mean over all images; those with a sharpened probability below the threshold count as 0. So it is in Meta Pseudo Labels
    and its code (`build_uda_cross_entropy`); in UDA's own code the threshold is of the probability before sharpening.
    """
    target = (weak.detach().float() / temperature).softmax(dim=1)
    sure = target.amax(dim=1) >= threshold
    each = -(target * strong.float().log_softmax(dim=1)).sum(dim=1)
    return (each * sure).mean()


def draw_labels(logits: Logits, chances: Float[Tensor, " batch"]) -> Int64[Tensor, " batch"]:
    """Return a class for each image, drawn by its probabilities: hard labels.

    Soft ones would teach the teacher nothing: the gradient of the cross-entropy of a distribution to itself is zero.

    Args:
        logits: The teacher's.
        chances: A number for each image, evenly drawn, at least 0 and below 1.
    """
    upto = logits.detach().to(precise(logits.device)).softmax(dim=1).cumsum(dim=1)
    return (upto <= chances.to(upto)[:, None]).sum(dim=1).clamp(max=logits.shape[1] - 1)


def feedback_loss(logits: Logits, drawn: Int64[Tensor, " batch"], progress: Tensor) -> Float[Tensor, ""]:
    """Return the loss by which a teacher makes labels more probable that helped its student: progress times cross-entropy.

    The released code has the other sign, the loss after less the loss before, which means nothing there: it takes the teacher's
    own probabilities for labels, whose gradient is the 1e-8 of rounding.

    Args:
        logits: The teacher's.
        drawn: The labels that the student learned.
        progress: The fall of the student's loss on labelled images afterwards, less its average.
    """
    return progress.detach() * functional.cross_entropy(logits.float(), drawn)

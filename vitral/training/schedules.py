"""The learning rate at a step (paper Tables 3 and 4; utils.py of vision_transformer and of big_vision)."""

import math
from typing import Literal

Decay = Literal["cosine", "linear", "constant"]


def learning_rate(
    step: int, *, base: float, total_steps: int, warmup_steps: int, decay: Decay, final: float = 0.0
) -> float:
    """Return the learning rate of update `step`, counted from 0.

    Linear warm-up multiplies the decay curve, which begins where the warm-up ends. As in the original the first update of a
    run with warm-up has a rate of 0.

    Args:
        step: updates made so far.
        base: the rate at the peak.
        total_steps: updates in all; the curve reaches `final` there.
        warmup_steps: updates until the peak.
        decay: the curve.
        final: the rate at the end of the curve.
    """
    progress = min(max((step - warmup_steps) / max(total_steps - warmup_steps, 1), 0.0), 1.0)
    if decay == "cosine":
        rate = final + (base - final) * 0.5 * (1 + math.cos(math.pi * progress))
    elif decay == "linear":
        rate = final + (base - final) * (1 - progress)
    else:
        rate = base
    return rate * min(1.0, step / warmup_steps) if warmup_steps else rate

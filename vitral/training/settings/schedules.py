"""The learning rate at a step (paper Tables 3 and 4; utils.py of vision_transformer and of big_vision)."""

import math
from typing import Literal

Decay = Literal["cosine", "linear", "constant", "rsqrt", "steps"]
CurveFrom = Literal["warmup", "start"]
STEP_FACTOR = 0.1  # BiT-HyperRule's


def learning_rate(
    step: float,
    *,
    base: float,
    total_steps: int,
    warmup_steps: int,
    decay: Decay,
    final: float = 0.0,
    warmup_lr: float = 0.0,
    cooldown_steps: int = 0,
    timescale: int = 10_000,
    milestones: tuple[float, ...] = (),
    curve_from: CurveFrom = "warmup",
    hold_steps: int = 1,
) -> float:
    """Return the learning rate of update `step`, counted from 0.

    Linear warm-up leads to the decay curve. The curve begins where the warm-up ends, or, as in timm, at the start of the run;
    the warm-up then joins it. As in the original the first update of a run with warm-up has a rate of 0.

    "cosine" and "linear" go from `base`, the rate at the peak, to `final`; "rsqrt" is one over the square root of the time
    (Scaling Vision Transformers, arXiv 2106.04560); "steps" is a tenth at each milestone, ascending (BiT-HyperRule);
    "constant" stays. The curve ends with the run, or where the cool-down begins. `step` may be fractional in a run that a
    time budget made shorter. The other arguments are the settings of `ScheduleSettings`.
    """
    if hold_steps > 1:
        step = step // hold_steps * hold_steps
    first = warmup_steps if curve_from == "warmup" else 0
    curve_steps = max(total_steps - cooldown_steps - first, 1)
    progress = min(max((step - first) / curve_steps, 0.0), 1.0)
    if decay == "cosine":
        rate = final + (base - final) * 0.5 * (1 + math.cos(math.pi * progress))
    elif decay == "linear":
        rate = final + (base - final) * (1 - progress)
    elif decay == "rsqrt":
        rate = base / math.sqrt(1 + max(step - warmup_steps, 0) / timescale)
        rate *= min(1.0, (total_steps - step) / cooldown_steps) if cooldown_steps else 1.0
    elif decay == "steps":
        rate = base * STEP_FACTOR ** sum(step > share * total_steps for share in milestones)
    else:
        rate = base
    if step >= warmup_steps:
        return rate
    top = rate if curve_from == "warmup" else base
    return warmup_lr + (top - warmup_lr) * step / warmup_steps

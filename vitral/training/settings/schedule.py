"""The learning rate over time: a section of a recipe, and the rate of each update."""

import math
from typing import Literal

from pydantic import Field

from vitral.training.settings.sections import MAY_CHANGE, Section, Share

STEP_FACTOR = 0.1  # BiT-HyperRule's
POLY_POWER = 0.9  # DeepLab's and EoMT's

Decay = Literal["cosine", "linear", "poly", "constant", "rsqrt", "steps"]
CurveFrom = Literal["warmup", "start"]


class ScheduleSettings(Section):
    """The learning rate over time.

    Attributes:
        decay: The curve: "cosine", "linear", "poly" (linear to the power of 0.9), "constant", "rsqrt" or "steps".
        warmup_steps: The number of updates of linear warm-up.
        warmup_epochs: The length of the warm-up in passes over the data; None to follow `warmup_steps`.
        warmup_lr: The rate at the start of the warm-up.
        final_lr: The rate at the end of the decay.
        cooldown_steps: The number of updates at the end: down to 0 after "rsqrt", at `final_lr` after the other curves.
        cooldown_epochs: The length of the cool-down in passes over the data; None to follow `cooldown_steps`.
        timescale: The timescale of "rsqrt", updates.
        milestones: The milestones of "steps", shares of the run.
        curve_from: The start of a cosine, linear or poly curve: "warmup" for the end of the warm-up, "start" for the start of
            the run, as in timm.
        hold_steps: The number of updates that share a rate.
        hold_epochs: That number in passes over the data, 1 in timm; None to follow `hold_steps`.
        bends: The changes of the length by a time budget: the update before a change, and the new total. A run without a
            budget repeats them. None for no change.
    """

    decay: Decay = "cosine"
    warmup_steps: int = Field(default=0, ge=0)
    warmup_epochs: float | None = Field(default=None, ge=0)
    warmup_lr: float = Field(default=0.0, ge=0)
    final_lr: float = Field(default=0.0, ge=0)
    cooldown_steps: int = Field(default=0, ge=0)
    cooldown_epochs: float | None = Field(default=None, ge=0)
    timescale: int = Field(default=10_000, ge=1)
    milestones: tuple[Share, ...] = ()
    curve_from: CurveFrom = "warmup"
    hold_steps: int = Field(default=1, ge=1)
    hold_epochs: float | None = Field(default=None, gt=0)
    bends: tuple[tuple[int, int], ...] | None = Field(default=None, json_schema_extra=MAY_CHANGE)

    def rate(self, step: float, base: float, total_steps: int) -> float:
        """Return the learning rate of update `step` (paper Tables 3 and 4; utils.py of vision_transformer and of big_vision).

        Linear warm-up leads to the decay curve, which begins where the warm-up ends, or, as in timm, at the start of the run;
        the warm-up then joins it. As in the original the first update of a run with warm-up has a rate of 0. Warm-up and
        cool-down take at most half of the run each. Steps count from 0, and may be fractional in a run that a time budget made
        shorter; `base` is the rate at the peak.
        """
        warmup, cooldown = min(self.warmup_steps, total_steps // 2), min(self.cooldown_steps, total_steps // 2)
        if self.hold_steps > 1:
            step = step // self.hold_steps * self.hold_steps
        rate = self._decayed(step, base, total_steps, warmup, cooldown)
        if step >= warmup:
            return rate
        top = rate if self.curve_from == "warmup" else base
        return self.warmup_lr + (top - self.warmup_lr) * step / warmup

    def _decayed(self, step: float, base: float, total_steps: int, warmup: int, cooldown: int) -> float:
        """Return the rate on the curve, which ends with the run, or where the cool-down begins.

        "cosine", "linear" and "poly" go from `base` to `final_lr`; "rsqrt" is one over the square root of the time (Scaling
        Vision Transformers, arXiv 2106.04560); "steps" is a tenth at each milestone (BiT-HyperRule); "constant" stays.
        """
        if self.decay == "rsqrt":
            rate = base / math.sqrt(1 + max(step - warmup, 0) / self.timescale)
            return rate * (min(1.0, (total_steps - step) / cooldown) if cooldown else 1.0)
        if self.decay == "steps":
            return base * STEP_FACTOR ** sum(step > share * total_steps for share in self.milestones)
        first = warmup if self.curve_from == "warmup" else 0
        progress = min(max((step - first) / max(total_steps - cooldown - first, 1), 0.0), 1.0)
        left = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress}
        left["poly"] = (1 - progress) ** POLY_POWER
        return self.final_lr + (base - self.final_lr) * left[self.decay] if self.decay in left else base

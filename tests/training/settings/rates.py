"""The learning rate of an update, by the settings that a recipe has for it."""

from typing import Any

from vitral.training.settings.schedule import ScheduleSettings


def learning_rate(step: float, *, base: float, total_steps: int, final: float = 0.0, **settings: Any) -> float:  # noqa: ANN401
    return ScheduleSettings(final_lr=final, **settings).rate(step, base, total_steps)

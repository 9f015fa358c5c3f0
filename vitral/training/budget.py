"""A time budget that a run keeps by becoming shorter."""

CHECKS = 20  # how often in a run the pace is looked at
WARM_STEPS = 3  # the first steps allocate and compile, and say nothing of the pace
# What is kept for the last validation, the save, the final evaluation and the report: a share of the budget, and seconds.
RESERVED_SHARE, RESERVED_SECONDS = 0.06, 5.0


class Budget:
    """Shortens the run when it would last longer than it may; it never makes it longer.

    Args:
        seconds: what the run may take from now on; None for as long as it needs.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._warm: tuple[int, float] | None = None

    def total_steps(self, *, step: int, first_step: int, total_steps: int, elapsed: float) -> int:
        """Return how many updates the run will make in all.

        Args:
            step: updates made.
            first_step: updates that earlier processes of the run had made.
            total_steps: updates planned.
            elapsed: seconds since this process began to train.
        """
        made = step - first_step
        if self.seconds is None or made < WARM_STEPS:
            return total_steps
        if self._warm is None:
            self._warm = (step, elapsed)
        warm_step, warm_elapsed = self._warm
        often = max(1, (total_steps - first_step) // CHECKS)
        measured = step - warm_step
        if measured != WARM_STEPS and (measured == 0 or measured % often):
            return total_steps
        pace = max((elapsed - warm_elapsed) / measured, 1e-9)
        left = self.seconds * (1 - RESERVED_SHARE) - RESERVED_SECONDS - elapsed
        return max(step + 1, min(total_steps, step + int(left / pace)))

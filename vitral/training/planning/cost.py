"""What a run is expected to cost by what was measured, and how it is laid out to fit the machine."""

from dataclasses import dataclass

from vitral.advice import argument
from vitral.errors import RecipeError
from vitral.training.planning.durations import YEAR, rounded
from vitral.training.planning.facts import MachineFacts, Measured
from vitral.training.planning.memory import fit_memory
from vitral.training.settings.recipe import Recipe


@dataclass(frozen=True)
class Cost:
    """What a run's training steps are expected to cost.

    Attributes:
        seconds: of all steps.
        images_per_second: over all processes.
        bytes: of memory in a process, beyond the libraries'.
        update_share: of the time, for what the optimizer multiplies to make an update.
    """

    seconds: float
    images_per_second: float
    bytes: int
    update_share: float = 0.0

    def sentence(self, budget_seconds: float | None, reading_seconds: float = 0.0) -> str:
        """Return the expectation as one line for the user; a time budget that is shorter cuts the run to it.

        Args:
            budget_seconds: what was said that the command may take; None where nothing was.
            reading_seconds: what it took until the data were read.
        """
        length, cut = f"about {rounded(self.seconds)} of training", ""
        if budget_seconds is not None and budget_seconds - reading_seconds < self.seconds:
            length = f"as much training as the {rounded(budget_seconds)} of {argument('time')} have room for,"
            cut = f" (all steps would take about {rounded(self.seconds)})"
        own = f", {self.update_share:.0%} of it Muon's own products" if self.update_share else ""
        return (
            f"Expected: {length} at {self.images_per_second:.3g} images/s{own}{cut}; "
            f"{self.bytes / 2**30:.1f} GiB of memory beyond the libraries'."
        )


def fit_machine(
    recipe: Recipe, measured: Measured, machine: MachineFacts, budget_seconds: float | None
) -> tuple[Recipe, Cost, list[str]]:
    """Return the recipe as this machine can carry it out, what that will cost, and why, a line for what is not as it was.

    Args:
        recipe: the settings, its length in steps.
        measured: what steps of the network take.
        machine: what they are carried out on.
        budget_seconds: what the command may take; None for as long as it needs.

    Raises:
        RecipeError: without a time budget the run would take years.
    """
    images = recipe.batch_size // machine.processes
    fitted, reasons = fit_memory(
        recipe, fixed=measured.fixed_bytes, an_image=measured.image_bytes, images=images, usable=machine.usable_bytes
    )
    part = -(-images // (fitted.compute.accumulation or 1))
    step = recipe.batch_size / measured.images_per_second + measured.update_seconds
    cost = Cost(
        seconds=(recipe.steps or 0) * step,
        images_per_second=recipe.batch_size / step,
        update_share=measured.update_seconds / step,
        bytes=measured.fixed_bytes + part * measured.image_bytes,
    )
    if cost.seconds > YEAR and budget_seconds is None:
        raise RecipeError(
            f"The recipe '{recipe.name}' would train for about {rounded(cost.seconds)} on this machine "
            f"({recipe.steps:,} steps of {recipe.batch_size:,} images at {cost.images_per_second:.3g} images/s). "
            f"Give the run a budget with {argument('time', '8h')}, or fewer steps with {argument('overrides', ['steps=1000'])}."
        )
    return fitted, cost, reasons

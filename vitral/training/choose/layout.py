"""How a run is laid out to fit the machine, and what that is expected to cost by what was measured."""

from vitral.advice import argument
from vitral.errors import RecipeError
from vitral.training.facts import Facts
from vitral.training.plan import Cost
from vitral.training.settings.durations import YEAR, rounded
from vitral.training.settings.recipe import Recipe


def fit_machine(recipe: Recipe, facts: Facts) -> tuple[Recipe, Cost, list[str]]:
    """Return a recipe, its length in steps, as this machine can carry it out, the cost, and why what changed is not as it was.

    Raises:
        RecipeError: Without a time budget the run would take years.
    """
    measured, machine = facts.measured, facts.machine
    assert measured is not None, "the network was not measured"
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
    if cost.seconds > YEAR and facts.budget_seconds is None:
        raise RecipeError(
            f"The recipe '{recipe.name}' would train for about {rounded(cost.seconds)} on this machine "
            f"({recipe.steps:,} steps of {recipe.batch_size:,} images at {cost.images_per_second:.3g} images/s). "
            f"Give the run a budget with {argument('time', '8h')}, or fewer steps with {argument('overrides', ['steps=1000'])}."
        )
    return fitted, cost, reasons


def fit_memory(
    recipe: Recipe, *, fixed: int, an_image: int, images: int, usable: int | None
) -> tuple[Recipe, list[str]]:
    """Return the recipe with the fewest parts of a batch that fit the memory, a power of two, and why if there are several.

    A recipe that sets its own number of parts keeps it. Parts change the order of sums, and a batch norm's statistics, which
    are then those of a part, as they are of a device in the published runs.

    Args:
        recipe: The settings.
        fixed: Bytes of weights, gradients and optimizer.
        an_image: Bytes that an image needs between its forward and backward pass.
        images: Images of a batch in this process.
        usable: Bytes that the run may take; None for any number.
    """
    if recipe.compute.accumulation is not None:
        return recipe, []
    parts = 1
    while usable is not None and parts < images and fixed + an_image * -(-images // parts) > usable:
        parts *= 2
    fitted = recipe.with_changes({"compute.accumulation": parts})
    if parts == 1:
        return fitted, []
    return fitted, [
        f"Memory: {images} images at once would need {(fixed + an_image * images) / 2**30:.0f} GiB, so a batch goes through "
        f"the network in {parts} parts of {-(-images // parts)} (compute.accumulation)."
    ]

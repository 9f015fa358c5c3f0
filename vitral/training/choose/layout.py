"""How long a run is on the data at hand, how it is laid out to fit the machine, and what it is expected to cost.

Epochs become steps; our own recipes give way to a small dataset, others stay.
"""

from collections.abc import Mapping

from vitral.advice import argument
from vitral.errors import RecipeError
from vitral.training.facts import Facts, Measured, faster
from vitral.training.plan import Cost
from vitral.training.settings.durations import YEAR, rounded
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.schedule import ScheduleSettings

MIN_STEPS = 300  # what a very small set still needs to learn its head and adapt its features
DEFAULT_EPOCHS = 30.0
LONGEST_FRACTION = 1 / 2  # of a run, for a warm-up or cool-down; a longer one is cut to
SHORT_FRACTION = 1 / 10
NO_EPOCHS = dict.fromkeys(("warmup_epochs", "cooldown_epochs", "hold_epochs"))  # they have become steps
LEAST_RATES = 10  # that a run goes through: in fewer epochs a rate an epoch would hardly move


def fit_machine(recipe: Recipe, facts: Facts) -> tuple[Recipe, Cost, list[str]]:
    """Return a recipe, its length in steps, as this machine can carry it out, the cost, and why what changed is not as it was.

    Raises:
        RecipeError: Without a time budget the run would take years.
    """
    measured, machine = facts.measured, facts.machine
    assert measured is not None, "the network was not measured"
    images = recipe.batch_size // machine.processes
    recipe, why = fit_precision(recipe, measured)
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
    return fitted, cost, [*why, *reasons]


def fit_precision(recipe: Recipe, measured: Measured) -> tuple[Recipe, list[str]]:
    """Return the recipe in the precision in which its steps are faster here, and why, where that was left to us."""
    speeds, taken = measured.speeds, faster(measured.speeds)
    if recipe.precision != "auto" or taken == "auto":
        return recipe, []
    other = "fp32" if taken == "bf16" else "bf16"
    times = speeds[taken] / speeds[other]
    how = f"{times:.2g} times as fast as" if times > 1 else "about as fast as"
    return recipe.with_changes({"precision": taken}), [f"Precision: {taken}, in which a step is {how} in {other} here."]


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


def fit_length(recipe: Recipe, images: int, processes: int = 1) -> tuple[Recipe, list[str]]:
    """Return the recipe with numbers of steps instead of epochs, and the reason for what is not as written, a line each.

    An epoch has so many images, and so many processes share a batch. A batch may be larger than the dataset: it then holds
    images of several epochs. Only a recipe with `fit_to_data` has its batch cut to a quarter of a small dataset, and makes
    `MIN_STEPS` at least.
    """
    batch, reasons = _batch(recipe, images, processes)
    steps = recipe.steps
    if steps is None:
        epochs = recipe.epochs if recipe.epochs is not None else DEFAULT_EPOCHS
        steps = max(MIN_STEPS if recipe.fit_to_data else 1, round(epochs * images / batch))
        reasons.append(
            f"Length: {steps} steps of {batch} images, each image seen about {steps * batch / images:.0f} times."
        )
    schedule = _in_steps(recipe.schedule, images / batch)
    cuts, why = _cut(schedule, steps)
    changes = {f"schedule.{key}": value for key, value in {**NO_EPOCHS, **schedule, **cuts}.items()}
    return recipe.with_changes({"batch_size": batch, "steps": steps, "epochs": None, **changes}), [*reasons, *why]


def _cut(schedule: Mapping[str, int], steps: int) -> tuple[dict[str, int], list[str]]:
    """Shorten what a short run has no room for, so that it reaches its rate and comes down from it; and say so."""
    changes, reasons = {}, []
    for key, title in (("warmup_steps", "Warm-up"), ("cooldown_steps", "Cool-down")):
        if (written := schedule[key]) > steps * LONGEST_FRACTION:
            changes[key] = round(steps * SHORT_FRACTION)
            reasons.append(f"{title}: {changes[key]} steps in place of {written}, because the run has only {steps}.")
    if (hold := schedule["hold_steps"]) > max(1, steps / LEAST_RATES):
        changes["hold_steps"] = 1
        reasons.append(f"Learning rate: it changes every step, and not every {hold}, because the run has only {steps}.")
    return changes, reasons


def _batch(recipe: Recipe, images: int, processes: int) -> tuple[int, list[str]]:
    batch, reasons = recipe.batch_size, []
    if recipe.fit_to_data and batch > (fitting := max(8, images // 4)):
        batch = fitting
        reasons.append(
            f"Batch: {batch} images in place of {recipe.batch_size}, because there are only {images} to train on."
        )
    if batch % processes:
        batch = max(processes, batch // processes * processes)
        reasons.append(f"Batch: {batch} images, so that {processes} processes can share it evenly.")
    return batch, reasons


def _in_steps(schedule: ScheduleSettings, steps_an_epoch: float) -> dict[str, int]:
    """Return what a schedule says in epochs or in steps, in steps."""
    warmup, cooldown, hold = schedule.warmup_steps, schedule.cooldown_steps, schedule.hold_steps
    if schedule.warmup_epochs is not None:
        warmup = round(schedule.warmup_epochs * steps_an_epoch)
    if schedule.cooldown_epochs is not None:
        cooldown = round(schedule.cooldown_epochs * steps_an_epoch)
    if schedule.hold_epochs is not None:
        hold = max(1, round(schedule.hold_epochs * steps_an_epoch))
    return {"warmup_steps": warmup, "cooldown_steps": cooldown, "hold_steps": hold}

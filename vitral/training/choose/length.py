"""How long a run is on the data at hand: epochs become steps; our own recipes give way to a small dataset, others stay."""

from collections.abc import Mapping

from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import ScheduleSettings

MIN_STEPS = 300  # what a very small set still needs to learn its head and adapt its features
DEFAULT_EPOCHS = 30.0
LONGEST_FRACTION = 1 / 2  # of a run, for a warm-up or cool-down; a longer one is cut to
SHORT_FRACTION = 1 / 10
NO_EPOCHS = dict.fromkeys(("warmup_epochs", "cooldown_epochs", "hold_epochs"))  # they have become steps
LEAST_RATES = 10  # that a run goes through: in fewer epochs a rate an epoch would hardly move


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

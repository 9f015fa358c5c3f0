"""How long a run is on the data at hand: epochs become steps, and a batch what the data and the processes can fill."""

from vitral import distributed
from vitral.data.source import Source
from vitral.training.recipe import Recipe
from vitral.training.settings import ScheduleSettings

MIN_STEPS = 300  # what a very small set still needs to learn its head and adapt its features


def fit_length(recipe: Recipe, train: Source) -> tuple[Recipe, list[str]]:
    """Return the recipe with a batch that the data can fill, and numbers of steps in place of epochs; and why."""
    batch = min(recipe.batch_size, max(8, len(train) // 4)) if not train.endless else recipe.batch_size
    reasons = []
    if batch < recipe.batch_size and recipe.steps is not None:
        reasons.append(
            f"Batch: {batch} pictures in place of {recipe.batch_size}, for there are only {len(train)} to train on."
        )
    world = distributed.world()
    if batch % world:
        batch = max(world, batch // world * world)
        reasons.append(f"Batch: {batch} pictures, so that {world} processes can share it evenly.")
    steps = recipe.steps
    if steps is None:
        epochs = recipe.epochs if recipe.epochs is not None else 30.0
        steps = max(MIN_STEPS, round(epochs * len(train) / batch))
        seen = steps * batch / len(train)
        reasons.append(f"Length: {steps} steps of {batch} pictures, each picture seen about {seen:.0f} times.")
    schedule = _schedule(recipe, steps, len(train) / batch)
    return recipe.model_copy(
        update={"batch_size": batch, "steps": steps, "epochs": None, "schedule": schedule}
    ), reasons


def _schedule(recipe: Recipe, steps: int, steps_an_epoch: float) -> ScheduleSettings:
    schedule = recipe.schedule
    warmup, cooldown = schedule.warmup_steps, schedule.cooldown_steps
    if schedule.warmup_epochs is not None:
        warmup = round(schedule.warmup_epochs * steps_an_epoch)
    if schedule.cooldown_epochs is not None:
        cooldown = round(schedule.cooldown_epochs * steps_an_epoch)
    if recipe.steps is None:
        warmup = warmup if warmup <= steps // 5 else steps // 10  # 10.7 % of the paper's 300 epochs of ImageNet
    changes = {
        "warmup_steps": warmup,
        "warmup_epochs": None,
        "cooldown_steps": min(cooldown, steps // 2),
        "cooldown_epochs": None,
    }
    return schedule.model_copy(update=changes)

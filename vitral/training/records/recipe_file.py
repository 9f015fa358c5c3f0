"""The recipe in a run folder: as resolved, so that running it again gives the same weights; or why it would not."""

from collections.abc import Sequence
from pathlib import Path

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.errors import TrainingError
from vitral.files import write_file
from vitral.training.settings.recipe import Recipe, first_difference, load_recipe

RECIPE_FILE = "recipe.toml"
EXACT = (
    "# Run again on the same data, from the same weights, by the same means, and without a time budget, it gives the same "
    "weights."
)
NOT_EXACT = "# Run again, it does not give the same weights: "


def claim_recipe(folder: Path, recipe: Recipe, remarks: Sequence[str] = (), *, resume: bool) -> bool:
    """Write a run's recipe, once it is known to be that of the run in the folder; return whether its length is another.

    Raises:
        TrainingError: the folder holds a run and `resume` is false, or the recipe is not that of the run.
    """
    path = folder / RECIPE_FILE
    if not resume and path.is_file():
        raise TrainingError(
            f"'{folder}' already holds a run; continue it by {argument('resume', True)}, "
            f"or choose another {argument('out')}."
        )
    before = load_recipe(path) if path.is_file() else recipe
    if key := first_difference(recipe, before):
        raise TrainingError(f"The run in '{folder}' began with another '{key}'; resume it with its own {RECIPE_FILE}.")
    distributed.barrier()  # nobody reads what the main process is about to write
    if torchrun.is_main():
        write_recipe(folder, recipe, remarks)
    return recipe.steps != before.steps


def write_recipe(folder: Path, recipe: Recipe, remarks: Sequence[str] = ()) -> None:
    """Write a run's recipe, with the remarks on running it again."""
    before = kept_remarks(folder)
    remarks = [*before, *(remark for remark in remarks if remark not in before)]
    heading = [NOT_EXACT + remark for remark in remarks] or [EXACT]
    write_file(folder / RECIPE_FILE, "\n".join([*heading, "", recipe.to_toml()]))


def kept_remarks(folder: Path) -> tuple[str, ...]:
    """Return why the recipe in a run folder, run again, would not give the same weights; nothing where it would."""
    path = folder / RECIPE_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return tuple(line.removeprefix(NOT_EXACT) for line in lines if line.startswith(NOT_EXACT))

"""Recipes: read, changed, refused, written back."""

from pathlib import Path

import pytest

from vitral.errors import RecipeError
from vitral.training.recipe import list_recipes, load_recipe


@pytest.mark.parametrize("name", list_recipes())
def test_every_packaged_recipe_loads_and_round_trips(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    written = tmp_path / "again.toml"
    written.write_text(recipe.to_toml())
    assert load_recipe(written) == recipe


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.learning=1", r"unknown key 'optimizer.learning'"),
        ("optimizer.weight_decy=1", r"Did you mean 'optimizer.weight_decay'"),
        ("optimiser.lr=1", r"unknown key 'optimiser'"),
        ("batchsize=3", r"Did you mean 'batch_size'"),
        ("augmentation.flipp=true", r"Did you mean 'augmentation.flip'"),
        ("optimizer.lr=-1", r"impossible 'optimizer.lr'"),
        ("optimizer.lr=fast", r"impossible 'optimizer.lr'"),
        ("schedule.decay=step", r"impossible 'schedule.decay'"),
        ("lr", r"KEY=VALUE"),
        ("name.x=1", r"is a value, not a section"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as refused:
        load_recipe("finetune", [override])
    assert "\n" not in str(refused.value)


def test_overrides_are_typed() -> None:
    recipe = load_recipe("finetune", ["optimizer.lr=0.01", "precision=fp32", "averaging.decay=0.99", "steps=7"])
    assert (recipe.optimizer.lr, recipe.precision, recipe.averaging.decay, recipe.steps) == (0.01, "fp32", 0.99, 7)


def test_unknown_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Did you mean 'finetune'"):
        load_recipe("finetun")
    broken = tmp_path / "broken.toml"
    broken.write_text("steps = = 3")
    with pytest.raises(RecipeError, match="not valid TOML"):
        load_recipe(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(broken)

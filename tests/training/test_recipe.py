"""Recipes: read, changed, refused, written back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import every_case
from vitral.classifier.load import load
from vitral.errors import RecipeError, did_you_mean
from vitral.events import ignore
from vitral.images.preprocessing import Preprocessing
from vitral.studies.finetune import finetune
from vitral.training.candidates.result import RunResult
from vitral.training.pretrain import pretrain
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import first_difference, load_recipe, may_change


@every_case("name", list_recipes())
def test_every_packaged_recipe_loads_and_round_trips(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    written = tmp_path / "again.toml"
    written.write_text(recipe.to_toml())
    assert load_recipe(written) == recipe


@every_case(
    ("override", "message"),
    [
        ("optimizer.learning=1", r"unknown key 'optimizer.learning'"),
        ("optimizer.weight_decy=1", r"Did you mean 'optimizer.weight_decay'"),
        ("optimiser.lr=1", r"unknown key 'optimiser'.* Did you mean 'optimizer.lr'\?"),
        ("method.points=9", r"'method.points' .* 'mask-queries'.*method.name=mask-queries"),
        ("lr=0.1", r"unknown key 'lr'.* Did you mean 'optimizer.lr'\?"),
        ("learning.lr=0.1", r"Did you mean 'optimizer.lr'\?"),
        ("decay=cosine", r"Did you mean 'schedule.decay' or 'averaging.decay'\?"),
        ("dropuot=0.1", r"Did you mean 'regularization.dropout' or 'experts.dropout'\?"),
        ("optimizer=adam", r"'optimizer' is a section .* optimizer.name, optimizer.lr"),
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


@every_case(
    ("override", "key", "value"),
    [
        ("augmentation.crop=none", "augmentation.crop", "none"),
        ("augmentation.policy=none", "augmentation.policy", "none"),
        ("compute.sharding=none", "compute.sharding", "none"),
        ("optimizer.clip_norm=none", "optimizer.clip_norm", None),
        ("averaging.decay=none", "averaging.decay", None),
        ("image_size=none", "image_size", None),
        ("augmentation=none", "augmentation", None),
    ],
)
def test_none_is_a_word_where_a_setting_has_it_and_nothing_elsewhere(
    override: str, key: str, value: str | None
) -> None:
    found: object = load_recipe("finetune-imagenet-512", [override])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


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


def test_a_recipes_preprocessing_replaces_what_it_names_and_no_more() -> None:
    own = Preprocessing(image_size=(24, 24), mean=(0.1, 0.2, 0.3))
    recipe = load_recipe("finetune", ["preprocessing.resize=crop", "preprocessing.crop_fraction=0.875"])
    assert recipe.preprocessing.over(own) == replace(own, resize="crop", crop_fraction=0.875)
    assert load_recipe("finetune").preprocessing.over(own) == own
    with pytest.raises(RecipeError, match=r"impossible 'preprocessing\.std"):
        load_recipe("finetune", ["preprocessing.std=[0, 1, 1]"])


@every_case("train", [pretrain, finetune])
def test_the_classifier_keeps_the_recipes_preprocessing(train: Callable[..., RunResult], tmp_path: Path) -> None:
    changes = [
        "steps=1",
        "batch_size=4",
        "image_size=16",
        "preprocessing.std=[0.2, 0.2, 0.2]",
        "preprocessing.mean=[0.4, 0.4, 0.4]",
    ]
    changes += ["preprocessing.resize=crop", "preprocessing.interpolation=bicubic", "preprocessing.resampler=pillow"]
    start = (
        {"model": "vit-nano4"}
        if train is pretrain
        else {"source": "vit-nano4", "baselines": False, "recipe": "scratch"}
    )
    result = train("digits", out=tmp_path / "run", overrides=changes, listener=ignore, **start)
    kept = load(result.classifier_folder).preprocessing
    assert (kept.resize, kept.interpolation, kept.resampler) == ("crop", "bicubic", "pillow")
    assert (kept.mean, kept.std, kept.image_size) == ((0.4, 0.4, 0.4), (0.2, 0.2, 0.2), (16, 16))


def test_the_settings_that_may_change_on_a_resume_are_marked_where_they_are_set() -> None:
    assert may_change() == {
        "steps",
        "workers",
        "objective.posthoc_adjustment",
        "schedule.bends",
        "checkpoint.every_steps",
        "checkpoint.keep",
        "checkpoint.archive_steps",
        "compute.sharding",
        "compute.expert_parallel",
        "compute.checkpointing",
        "compute.accumulation",
        "compute.compile",
        "faults.max_skipped",
    }


def test_another_layout_is_no_other_recipe_and_another_rate_is() -> None:
    recipe = load_recipe("finetune", ["steps=9"])
    assert first_difference(recipe, recipe.changed(["compute.accumulation=3", "steps=7", "workers=0"])) is None
    assert first_difference(recipe, recipe.changed(["optimizer.lr=0.7"])) == "optimizer.lr"


@every_case(("key", "hint"), [("nokey", ""), ("banana", ""), ("workrs", "workers"), ("optimiser.lr", "optimizer.lr")])
def test_only_a_near_name_is_offered(key: str, hint: str) -> None:
    with pytest.raises(RecipeError, match="unknown key") as refused:
        load_recipe("scratch", [f"{key}=1"])
    assert str(refused.value).endswith(f"Did you mean '{hint}'?" if hint else f"'{key}'.")
    assert did_you_mean("nokey", ["workers"]) == ""

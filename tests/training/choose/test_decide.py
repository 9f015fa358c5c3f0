"""A plan is a function of the request and the facts; the commands print it and stop."""

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import vitral
from tests.cases import every_case
from tests.training.choose.situations import FACTS, LAPTOP, changed, planned
from vitral.cli.main import main
from vitral.errors import RecipeError
from vitral.events import ignore
from vitral.images.augment import Augmentation
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.training.choose.attempts import wants_one
from vitral.training.choose.decide import decide
from vitral.training.choose.draft import draft_of
from vitral.training.facts import Measured
from vitral.training.request import Request
from vitral.training.settings.recipe import load_recipe

SLOW = Measured(images_per_second=2.0, fixed_bytes=1 << 30, image_bytes=1 << 26)


def test_nothing_is_read_and_nothing_built(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = [
        draft_of(Request("fine-tune", "photos")),
        draft_of(Request("fine-tune", "photos", source="ViT-Ti_16.npz")),
        draft_of(Request("pre-train", "photos", recipe="deit-ti16")),
    ]

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a plan is a function of its arguments")

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    for draft in drafts:
        assert decide(draft, LAPTOP) == decide(draft, LAPTOP)
        assert decide(draft, replace(LAPTOP, measured=SLOW)).cost is not None


@every_case(("side", "model"), [(32.0, "conv-vit-8"), (47.0, "conv-vit-8"), (48.0, "conv-vit-16")])
def test_random_weights_fit_the_images(side: float, model: str) -> None:
    plan = planned(changed(FACTS, side=side))
    assert (plan.start, plan.origin) == (model, "model")
    assert model in plan.reasons[0]
    assert f"at {plan.recipe.image_size} pixels" in plan.reasons[1]


@every_case("speed", [20.0, 100.0, 500.0])  # images a second, as a busy machine measures them, and a quiet one
def test_without_a_budget_a_run_from_scratch_takes_no_longer_than_it_promises(speed: float) -> None:
    plan = planned(changed(FACTS, side=224.0, images=5000, measured=Measured(speed, 1, 1)))
    assert plan.cost is not None
    assert 0 < plan.cost.seconds <= 25 * 60 + 128 / speed  # an update more, by rounding


def test_a_size_that_is_said_is_taken_and_chooses_the_network() -> None:
    plan = planned(image_size=32)
    assert (plan.start, plan.recipe.image_size) == ("conv-vit-8", 32)
    assert "Photos at 32 pixels, as requested." in plan.reasons


@every_case("side", [32.0, 400.0])
@every_case("flip", [False, True])
@every_case("kind", ["fine-tune", "pre-train"])
def test_what_is_said_of_the_views_is_laid_over_those_of_the_data(kind: str, flip: bool, side: float) -> None:
    for own in (Augmentation(flip=flip), Augmentation(crop="none", flip=flip, shift=0.1)):
        facts = changed(FACTS, side=side, augmentation=own)
        plan = planned(facts, kind, overrides=("augmentation.rotate=10",))
        assert plan.augmentation == replace(planned(facts, kind).augmentation, rotate=10.0)


def test_a_section_that_is_said_as_a_table_says_each_of_its_keys() -> None:
    tables = ('optimizer={name="sgd", lr=0.1}', "augmentation={crop='resized', flip=false}")
    request = Request("fine-tune", "photos", source="photos/run", overrides=tables)
    assert request.overridden == {
        "optimizer.name": "sgd",
        "optimizer.lr": "0.1",
        "augmentation.crop": "resized",
        "augmentation.flip": "False",
    }
    assert wants_one(request.overridden)
    assert planned(overrides=tables[1:]).augmentation == Augmentation(crop="resized", flip=False)


def test_views_that_a_recipe_says_are_not_those_of_the_data() -> None:
    plan = planned(recipe="deit-ti16", overrides=("augmentation.rotate=10",))
    recipe = load_recipe("deit-ti16")
    assert recipe.augmentation is not None
    assert plan.augmentation == replace(recipe.augmentation, rotate=10.0)


def test_images_of_several_classes_are_not_mixed() -> None:
    assert planned(time="10h").recipe.mixing.cutmix == 1.0
    assert planned(changed(FACTS, task=MULTI_LABEL), time="10h").recipe.mixing.cutmix == 0.0


def test_a_size_that_is_said_is_taken_of_enlarged_images_too() -> None:
    enlarged = changed(FACTS, detail=32.0)
    plan = planned(enlarged, image_size=128)
    assert (plan.start, plan.recipe.image_size) == ("conv-vit-16", 128)
    plan = planned(enlarged)
    assert (plan.start, plan.recipe.image_size) == ("conv-vit-8", 32)
    assert any("at 32 pixels: larger they show no more" in line for line in plan.reasons)


def test_the_length_fits_the_size_that_is_said() -> None:
    def steps(size: int) -> int:
        return planned(changed(FACTS, side=500.0), image_size=size, time="4m").recipe.steps or 0

    assert steps(160) == pytest.approx(steps(128) * (128 / 160) ** 2, rel=0.05)  # of one network


def test_a_recipe_that_is_named_is_not_changed() -> None:
    plan = planned(recipe="scratch")
    recipe = load_recipe("scratch")
    assert (plan.recipe.image_size, plan.recipe.augmentation) == (None, None)
    assert plan.recipe.steps == round((recipe.epochs or 0) * FACTS.data.images / recipe.batch_size)


def test_what_was_measured_decides_the_layout_and_the_cost_alone() -> None:
    request: dict[str, Any] = {"recipe": "finetune-cifar10", "source": "vit-ti16"}
    before = planned(**request)
    after = planned(changed(FACTS, measured=SLOW, usable_bytes=5 << 30), **request)
    assert after.recipe == before.recipe.with_changes({"compute.accumulation": 8})  # 512 images of 64 MiB into 4 GiB
    assert after.reasons[: len(before.reasons)] == before.reasons
    assert after.cost is not None
    assert after.cost.seconds == (before.recipe.steps or 0) * 512 / 2.0
    assert after.cost.bytes == 5 << 30


def test_labels_that_may_be_several_are_learned_one_by_one() -> None:
    for kind, recipe in (("fine-tune", "scratch"), ("pre-train", "pretrain")):
        plan = planned(changed(FACTS, task=MULTI_LABEL), kind, recipe=recipe)
        assert plan.recipe.objective.name == "sigmoid"
        assert "Objective: sigmoid, since the images may have several labels." in plan.reasons


def test_a_batch_is_shared_evenly_by_the_processes() -> None:
    plan = planned(changed(FACTS, processes=4), "pre-train", overrides=("batch_size=10",))
    assert plan.recipe.batch_size == 8


@every_case("changes", [{"optimizer.lr": -1.0}, {"optimizer.rate": 1.0}, {"steps": 5, "epochs": 2.0}])
def test_a_changed_recipe_is_checked_like_any_other(changes: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        load_recipe("scratch").with_changes(changes)


def test_no_recipe_passes_by_its_validators() -> None:
    sources = Path(vitral.__file__).parent.rglob("*.py")
    assert [
        path.name for path in sources if "model_copy(" in path.read_text() or "model_construct(" in path.read_text()
    ] == []


MEASURED = ("Time ", "Speed: ", "Of the time: ")  # how lines begin that are anew in every command
LINE = ["--data", "digits", "--set", "steps=3", "--set", "batch_size=8", "--set", "workers=0", "--image-size", "16"]


@pytest.mark.parametrize(
    ("command", "planned", "network"),
    [("finetune", ("plan",), "--from"), ("pretrain", ("pretrain", "--plan"), "--model")],
)
def test_a_plan_is_what_the_run_then_does(
    command: str,
    planned: tuple[str, ...],
    network: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [command, *LINE, network, "vit-mu4"]
    plan = [*planned, *LINE, network, "vit-mu4"]
    assert main(plan) == 0
    told = capsys.readouterr().out
    for part in (
        "10 classes in digits",
        "1259 photos for training",
        "vit-mu4",
        "at 16 pixels",
        "Recipe: ",
        "Speed: ",
        "reading ",
    ):
        assert part in told
    assert main([*plan, "--json"]) == 0
    written_plan = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    assert main([*line, "--out", "run", "-v"]) == 0
    ran = capsys.readouterr().err.splitlines()
    assert [text for text in told.splitlines() if text not in ran and not text.startswith(MEASURED)] == []
    written = load_recipe(tmp_path / "run" / "recipe.toml")
    assert written.model_dump(mode="json") == written_plan["recipe"]
    assert written_plan["network"]["image_size"] == [16, 16]
    assert written_plan["cost"]["seconds"] > 0
    assert main([*planned, "--resume", "--out", "run"]) == 0
    assert "Recipe: " in capsys.readouterr().out


def test_a_recipe_that_names_its_network_gives_the_same_weights_again(tmp_path: Path) -> None:
    settings = ["steps=2", "batch_size=8", "workers=0", "model=vit-mu4"]
    first = vitral.finetune(
        "digits",
        recipe="scratch",
        image_size=16,
        overrides=settings,
        out=tmp_path / "one",
        baselines=False,
        listener=ignore,
    )
    again = vitral.finetune(
        "digits", recipe=tmp_path / "one" / "recipe.toml", out=tmp_path / "two", baselines=False, listener=ignore
    )
    weights = [run.classifier.model.state_dict() for run in (first, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_plan_in_python_reads_as_its_lines() -> None:
    run = vitral.plan("digits", source="vit-mu4", overrides=["steps=3"], listener=ignore)
    assert repr(run).splitlines() == run.lines()
    assert run.recipe.steps == 3


def test_a_plan_says_what_goes_without_a_first_classifier_and_what_is_swept() -> None:
    cases: tuple[tuple[dict[str, Any], bool, bool], ...] = (
        ({}, True, False),
        ({"baselines": False}, False, False),
        ({"sweep": True}, False, True),
    )
    for more, first, swept in cases:
        told = repr(vitral.plan("digits", source="vit-mu4", overrides=["steps=3"], listener=ignore, **more))
        assert ("First a linear layer" in told) == first
        assert ("This is one run: a sweep makes one for each learning rate" in told) == swept


def test_reading_the_data_takes_time_from_the_choice() -> None:
    """Of three minutes that reading took two of, a network and a size are chosen for the rest."""

    def chosen(reading: float, time: str = "3m") -> tuple[str, int | None]:
        plan = planned(changed(FACTS, side=224.0), spent=reading, time=time)
        return plan.start, plan.recipe.image_size

    assert chosen(0.0) == chosen(9.0), "what is usual is in what was measured of whole commands"
    late = chosen(120.0)
    assert late == chosen(0.0, "70s")
    assert late != chosen(0.0)

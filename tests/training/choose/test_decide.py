"""A plan is a function of the request and the facts; the commands print it and stop."""

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
import torch
from tests.training.planning.situations import DATA, FACTS, MACHINE, WEIGHTS

import vitral
from vitral.cli.main import main
from vitral.errors import RecipeError
from vitral.events import ignore
from vitral.images.augment import Augmentation
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.training.choose.decide import resolve
from vitral.training.facts import DataFacts, Facts, MachineFacts, Measured
from vitral.training.request import ask, read_request
from vitral.training.settings.recipe import load_recipe

SLOW = Measured(images_per_second=2.0, fixed_bytes=1 << 30, image_bytes=1 << 26)


def test_nothing_is_read_and_nothing_built(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [
        read_request(ask("fine-tune", "photos")),
        read_request(ask("fine-tune", "photos", source="ViT-Ti_16.npz")),
        read_request(ask("pre-train", "photos", recipe="deit-ti16")),
    ]

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a plan is a function of its arguments")

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    for request in requests:
        facts = replace(FACTS, weights=WEIGHTS)
        assert resolve(request, facts) == resolve(request, facts)
        assert resolve(request, replace(facts, measured=SLOW)).cost is not None


@pytest.mark.parametrize(("side", "model"), [(32.0, "conv-vit-8"), (47.0, "conv-vit-8"), (48.0, "conv-vit-16")])
def test_random_weights_fit_the_images(side: float, model: str) -> None:
    facts = Facts(replace(DATA, side=side), MACHINE)
    plan = resolve(read_request(ask("fine-tune", "photos")), facts)
    assert (plan.start, plan.origin) == (model, "model")
    assert model in plan.reasons[0]
    assert f"Images at {plan.recipe.image_size} pixels" in plan.reasons[1]


def test_a_size_that_is_said_is_taken_and_chooses_the_network() -> None:
    plan = resolve(read_request(ask("fine-tune", "photos", image_size=32)), FACTS)
    assert (plan.start, plan.recipe.image_size) == ("conv-vit-8", 32)
    assert "Images at 32 pixels, as you said." in plan.reasons


@pytest.mark.parametrize("side", [32.0, 400.0])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("kind", ["fine-tune", "pre-train"])
def test_what_is_said_of_the_views_is_laid_over_those_of_the_data(
    kind: Literal["fine-tune", "pre-train"], flip: bool, side: float
) -> None:
    said = "augmentation.rotate=10"
    for own in (Augmentation(flip=flip), Augmentation(crop="none", flip=flip, shift=0.1)):
        facts = Facts(replace(DATA, side=side, augmentation=own), MACHINE)
        unsaid = resolve(read_request(ask(kind, "photos")), facts).augmentation
        plan = resolve(read_request(ask(kind, "photos", overrides=[said])), facts)
        assert plan.augmentation == replace(unsaid, rotate=10.0)


def test_a_section_that_is_said_as_a_table_says_each_of_its_keys() -> None:
    said = ['optimizer={name="sgd", lr=0.1}', "augmentation={crop='resized', flip=false}"]
    request = read_request(ask("fine-tune", "photos", source="photos/run", overrides=said))
    assert request.told == {
        "optimizer.name": "sgd",
        "optimizer.lr": "0.1",
        "augmentation.crop": "resized",
        "augmentation.flip": "False",
    }
    assert not request.several
    plan = resolve(read_request(ask("fine-tune", "photos", overrides=said[1:])), FACTS)
    assert plan.augmentation == Augmentation(crop="resized", flip=False)


def test_views_that_a_recipe_says_are_not_those_of_the_data() -> None:
    said = ["augmentation.rotate=10"]
    plan = resolve(read_request(ask("fine-tune", "photos", recipe="deit-ti16", overrides=said)), FACTS)
    recipe = load_recipe("deit-ti16")
    assert recipe.augmentation is not None
    assert plan.augmentation == replace(recipe.augmentation, rotate=10.0)


def test_images_of_several_classes_are_not_mixed() -> None:
    def mixing(data: DataFacts) -> float:
        asked = read_request(ask("fine-tune", "photos", time="10h"))
        return resolve(asked, Facts(data, MACHINE)).recipe.mixing.cutmix

    assert mixing(DATA) == 1.0
    assert mixing(replace(DATA, task=MULTI_LABEL)) == 0.0


def test_a_size_that_is_said_is_taken_of_enlarged_images_too() -> None:
    facts = Facts(replace(DATA, detail=32.0), MACHINE)
    plan = resolve(read_request(ask("fine-tune", "photos", image_size=128)), facts)
    assert (plan.start, plan.recipe.image_size) == ("conv-vit-16", 128)
    plan = resolve(read_request(ask("fine-tune", "photos")), facts)
    assert (plan.start, plan.recipe.image_size) == ("conv-vit-8", 32)
    assert "Images at 32 pixels: larger they show no more." in plan.reasons


def test_the_length_fits_the_size_that_is_said() -> None:
    def steps(size: int) -> int:
        asked = ask("fine-tune", "photos", image_size=size, time="4m")
        return resolve(read_request(asked), Facts(replace(DATA, side=500.0), MACHINE)).recipe.steps or 0

    assert steps(160) == pytest.approx(steps(128) * (128 / 160) ** 2, rel=0.05)  # of one network


def test_a_recipe_that_is_named_is_not_changed() -> None:
    plan = resolve(read_request(ask("fine-tune", "photos", recipe="scratch")), FACTS)
    recipe = load_recipe("scratch")
    assert (plan.recipe.image_size, plan.recipe.augmentation) == (None, None)
    assert plan.recipe.steps == round((recipe.epochs or 0) * DATA.images / recipe.batch_size)


def test_what_was_measured_decides_the_layout_and_the_cost_alone() -> None:
    request = read_request(ask("fine-tune", "photos", recipe="finetune-cifar10", source="vit-ti16"))
    before = resolve(request, FACTS)
    after = resolve(request, replace(FACTS, measured=SLOW, machine=MachineFacts(usable_bytes=5 << 30)))
    assert after.recipe == before.recipe.with_changes({"compute.accumulation": 8})  # 512 images of 64 MiB into 4 GiB
    assert after.reasons[: len(before.reasons)] == before.reasons
    assert after.cost is not None
    assert after.cost.seconds == (before.recipe.steps or 0) * 512 / 2.0
    assert after.cost.bytes == 5 << 30


def test_labels_that_may_be_several_are_learned_one_by_one() -> None:
    several = replace(FACTS, data=replace(DATA, task=MULTI_LABEL))
    for kind, recipe in (("fine-tune", "scratch"), ("pre-train", "pretrain")):
        plan = resolve(read_request(ask(kind, "photos", recipe=recipe, source=None)), several)  # type: ignore[arg-type]
        assert plan.recipe.objective.name == "sigmoid"
        assert "Objective: sigmoid, since the images may have several labels." in plan.reasons


def test_a_batch_is_shared_evenly_by_the_processes() -> None:
    plan = resolve(
        read_request(ask("pre-train", "photos", overrides=["batch_size=10"])),
        replace(FACTS, machine=MachineFacts(processes=4)),
    )
    assert plan.recipe.batch_size == 8


@pytest.mark.parametrize("changes", [{"optimizer.lr": -1.0}, {"optimizer.rate": 1.0}, {"steps": 5, "epochs": 2.0}])
def test_a_changed_recipe_is_checked_like_any_other(changes: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        load_recipe("scratch").with_changes(changes)


def test_no_recipe_passes_by_its_validators() -> None:
    sources = Path(vitral.__file__).parent.rglob("*.py")
    assert [
        path.name for path in sources if "model_copy(" in path.read_text() or "model_construct(" in path.read_text()
    ] == []


LINE = ["--data", "digits", "--set", "steps=3", "--set", "batch_size=8", "--set", "workers=0", "--image-size", "16"]


@pytest.mark.parametrize(("command", "network"), [("finetune", "--from"), ("pretrain", "--model")])
def test_a_plan_is_what_the_run_then_does(
    command: str, network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [command, *LINE, network, "vit-mu4"]
    assert main([*line, "--plan"]) == 0
    told = capsys.readouterr().out
    for part in (
        "Found digits: 10 classes; images: train 1259",
        "Network: vit-mu4",
        "Images at 16",
        "Recipe: ",
        "Expected: about",
    ):
        assert part in told
    assert main([*line, "--plan", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    assert main([*line, "--out", "run"]) == 0
    ran = capsys.readouterr().err.splitlines()
    assert [text for text in told.splitlines() if text not in ran and not text.startswith("Expected")] == []
    written = load_recipe(tmp_path / "run" / "recipe.toml")
    assert written.model_dump(mode="json") == planned["recipe"]
    assert planned["network"]["image_size"] == [16, 16]
    assert planned["cost"]["seconds"] > 0
    assert main([command, "--resume", "--out", "run", "--plan"]) == 0
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
    planned = vitral.plan("digits", source="vit-mu4", overrides=["steps=3"], listener=ignore)
    assert repr(planned).splitlines() == planned.lines()
    assert planned.recipe.steps == 3


def test_a_plan_says_what_goes_without_a_first_classifier_and_what_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["finetune", "--data", "digits", "--from", "vit-mu4", "--set", "steps=3", "--plan"]
    for more, first, swept in (([], True, False), (["--no-baselines"], False, False), (["--sweep"], False, True)):
        assert main([*line, *more]) == 0
        told = capsys.readouterr().out
        assert ("First a linear layer in closed form" in told) == first
        assert ("This is one run: a sweep makes one for each learning rate" in told) == swept


def test_reading_the_data_takes_time_from_the_choice() -> None:
    """Of three minutes that reading took two of, a network and a size are chosen for the rest."""
    asked = read_request(ask("fine-tune", "photos", time="3m"))

    def chosen(reading: float) -> tuple[str, int | None]:
        plan = resolve(asked, replace(FACTS, data=replace(DATA, side=224.0, reading_seconds=reading)))
        return plan.start, plan.recipe.image_size

    assert chosen(0.0) == chosen(9.0), "what is usual is in what was measured of whole commands"
    late, short = chosen(120.0), read_request(ask("fine-tune", "photos", time="70s"))
    plan = resolve(short, replace(FACTS, data=replace(DATA, side=224.0)))
    assert late == (plan.start, plan.recipe.image_size)
    assert late != chosen(0.0)


def test_what_is_expected_is_held_against_the_time_that_is_left() -> None:
    def expected(reading: float) -> str:
        facts = replace(FACTS, data=replace(DATA, reading_seconds=reading), measured=Measured(1000.0, 1, 1))
        asked = read_request(ask("fine-tune", "photos", time="60s", overrides=["epochs=none", "steps=300"]))
        return next(line for line in resolve(asked, facts).reasons if line.startswith("Expected: "))

    assert expected(1.0).startswith("Expected: about ")
    assert expected(50.0).startswith("Expected: as much training as the 60 s of `time` have room for")

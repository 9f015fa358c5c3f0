"""The recipe that fine-tuning picks by itself: by images, classes, network and hardware, with its reasons."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.training.choose.situations import LAPTOP, SERVER, WEIGHTS, changed, planned
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.events import Event, Message
from vitral.models.families import build, create_model
from vitral.studies.finetune import finetune
from vitral.training.choose.draft import draft_of
from vitral.training.choose.network import CROPS
from vitral.training.choose.recipe import METHODS, choose_recipe, fitting_size, has_one_size
from vitral.training.facts import Compared, Facts, Measured
from vitral.training.request import Request

ONE_SIZE = replace(WEIGHTS.config, position="relative")


@every_case(
    ("facts", "expected"),
    [
        (LAPTOP, {"method": "full", "size": 224, "batch": 64, "steps": 468, "mixup": 0.0}),
        (changed(LAPTOP, images=30), {"method": "probe", "batch": 8, "steps": 300}),
        (changed(LAPTOP, macs=61_000_000_000), {"method": "probe"}),
        (changed(LAPTOP, budget_seconds=60.0), {"method": "probe"}),
        (changed(LAPTOP, side=32.0), {"size": 128}),
        (changed(LAPTOP, side=32.0, config=ONE_SIZE), {"size": 224}),
        (changed(SERVER, config=ONE_SIZE), {"size": 224}),
        (SERVER, {"method": "full", "size": 384, "batch": 250, "steps": 400}),
        (changed(SERVER, images=50_000), {"steps": 9765, "batch": 512, "mixup": 0.1}),
        (changed(SERVER, images=1_280_000), {"steps": 20_000, "mixup": 0.1}),
        (changed(SERVER, parameters=5_000_000_000), {"method": "lora"}),
        (changed(SERVER, parameters=300_000_000, images=300), {"method": "lora"}),
        (changed(SERVER, parameters=5_000_000_000, low_rank=False), {"method": "probe"}),
        (changed(SERVER, parameters=300_000_000, images=300, low_rank=False), {"method": "probe"}),
    ],
)
def test_what_is_chosen(facts: Facts, expected: dict[str, Any]) -> None:
    recipe, reasons = choose_recipe(draft_of(Request("fine-tune", "photos", source="weights")), facts)
    found = {
        "method": recipe.adaptation.method,
        "size": recipe.image_size,
        "batch": recipe.batch_size,
        "steps": recipe.steps,
        "mixup": recipe.mixing.mixup,
    }
    assert {key: found[key] for key in expected} == expected
    text = "\n".join(reasons)
    assert str(recipe.steps) in text
    assert str(recipe.image_size) in text
    assert [name for name, said in METHODS.items() if f"  {said}: " in text] == [recipe.adaptation.method]
    assert recipe.preprocessing.antialias  # a phone's photo is shrunk to a tenth, whatever the start's authors did
    assert recipe.optimizer.layer_decay == (0.75 if recipe.adaptation.method == "full" else 1.0)


def test_where_size_tells_classes_apart_views_are_as_large_as_in_use() -> None:
    draft = draft_of(Request("fine-tune", "photos", source="weights"))
    usual = choose_recipe(draft, LAPTOP)[0].augmentation
    mild = choose_recipe(draft, replace(LAPTOP, views={CROPS: Compared(500, 600, 200, 800)}))[0].augmentation
    assert usual is not None
    assert mild is not None
    assert (usual.crop, mild.crop) == ("inception", "square")
    assert mild.margin == pytest.approx(1 / 0.875)  # the middle of Lite0's and DINOv2's photos in use


def test_a_size_is_one_that_the_patches_divide() -> None:
    assert fitting_size(create_model("vit-mu16", num_classes=2, patch_size=14).config, 384) == 378
    assert fitting_size(create_model("vit-mu16", num_classes=2).config, 384) == 384


def test_a_network_of_one_size_alone_keeps_its_own() -> None:
    for position, size in (("relative", 32), ("relative-2d", 384)):
        config = replace(create_model("vit-mu16", num_classes=2, image_size=32).config, position=position)
        assert fitting_size(config, 384) == size
        assert has_one_size(config) == (size == 32)
        build(config).resize(size)


def test_a_folder_alone_is_enough(tmp_path: Path) -> None:
    start = load("vit-mu4")
    save(start, tmp_path / "start")
    heard: list[Event] = []
    result = finetune(
        "digits",
        source=tmp_path / "start",
        out=tmp_path / "run",
        overrides=["steps=5"],
        image_size=12,
        listener=heard.append,
    )
    told = [event.text for event in heard if isinstance(event, Message)]
    assert any(text.startswith("Chosen for 1,259 images of 10 classes") for text in told)
    # What the user said is not told as our choice.
    assert "  as requested: steps 5, image_size 12." in told
    assert not any("own size" in text or "passes" in text or text.startswith("  images at") for text in told)
    assert result.plan.recipe.name == "automatic"
    assert result.plan.recipe.steps == 5
    again = finetune("digits", out=tmp_path / "run", resume=True)
    assert again.evaluation == result.evaluation


@every_case(
    ("said", "method", "rate", "decay"),
    [
        (["adaptation.method=lora"], "lora", 1e-3, 1.0),
        (["adaptation.method=probe"], "probe", 3e-3, 1.0),
        (["adaptation.lora_rank=4"], "lora", 1e-3, 1.0),
        (["adaptation.frozen_blocks=8"], "full", 3e-4, 0.75),
        (["optimizer.lr=1e-4"], "full", 1e-4, 0.75),
        (["optimizer.lr=1e-4", "adaptation.method=lora"], "lora", 1e-4, 1.0),
    ],
)
@every_case("time", ["10m", None])
def test_a_method_that_is_said_has_its_own_rates(
    said: list[str], method: str, rate: float, decay: float, time: str | None
) -> None:
    """500 photos and ViT-S/16 on a CPU, which all weights would take 18 minutes by a guess: `--time` cuts training itself."""
    facts = changed(LAPTOP, images=400, macs=4_600_000_000, measured=Measured(10.0, 1 << 28, 1 << 24))
    plan = planned(facts, source="ViT-S_16.npz", overrides=tuple(said), time=time)
    (attempt,) = plan.attempts
    recipe = attempt.recipe
    assert recipe == plan.recipe
    assert (recipe.adaptation.method, recipe.optimizer.lr, recipe.optimizer.layer_decay) == (method, rate, decay)
    assert (recipe.regularization.stochastic_depth == 0.0) == (method == "probe")
    assert attempt.from_probe


def test_batches_that_are_said_leave_as_many_passes() -> None:
    def seen(*overrides: str) -> tuple[int, str]:
        plan = planned(changed(LAPTOP, images=400), source="ViT-S_16.npz", overrides=overrides)
        line = next(line for line in plan.reasons if " passes: " in line)
        return (plan.recipe.steps or 0) * plan.recipe.batch_size, line

    images, line = seen("batch_size=8")
    assert images == 30 * 400
    assert line.startswith("  1500 steps of 8 images, 30 passes")
    assert seen("batch_size=64")[0] == seen()[0] == 300 * 64, "so few steps are the least"

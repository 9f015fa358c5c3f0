"""The recipe that fine-tuning picks by itself: by images, classes, network and hardware, with its reasons."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import write_images
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.events import Event, Message
from vitral.images.augment import Augmentation
from vitral.models.catalog import create_model
from vitral.training.finetune import finetune
from vitral.training.planning.automatic import Situation, choose_recipe, fitting_size
from vitral.training.settings.recipe import load_recipe
from vitral.training.sweep import best_rate, held_out_share, sweep_rates

LAPTOP = Situation(
    images=1000,
    classes=10,
    side=400.0,
    parameters=5_500_000,
    macs=1_250_000_000,
    own_size=224,
    gpu_bytes=None,
    budget_seconds=None,
)
SERVER = replace(LAPTOP, gpu_bytes=80 << 30)


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (LAPTOP, {"method": "full", "size": 224, "batch": 64, "steps": 468, "mixup": 0.0}),
        (replace(LAPTOP, images=30), {"method": "probe", "batch": 8, "steps": 300}),
        (replace(LAPTOP, macs=61_000_000_000), {"method": "probe"}),
        (replace(LAPTOP, budget_seconds=60.0), {"method": "probe"}),
        (replace(LAPTOP, side=32.0), {"size": 128}),
        (SERVER, {"method": "full", "size": 384, "batch": 250, "steps": 400}),
        (replace(SERVER, images=50_000), {"steps": 9765, "batch": 512, "mixup": 0.1}),
        (replace(SERVER, images=1_280_000), {"steps": 20_000, "mixup": 0.1}),
        (replace(SERVER, parameters=5_000_000_000), {"method": "lora"}),
        (replace(SERVER, parameters=300_000_000, images=300), {"method": "lora"}),
    ],
)
def test_what_is_chosen(situation: Situation, expected: dict[str, Any]) -> None:
    recipe, reasons = choose_recipe(situation, Augmentation())
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
    assert {"full": "all weights learn", "probe": "linear probe", "lora": "LoRA"}[recipe.adaptation.method] in text
    assert recipe.optimizer.layer_decay == (0.75 if recipe.adaptation.method == "full" else 1.0)


def test_a_size_is_one_that_the_patches_divide() -> None:
    assert fitting_size(create_model("vit-mu14", num_classes=2), 384) == 378
    assert fitting_size(create_model("vit-mu16", num_classes=2), 384) == 384


def test_rates_of_a_sweep() -> None:
    assert sweep_rates(load_recipe("finetune-cifar10")) == (0.001, 0.003, 0.01, 0.03)
    assert sweep_rates(load_recipe("finetune-imagenet")) == (0.003, 0.01, 0.03, 0.06)
    assert sweep_rates(load_recipe("finetune")) == (3.3e-5, 1e-4, 3e-4, 1e-3)
    assert best_rate({0.1: 0.5, 0.01: 0.9, 0.03: 0.9}) == 0.01


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
    assert "  as you said: steps 5, image_size 12." in told
    assert not any("own size" in text or "passes" in text or text.startswith("  images at") for text in told)
    assert result.plan.recipe.name == "automatic"
    assert result.plan.recipe.steps == 5
    again = finetune("digits", out=tmp_path / "run", resume=True)
    assert again.evaluation == result.evaluation


@pytest.mark.parametrize(("images", "share"), [(2_040, 0.1), (3_680, 0.1), (50_000, 0.02), (1_281_167, 0.01)])
def test_the_paper_holds_out_a_share_by_the_size_of_the_dataset(images: int, share: float) -> None:
    """Appendix B.1.1: Flowers, Pets, CIFAR, ImageNet."""
    assert held_out_share(images) == share


def test_without_a_test_split_a_sweep_never_chooses_by_what_it_reports(tmp_path: Path) -> None:
    write_images(tmp_path / "photos" / "train", {"blue": 40, "red": 40})
    write_images(tmp_path / "photos" / "val", {"blue": 7, "red": 7})
    heard: list[Event] = []
    overrides = ["steps=4", "image_size=16", "batch_size=8", "optimizer.sweep=[0.001, 0.01]"]
    result = finetune(
        tmp_path / "photos",
        source="vit-nano4",
        out=tmp_path / "run",
        overrides=overrides,
        sweep=True,
        baselines=False,
        listener=heard.append,
    )
    assert {name: len(split) for name, split in result.plan.data.splits.items()} == {"train": 80, "validation": 14}
    for trial in (tmp_path / "run" / "sweep").iterdir():
        described = json.loads((trial / "run.json").read_text())
        assert described["images"] == {"train": "72", "validation": "8"}
    assert any("8 training images (10%) held out" in event.text for event in heard if isinstance(event, Message))
    assert not any("validation/accuracy" in row for row in result.training.history)
    assert result.evaluation.num_examples == 14


def test_a_sweep_chooses_by_validation_and_trains_on_all_but_the_test(tmp_path: Path) -> None:
    heard: list[Event] = []
    options: dict[str, Any] = {
        "source": "vit-mu4",
        "out": tmp_path / "run",
        "overrides": ["steps=8", "image_size=16", "batch_size=32", "optimizer.sweep=[0.001, 0.5]"],
        "baselines": False,
    }
    result = finetune("digits", sweep=True, listener=heard.append, **options)
    assert {path.name for path in (tmp_path / "run" / "sweep").iterdir()} == {"lr-0.001", "lr-0.5"}
    assert result.plan.recipe.optimizer.lr in (0.001, 0.5)
    assert result.plan.recipe.optimizer.name == "sgd"
    assert {name: len(split) for name, split in result.plan.data.splits.items()} == {"train": 1438, "test": 359}
    assert any("is best" in event.text for event in heard if isinstance(event, Message))
    for trial in (tmp_path / "run" / "sweep").iterdir():
        assert '"num_examples": 179' in (trial / "evaluation.json").read_text()

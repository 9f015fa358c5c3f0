"""Adjusted logits of a trained network: in its bias, in what is said and kept, taken back on request, and once only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from tests.training.candidates.material import SIZE, write
from vitral.errors import DataError, RecipeError
from vitral.events import Event, Message
from vitral.objectives.unequal import log_prior
from vitral.training.candidates.adjusted import KEY
from vitral.training.candidates.result import RunResult

QUICK = ("steps=2", "batch_size=8", "workers=0", "precision=fp32", "optimizer.lr=0.0001")
IMAGES = {"common": 60, "rare": 15}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that two updates do not tell apart, of which a network knows which is the commoner."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("unequal")
    for split, share in (("train", 1.0), ("val", 0.4), ("test", 0.4)):
        for name, count in IMAGES.items():
            for index in range(int(share * count)):
                low = 30 if name == "rare" else 0
                write(folder / split / name / f"{index}.png", random.integers(low, low + 200, (SIZE, SIZE, 3)))
    return folder


def tune(data: Path, out: Path, *changes: str, **asked: Any) -> tuple[RunResult, list[str]]:  # noqa: ANN401
    said: list[Event] = []
    given: dict[str, Any] = {"source": "vit-mu4", "image_size": SIZE, "recipe": "scratch", "baselines": False}
    given |= {"overrides": (*QUICK, *changes), "listener": said.append} | asked
    result = vitral.finetune(data, out=out, **given)
    return result, [event.text for event in said if isinstance(event, Message)]


def bias(folder: Path) -> torch.Tensor:
    return vitral.load(folder).model.state_dict()["head.bias"].clone()


def test_the_named_strength_is_in_the_bias_and_can_be_taken_back(photos: Path, tmp_path: Path) -> None:
    prior = log_prior((60, 15))
    plain, _ = tune(photos, tmp_path / "plain", f"{KEY}=0")
    result, said = tune(photos, tmp_path / "run", f"{KEY}=0.5")
    assert torch.equal(bias(tmp_path / "run"), bias(tmp_path / "plain") - 0.5 * prior)
    assert any("tau 0.5" in line for line in said)
    entry = vitral.load(tmp_path / "run").provenance.training["logit_adjustment"]
    assert entry["tau"] == 0.5
    assert entry["sentence"] in (tmp_path / "run" / "classifier" / "README.md").read_text()
    before = bias(tmp_path / "run")
    again, _ = tune(photos, tmp_path / "run", f"{KEY}=0.5", resume=True, source=None, recipe=None, image_size=None)
    assert torch.equal(bias(tmp_path / "run"), before)  # not twice
    assert again.evaluation == result.evaluation
    undone, _ = tune(photos, tmp_path / "run", f"{KEY}=0", resume=True, source=None, recipe=None, image_size=None)
    assert torch.allclose(bias(tmp_path / "run"), bias(tmp_path / "plain"), atol=1e-6)
    assert "logit_adjustment" not in vitral.load(tmp_path / "run").provenance.training
    assert undone.evaluation.to_json()["recall"] == plain.evaluation.to_json()["recall"]


def test_by_default_validation_decides(photos: Path, tmp_path: Path) -> None:
    result, said = tune(photos, tmp_path / "run")
    entry = vitral.load(tmp_path / "run").provenance.training["logit_adjustment"]
    (line,) = (line for line in said if "adjusted for unequal classes" in line)
    assert line == entry["sentence"]
    assert entry["images"] == 30
    assert result.evaluation == vitral.evaluate(tmp_path / "run", photos, split="test", listener=lambda _: None)
    assert vitral.load(tmp_path / "run").provenance.class_images == (60, 15)


def test_equal_classes_and_several_labels_are_left_alone(photos: Path, tmp_path: Path) -> None:
    for name in IMAGES:
        for split, count in (("train", 10), ("val", 6)):
            (tmp_path / "equal" / split / name).mkdir(parents=True)
            for index in range(count):
                (tmp_path / "equal" / split / name / f"{index}.png").symlink_to(
                    photos / split / name / f"{index % 6}.png"
                )
    _, said = tune(tmp_path / "equal", tmp_path / "run")
    assert not any("unequal" in line for line in said)
    rows = [f"{photos}/train/common/{index}.png,{'a;b' if index % 3 else 'a'}" for index in range(24)]
    (tmp_path / "several.csv").write_text("\n".join(["image,labels", *rows]) + "\n")
    _, said = tune(tmp_path / "several.csv", tmp_path / "several")
    assert not any("unequal" in line for line in said)
    for change in (f"{KEY}=1", "objective.class_weights=balanced"):
        with pytest.raises(RecipeError, match="several labels"):
            tune(tmp_path / "several.csv", tmp_path / "refused", change)
    with pytest.raises(DataError, match=r"class-balanced.*several labels"):
        tune(tmp_path / "several.csv", tmp_path / "drawn", "sampling=class-balanced")


def test_sampling_and_the_losses_train(photos: Path, tmp_path: Path) -> None:
    for change in ("sampling=class-balanced", "objective.class_weights=balanced", "objective.logit_adjustment=1"):
        result, _ = tune(photos, tmp_path / change, change, f"{KEY}=0")
        assert result.training.steps == 2


def test_the_linear_model_weighs_classes_and_says_so(photos: Path, tmp_path: Path) -> None:
    _, said = tune(photos, tmp_path / "run", recipe=None, baselines=True, quick=True)
    (line,) = (line for line in said if "same weight" in line)
    entry = vitral.load(tmp_path / "run").provenance.training["class_weights"]
    assert line.startswith(entry["sentence"])
    assert entry["sentence"] in (tmp_path / "run" / "classifier" / "README.md").read_text()
    _, said = tune(photos, tmp_path / "none", "objective.class_weights=none", recipe=None, baselines=True, quick=True)
    assert not any("same weight" in line for line in said)

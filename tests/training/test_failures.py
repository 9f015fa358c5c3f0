"""What goes wrong while training ends in one line, and little data in a run that says what it cannot say."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.conftest import QUICK, write_images
from tests.forks import type_command
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import is_classifier, save
from vitral.cli.main import main
from vitral.errors import ModelError, TrainingError
from vitral.evaluation.evaluate import evaluate
from vitral.events import Event, Message
from vitral.explanation.explain import explain
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.studies.finetune import finetune

FEW = {"steps": "2", "batch_size": "4", "workers": "0"}


def tune(folder: Path, out: Path, *overrides: str, listener: object = None) -> list[Event]:
    heard: list[Event] = []
    finetune(
        folder,
        source="vit-mu16",
        image_size=32,
        out=out,
        overrides=[*(f"{key}={value}" for key, value in FEW.items()), *overrides],
        listener=heard.append,
    )
    return heard


def test_too_high_a_learning_rate_is_called_divergence(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"red": 12, "green": 12})
    changes = (
        "optimizer.lr=1e30",
        "schedule.warmup_steps=0",
        "steps=6",
        "evaluation.every_steps=2",
        "optimizer.name=sgd",
    )
    with pytest.raises(TrainingError, match=r"Lower optimizer\.lr") as stopped:
        tune(tmp_path / "photos", tmp_path / "run", *changes, "optimizer.clip_norm=none", "optimizer.weight_decay=0")
    assert "\n" not in str(stopped.value)
    log = tmp_path / "run" / "metrics.jsonl"
    assert all(np.isfinite(value) for line in log.read_text().splitlines() for value in json.loads(line).values())


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_images_a_class_are_trained_on_and_said_not_to_be_scored(tmp_path: Path, count: int) -> None:
    write_images(tmp_path / "photos", {"red": count, "green": count})
    heard = tune(tmp_path / "photos", tmp_path / "run")
    warnings = [event.text for event in heard if isinstance(event, Message) and event.warning]
    (unscored,) = [text for text in warnings if "to validate or score on" in text]
    assert "scores will be of the training photos" in unscored
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert scores["num_examples"] == 2 * count
    assert not (tmp_path / "run" / "baselines.json").exists()


def test_an_empty_validation_folder_is_no_hindrance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path / "photos" / "train", {"red": 4, "green": 4})
    (tmp_path / "photos" / "val").mkdir()
    out = tmp_path / "run"
    assert main(["finetune", "--data", str(tmp_path / "photos"), "--out", str(out), *QUICK]) == 0
    next_line = next(
        line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("vitral evaluate")
    )
    assert main(next_line.split()[1:]) == 0


@pytest.fixture
def damaged(tiny_config: ViTConfig) -> Classifier:
    model = build(tiny_config, seed=0)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    return Classifier(model, PHOTOS.with_size((16, 16)), ["red", "green", "blue"])


def test_weights_that_are_no_numbers_predict_nothing(damaged: Classifier, tmp_path: Path) -> None:
    image = np.zeros((20, 20, 3), dtype=np.uint8)
    for ask in (damaged.predict, lambda path: explain(damaged, path)):
        with pytest.raises(ModelError, match="gives no number"):
            ask(image)
    write_images(tmp_path / "photos" / "test", {"red": 2, "green": 2, "blue": 2})
    with pytest.raises(ModelError, match="gives no number"):
        evaluate(damaged, tmp_path / "photos")


def test_weights_that_are_no_numbers_end_commands_in_one_line(
    damaged: Classifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(damaged, tmp_path / "classifier")
    write_images(tmp_path / "photos", {"red": 1})
    assert main(["predict", str(tmp_path / "photos"), "--classifier", str(tmp_path / "classifier")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "gives no number" in err.splitlines()[-1]


def test_a_budget_too_short_for_anything_that_a_recipe_trains_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_images(tmp_path / "photos", {"red": 12, "green": 12})
    line = ["finetune", "--data", str(tmp_path / "photos"), "--out", str(tmp_path / "run"), *QUICK, "--time", "1s"]
    assert main([*line, "--recipe", "scratch"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "--time 1s is too short" in last
    assert "give it --time" in last
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_budget_shortens_a_real_command_and_its_schedule_with_it(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"red": 40, "green": 40})
    settings = [part for text in ("steps=1000000", "batch_size=8", "workers=0") for part in ("--set", text)]
    line = ["finetune", "--data", "photos", "--out", "run", "--from", "vit-mu16", "--image-size", "32", *settings]
    ended = type_command(tmp_path, *line, "--recipe", "scratch", "--no-baselines", "--time", "20s")
    assert ended.returncode == 0, ended.stderr
    assert is_classifier(tmp_path / "run" / "classifier")
    rows = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [row["learning_rate"] for row in rows if "learning_rate" in row]
    assert len(rates) >= 3
    assert rates[-1] < 0.2 * max(rates)

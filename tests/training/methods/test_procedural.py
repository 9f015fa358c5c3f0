"""From brackets to photos: the commands of a warm-up without an image, as a user types them."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import write_images
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.tasks.unlabelled import UNLABELLED

WARM = ("--model", "vit-mu16", "--image-size", "64", "--set", "method.name=procedural", "--set", "workers=0")


def test_a_network_is_warmed_up_without_an_image_and_fine_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "warm"
    typed = ["pretrain", "--data", "blank", *WARM, "--set", "steps=60", "--set", "batch_size=16", "--out", str(out)]
    assert (
        main([*typed, "--set", "optimizer.lr=0.003", "--set", "method.kinds=2", "--set", "schedule.warmup_steps=5"])
        == 0
    )
    said = capsys.readouterr()
    assert all(fact in said.err for fact in ("no labels in blank", "endless"))
    assert "trained without labels, so nothing is scored" in said.out
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < 0.9 * losses[0]  # brackets have a grammar
    assert load(out).task == UNLABELLED
    write_images(tmp_path / "photos", {"red": 8, "green": 8})
    tuned = ["finetune", "--data", str(tmp_path / "photos"), "--from", str(out), "--recipe", "finetune"]
    assert main([*tuned, "--out", str(tmp_path / "tuned"), "--set", "steps=2", "--set", "workers=0"]) == 0
    assert load(tmp_path / "tuned").class_names == ("green", "red")


def test_blank_images_teach_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = open_data("blank")
    assert data.splits["train"].endless
    assert not data.splits["train"].image(3).any()
    assert main(["finetune", "--data", "blank", "--out", str(tmp_path / "run")]) == 1
    assert "have no labels, which 'supervised' needs" in capsys.readouterr().err

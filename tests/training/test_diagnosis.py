"""A failure is called one, and first: at chance, below simple classifiers, late; with the likely reason and what helps."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cases import every_case
from tests.cli.conftest import QUICK
from vitral.classifier.load import load
from vitral.cli.command_line import command_of
from vitral.cli.main import main
from vitral.evaluation.baselines import Baselines
from vitral.tasks.metrics import Evaluation, evaluate_probabilities
from vitral.training.request import Request
from vitral.training.scoring.diagnosis import (
    Circumstances,
    diagnose,
    merged,
    recent_loss,
    too_late,
)

RUN = Circumstances(
    split="test",
    train_images=60_000,
    from_scratch=False,
    steps=2000,
    learning_rate=1e-3,
    last_loss=1.0,
    request=Request("fine-tune", data="photos"),
    pretrained="ViT-B_16.npz",
)
SHORT = replace(RUN.request, time=120.0)
FEW_FROM_SCRATCH = {"from_scratch": True, "train_images": 400}


def scored(right: int, images: int = 200, classes: int = 10) -> Evaluation:
    """An evaluation with so many images right, the classes equally common."""
    labels = torch.arange(images) % classes
    named = torch.where(torch.arange(images) < right, labels, (labels + 1) % classes)
    probabilities = torch.nn.functional.one_hot(named, classes).double()
    names = [f"class {place}" for place in range(classes)]
    return evaluate_probabilities(probabilities, labels, class_names=names, descriptions=[""] * images)


def baselines(probe: float, pixels: float = 0.2) -> Baselines:
    return Baselines(probe - 0.05, probe, "test", 1000, 200, pixels, pixels - 0.05)


def test_a_good_result_is_not_faulted() -> None:
    assert diagnose(scored(180), baselines(0.7), RUN) == ()


@every_case(("right", "chance"), [(20, True), (26, True), (35, False)])
def test_at_chance_is_what_does_not_significantly_beat_the_commonest_class(right: int, chance: bool) -> None:
    found = diagnose(scored(right), None, RUN)
    assert bool(found) == chance
    if found:
        assert found[0].failed
        assert all(fact in found[0].problem for fact in (f"{right} of 200 test ", " 20)"))


def test_a_perfect_result_on_two_images_is_no_failure_but_too_little_to_tell() -> None:
    (found,) = diagnose(scored(2, images=2, classes=2), None, RUN)
    assert not found.failed
    assert all(fact in found.problem for fact in ("2 of 2 test ", "; 4 "))
    assert not diagnose(scored(1, images=2, classes=2), None, RUN)[0].failed  # three quarters right may look like that
    assert diagnose(scored(0, images=2, classes=2), None, RUN)[0].failed
    assert diagnose(scored(4, images=4, classes=2), None, RUN) == ()


def test_the_commonest_class_is_what_chance_means_on_uneven_data() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    always = torch.tensor([[0.9, 0.1]]).repeat(100, 1)
    result = evaluate_probabilities(always, labels, class_names=["a", "b"], descriptions=[""] * 100)
    assert result.top1 == 0.9
    assert diagnose(result, None, RUN)[0].failed


def test_below_its_own_probe_or_the_bare_pixels_is_a_failure() -> None:
    below_probe = diagnose(scored(100), baselines(0.8), RUN)
    assert all(fact in below_probe[0].problem for fact in ("frozen features", "100 of 200 test ", "80.0%"))
    remedy = below_probe[0].remedy
    assert remedy is not None
    assert remedy.overrides == ("adaptation.method=probe",)
    assert below_probe[0].sentence().endswith("`vitral.finetune('photos', overrides=['adaptation.method=probe'])`")
    below_pixels = diagnose(scored(100), baselines(0.4, pixels=0.81), RUN)
    assert "the bare pixels" in below_pixels[0].problem
    assert "81.0%" in below_pixels[0].problem
    assert below_pixels[0].failed


def test_without_features_the_bare_pixels_alone_are_compared() -> None:
    only_pixels = Baselines(None, None, "test", 1000, 200, pixel_linear=0.7)
    assert diagnose(scored(139), only_pixels, RUN) == ()
    (found,) = diagnose(scored(100), only_pixels, RUN)
    assert all(fact in found.problem for fact in ("bare pixels", "100 of 200 test ", "70.0%"))


def test_a_little_below_its_probe_is_said_but_no_failure() -> None:
    (found,) = diagnose(scored(160), baselines(0.83), RUN)
    assert not found.failed
    assert "did not beat" in found.problem


@every_case(
    ("changes", "reason", "command"),
    [
        ({"last_loss": 9.0}, "learning rate of 0.001 is too high", "--set optimizer.lr=0.0001"),
        (FEW_FROM_SCRATCH, "400 images are few", "--from ViT-B_16.npz"),
        ({"steps": 40, "request": SHORT}, "40 updates", "--time 8m"),
        ({"steps": 40, "request": SHORT, **FEW_FROM_SCRATCH}, "40 updates", "--time 8m"),
        ({"steps": 40, **FEW_FROM_SCRATCH}, "400 images are few", "--from ViT-B_16.npz"),
        (
            {"steps": 0, "last_loss": None, **FEW_FROM_SCRATCH},
            "linear layer",
            "--set steps=1200",
        ),
        (
            {"steps": 0, "last_loss": None, "judged": False, **FEW_FROM_SCRATCH},
            "no validation photos",
            "--recipe scratch",
        ),
        ({"steps": 0, "last_loss": None, "judged": False}, "no validation photos", "--recipe finetune"),
        ({"steps": 0, "last_loss": None, "request": SHORT, **FEW_FROM_SCRATCH}, "linear layer", "--time 8m"),
        ({"request": SHORT}, "let only the head learn", "--set adaptation.method=probe --time 2m"),
        ({"request": SHORT, "from_scratch": True, "pretrained": ""}, "random weights", "--time 8m"),
        ({"steps": 40}, "40 updates", "--set steps=1200"),
        ({"from_scratch": True}, "random weights", "--from ViT-B_16.npz"),
        ({}, "let only the head learn", "--set adaptation.method=probe"),
    ],
)
def test_the_likely_reason_and_what_helps(changes: dict[str, object], reason: str, command: str) -> None:
    found = diagnose(scored(20), None, replace(RUN, **changes))[0]  # type: ignore[arg-type]
    assert reason in found.reason
    assert found.remedy is not None
    assert command_of(found.remedy) == f"vitral finetune photos {command}"


def test_scores_of_training_images_are_not_judged() -> None:
    assert diagnose(scored(20), None, replace(RUN, split="train")) == ()


def test_the_loss_at_the_end_is_of_training_rows() -> None:
    rows = [{"loss": 5.0}, {"loss": 1.0}, {"validation/loss": 9.0}, {"loss": 2.0}, {"loss": 3.0}]
    assert recent_loss(rows) == 2.0
    assert recent_loss([]) is None


def test_a_late_command_is_called_late() -> None:
    said = too_late(190.0, 120.0)
    assert all(fact in said for fact in ("190 s", "120 s", "`time`"))


def write_noise(root: Path) -> None:
    """Write images that nothing can be learned from."""
    rng = np.random.default_rng(1)
    for name in ("red", "green", "blue"):
        (root / name).mkdir(parents=True)
        for number in range(30):
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(root / name / f"{number}.png")


def test_a_failed_run_says_so_first_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_noise(tmp_path / "photos")
    (tmp_path / "photos" / "red" / "broken.png").write_bytes(b"no image")
    out = tmp_path / "run"
    data = str(tmp_path / "photos")
    reading = ["--classes", "top", "--skip-bad-images"]
    assert main(["finetune", "--data", data, "--out", str(out), *reading, *QUICK]) == 0
    shown, told = capsys.readouterr()
    printed = shown.splitlines()
    assert printed[0].startswith("Failed: ")
    assert printed[0].removeprefix("Failed: ") not in told  # once, and at the end
    scores = json.loads((out / "evaluation.json").read_text())
    assert next(iter(scores)) == "diagnosis"
    said = scores["diagnosis"][0]["problem"]
    assert printed[0].removeprefix("Failed: ").startswith(said)
    after_next = printed[printed.index("Next:") :]
    assert not any("vitral predict" in line or "vitral explain" in line for line in after_next)
    remedies = [line for line in after_next if "vitral finetune" in line]
    assert remedies
    assert all("--classes top" in line and line.endswith(" --skip-bad-images") for line in remedies)
    assert [line.endswith(" --skip-bad-images") for line in after_next if "vitral evaluate" in line] == [True]
    assert len(set(after_next)) == len(after_next)
    assert said in (out / "report.html").read_text().replace("&#39;", "'")
    assert said.split(":")[0] in (out / "classifier" / "README.md").read_text()
    assert load(out).doubt() == said
    assert main(["predict", f"{data}/red/0.png", "--classifier", str(out)]) == 0
    assert said.split(":")[0] in capsys.readouterr().err


def test_json_says_the_failure_first_and_baselines_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_noise(tmp_path / "photos")
    line = ["finetune", "--data", str(tmp_path / "photos"), "--out", str(tmp_path / "run"), *QUICK]
    assert main([*line, "--no-baselines", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert next(iter(printed)) == "diagnosis"
    assert printed["diagnosis"][0]["failed"]
    assert printed["baselines"] is None
    assert not (tmp_path / "run" / "baselines.json").exists()


def test_problems_of_one_reason_are_said_together() -> None:
    both = diagnose(scored(20), baselines(0.8), RUN)
    assert len(both) == 2
    (one,) = merged(both)
    assert one == replace(both[0], problem=f"{both[0].problem} {both[1].problem}")
    other = replace(both[1], reason="Another.")
    assert merged((both[0], other)) == (both[0], other)
    assert merged((both[0], replace(both[1], failed=False)))[1].problem == both[1].problem


def test_a_diagnosis_is_plain_values() -> None:
    found = diagnose(scored(20), None, RUN)[0]
    assert json.loads(json.dumps(dataclasses.asdict(found)))["failed"] is True

"""Few-shot figures while a network trains: right, learned from by nobody, the same after a stop."""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vitral
from tests.evaluation.test_fewshot import features_of, few_shot_reference
from vitral.classifier.load import load
from vitral.data.digits import open_digits
from vitral.errors import RecipeError, TrainingDiverged, TrainingInterrupted
from vitral.events import Event, Progress, Scalars, ignore
from vitral.progress import PlainLines

SETTINGS = (
    "batch_size=16",
    "steps=24",
    "workers=0",
    "evaluation.every_steps=8",
    "checkpoint.every_steps=5",
    "precision=fp32",
)
FEW = "evaluation.few_shot=[1, 5]"


def pretrain(out: Path, *changes: str, data: str = "digits", **asked: Any) -> Any:  # noqa: ANN401
    if not asked.get("resume"):
        asked |= {"data": data, "model": "vit-nano4", "image_size": 16, "overrides": [*SETTINGS, *changes]}
    return vitral.pretrain(out=out, **{"listener": ignore, **asked})


def rows(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    out = tmp_path_factory.mktemp("live") / "whole"
    pretrain(out, FEW)
    return out


def test_the_figures_are_those_of_the_network_at_that_step(whole: Path) -> None:
    logged = [row for row in rows(whole) if "validation/few_shot_5" in row]
    assert [row["step"] for row in logged] == [8, 16, 24]
    assert all("validation/accuracy" in row for row in logged)
    data, classifier = open_digits(), load(whole)  # of the last step, where nothing is averaged
    train, judged = data.splits["train"], data.splits["validation"]
    parts = (features_of(classifier, train), train.labels(), features_of(classifier, judged), judged.labels())
    for shots in (1, 5):
        expected = [few_shot_reference(*parts, shots, seed, 10) for seed in range(3)]
        assert logged[-1][f"validation/few_shot_{shots}"] == pytest.approx(np.mean(expected), abs=1e-6)
        deviation = logged[-1][f"validation/few_shot_{shots}_deviation"]
        assert deviation == pytest.approx(np.std(expected, ddof=1), abs=1e-6)


def test_nothing_is_learned_from_them(whole: Path, tmp_path: Path) -> None:
    pretrain(tmp_path / "without")
    weights = "classifier/weights.safetensors"
    assert (tmp_path / "without" / weights).read_bytes() == (whole / weights).read_bytes()
    assert not any("few_shot" in name for row in rows(tmp_path / "without") for name in row)


class StopDuringValidation:
    """Sends this process a signal while the run is validated for the second time, or once it has made some steps."""

    def __init__(self, step: int | None) -> None:
        self.step, self.validations, self.sent = step, 0, False

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Progress) or self.sent:
            return
        if event.task == "validate" and event.done == event.total:
            self.validations += 1
        # Two sources go through the network for few-shot after the head's own: the fifth ends amid the second validation.
        if (event.task == "train" and event.done == self.step) or (self.step is None and self.validations == 5):
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("step", [11, 16, None])
def test_a_stopped_run_resumes_to_the_same_bits_and_figures(whole: Path, tmp_path: Path, step: int | None) -> None:
    out = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        pretrain(out, FEW, listener=StopDuringValidation(step))
    assert len([row for row in rows(out) if "validation/few_shot_5" in row]) == 1
    pretrain(out, resume=True)
    for name in ("metrics.jsonl", "classifier/weights.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_a_network_that_learns_without_labels_is_followed_too(tmp_path: Path) -> None:
    pretrain(tmp_path / "run", FEW, "method.name=masked-patches")
    logged = [row for row in rows(tmp_path / "run") if "validation/few_shot_1" in row]
    assert [row["step"] for row in logged] == [8, 16, 24]
    assert not any("validation/accuracy" in row for row in rows(tmp_path / "run"))


def test_a_network_that_gives_no_numbers_is_called_diverged(tmp_path: Path) -> None:
    changes = ("method.name=masked-patches", "evaluation.every_steps=1", "optimizer.name=sgd", "optimizer.lr=1e30")
    with pytest.raises(
        TrainingDiverged, match=r"diverged: after step 1 .*Lower optimizer\.lr, which is 1e\+30"
    ) as stopped:
        pretrain(tmp_path / "run", FEW, *changes, "schedule.warmup_steps=0", "optimizer.clip_norm=none")
    assert "\n" not in str(stopped.value)


def test_data_without_an_end_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"'evaluation.few_shot' needs a dataset .*, not visualatom-mini, which is endless"
    ):
        pretrain(tmp_path / "run", FEW, data="visualatom-mini")
    assert not (tmp_path / "run" / "recipe.toml").exists()
    with pytest.raises(RecipeError, match="few_shot"):
        pretrain(tmp_path / "other", "evaluation.few_shot=[0]")


def test_the_log_says_them_beside_the_others() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = PlainLines(stream, clock=lambda: now[0])
    figures = {"validation/accuracy": 0.5, "validation/few_shot_10": 0.423, "validation/few_shot_10_deviation": 0.01}
    lines(Scalars(8, figures))
    for done in (1, 2):
        lines(Progress("train", done, 30, {"loss": 1.0}))
        now[0] += 40
    lines(Progress("train", 3, 30, {"loss": 1.0}))
    assert "validation 50.0%  10-shot 42.3%" in stream.getvalue()

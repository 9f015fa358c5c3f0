"""Few-shot figures while a network trains: right, learned from by nobody, the same after a stop."""

import io
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitral
from tests.evaluation.test_fewshot import features_of, few_shot_reference
from vitral.classifier.load import load
from vitral.data.generated import open_digits
from vitral.errors import RecipeError, TrainingDiverged, TrainingError, TrainingInterrupted, VitralError
from vitral.evaluation.baselines import extract_features
from vitral.events import Event, Message, PlainLines, Progress, Scalars, ignore
from vitral.training import measuring
from vitral.training.scoring import live

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


@pytest.mark.parametrize("step", [16, None])
def test_a_stopped_run_resumes_to_the_same_bits_and_figures(whole: Path, tmp_path: Path, step: int | None) -> None:
    out = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        pretrain(out, FEW, listener=StopDuringValidation(step))
    assert len([row for row in rows(out) if "validation/few_shot_5" in row]) == 1
    pretrain(out, resume=True)
    for name in ("metrics.jsonl", "classifier/weights.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.long
def test_a_network_that_learns_without_labels_is_followed_too(tmp_path: Path) -> None:
    pretrain(tmp_path / "run", FEW, "method.name=masked-patches")
    logged = [row for row in rows(tmp_path / "run") if "validation/few_shot_1" in row]
    assert [row["step"] for row in logged] == [8, 16, 24]
    assert not any("validation/accuracy" in row for row in rows(tmp_path / "run"))


@pytest.mark.long
def test_without_a_head_its_neighbours_and_its_dimensions_are_followed(tmp_path: Path) -> None:
    pretrain(tmp_path / "run", "method.name=lejepa", "method.hidden=32", "method.views=2")
    logged = [row for row in rows(tmp_path / "run") if "validation/knn" in row]
    assert [row["step"] for row in logged] == [8, 16, 24]
    data, classifier = open_digits(), load(tmp_path / "run")
    train, judged = data.splits["train"], data.splits["validation"]
    known, asked = features_of(classifier, train), features_of(classifier, judged)
    right = 0
    for query, label in zip(asked, judged.labels(), strict=True):
        cosines = known @ query / np.linalg.norm(known, axis=1) / np.linalg.norm(query)
        votes = np.zeros(10)
        for index in np.argsort(-cosines)[:20]:
            votes[train.labels()[index]] += (1 + cosines[index]) / 2
        right += int(votes.argmax()) == label
    assert logged[-1]["validation/knn"] == pytest.approx(right / len(judged), abs=0.01)  # of fewer than 2,000, all
    values = np.linalg.svd(asked - asked.mean(axis=0), compute_uv=False)
    shares = values / values.sum()
    assert logged[-1]["validation/rank"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-3)


@pytest.mark.long
def test_a_collapse_is_warned_of(tmp_path: Path) -> None:
    events: list[Event] = []
    changes = ("method.name=lejepa", "method.hidden=32", "method.views=2", "method.weight=1e-9", "optimizer.lr=0.3")
    pretrain(tmp_path / "run", *changes, "optimizer.clip_norm=none", listener=events.append)
    last = next(row for row in reversed(rows(tmp_path / "run")) if "validation/rank" in row)
    warned = [event.text for event in events if isinstance(event, Message) and "collapsed" in event.text]
    assert last["validation/rank"] < 2
    assert "dimensions are in use" in warned[-1]


def test_a_network_that_gives_no_numbers_is_called_diverged(tmp_path: Path) -> None:
    changes = ("method.name=masked-patches", "evaluation.every_steps=1", "optimizer.name=sgd", "optimizer.lr=1e30")
    with pytest.raises(
        TrainingDiverged, match=r"diverged: after step 1 .*Lower optimizer\.lr, which is 1e\+30"
    ) as stopped:
        pretrain(tmp_path / "run", FEW, *changes, "schedule.warmup_steps=0", "optimizer.clip_norm=none")
    assert "\n" not in str(stopped.value)


def test_data_without_an_end_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"'evaluation.few_shot' needs .*visualatom-mini.* is endless"):
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


LEJEPA = ("method.name=lejepa", "method.hidden=32", "method.views=2")


@pytest.fixture
def images_alone(tmp_path: Path) -> str:
    """The digits' training images in a folder, without labels."""
    folder = tmp_path / "images"
    folder.mkdir()
    train = open_digits().splits["train"]
    for index in range(100):
        Image.fromarray(train.image(index)).save(folder / f"{index}.png")
    return f"unlabelled:{folder}"


@pytest.mark.long
def test_images_without_labels_are_judged_by_other_data(images_alone: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    pretrain(out, *LEJEPA, "evaluation.data=digits", "evaluation.few_shot=[5]", data=images_alone)
    logged = [row for row in rows(out) if "validation/knn" in row]
    assert [row["step"] for row in logged] == [8, 16, 24]
    data, classifier = open_digits(), load(out)
    train, judged = data.splits["train"], data.splits["validation"]
    parts = (features_of(classifier, train), train.labels(), features_of(classifier, judged), judged.labels())
    expected = [few_shot_reference(*parts, 5, seed, 10) for seed in range(3)]
    assert logged[-1]["validation/few_shot_5"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert logged[-1]["validation/rank"] > 1


@pytest.mark.long
def test_a_network_with_a_head_and_no_end_of_images_is_judged_by_other_data(tmp_path: Path) -> None:
    pretrain(tmp_path / "run", "evaluation.data=part:1/10:digits", data="visualatom-mini")
    pretrain(tmp_path / "without", data="visualatom-mini")
    assert [row["step"] for row in rows(tmp_path / "run") if "validation/knn" in row] == [8, 16, 24]
    weights = "classifier/weights.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (tmp_path / "without" / weights).read_bytes()


def test_a_resumed_run_refuses_other_data_to_judge_by(images_alone: str, tmp_path: Path) -> None:
    judging, out = tmp_path / "judging", tmp_path / "run"
    train = open_digits().splits["train"]
    for index, label in enumerate(train.labels()[:200]):
        (judging / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(train.image(index)).save(judging / str(label) / f"{index}.png")
    with pytest.raises(TrainingInterrupted):
        pretrain(out, *LEJEPA, f"evaluation.data={judging}", data=images_alone, listener=StopDuringValidation(11))
    next(iter(sorted(judging.rglob("*.png")))).unlink()
    with pytest.raises(TrainingError, match="further source 'evaluation'"):
        pretrain(out, resume=True)


@pytest.mark.parametrize(
    ("judging", "message"),
    [
        ("visualatom-mini", "'evaluation.data' needs .*one class.* is endless"),
        ("unlabelled:{folder}", "'evaluation.data' needs .*one class.* its images"),
        ("nowhere/", "nowhere"),
    ],
)
def test_data_that_cannot_judge_are_refused(images_alone: str, tmp_path: Path, judging: str, message: str) -> None:
    named = judging.format(folder=images_alone.partition(":")[2])
    with pytest.raises(VitralError, match=message):
        pretrain(tmp_path / "run", *LEJEPA, f"evaluation.data={named}", data=images_alone)
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_with_a_budget_features_are_followed_by_as_many_images_as_there_is_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an image took a fiftieth of a second: the hundredth of a minute is too little for a hundred, the least that says
    something, the tenth of what is left of it enough for fewer than three hundred."""
    monkeypatch.setattr(measuring, "time_images", lambda *_: 0.02)
    followed: list[int] = []

    def features(classifier: Any, source: Any, **how: Any) -> Any:  # noqa: ANN401
        followed.append(len(source))
        return extract_features(classifier, source, **how)

    monkeypatch.setattr(live, "extract_features", features)
    events: list[Event] = []
    pretrain(tmp_path / "run", *LEJEPA, time="1m", listener=events.append)
    said = next(event.text for event in events if isinstance(event, Message) and "trained without labels" in event.text)
    fitted = re.search(r"features of ([\d,]+) training photos", said)
    assert set(followed) == {100}
    assert fitted is not None
    assert 100 < int(fitted[1]) < 300

"""Several ways to learn where one cannot be had, or the first classifier is lost: the others go on, and the best stays."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import vitral
from tests.training.candidates.attempts_run import TRIED, contents, go_on, in_attempt, tune
from tests.training.candidates.material import Killed, killed_when
from vitral import distributed
from vitral.errors import ModelError, TrainingDiverged, TrainingError
from vitral.events import Event, Message, Progress
from vitral.training import loop
from vitral.training import run as one_run
from vitral.training.candidates import trained as made
from vitral.training.candidates.result import RunResult
from vitral.training.loop import TrainingResult
from vitral.training.plan import LORA

pytestmark = [pytest.mark.usefixtures("short"), pytest.mark.long]

FAILURES: dict[str, tuple[Exception, str]] = {
    "the network": (ModelError("No such size."), "No such size."),
    "the memory": (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."),
        "It does not fit into memory.",
    ),
}


def failing(error: Exception, *folders: str) -> Callable[..., TrainingResult]:
    """Return `train` that cannot train the attempts of these folders."""

    def train(*given: Any, folder: Path, **more: Any) -> TrainingResult:  # noqa: ANN401
        if folder.name in folders:
            raise error
        return loop.train(*given, folder=folder, **more)

    return train


def texts(said: list[Event]) -> list[str]:
    return [event.text for event in said if isinstance(event, Message)]


@pytest.mark.parametrize("fails", FAILURES)
def test_a_way_that_cannot_be_had_is_given_up_and_the_others_go_on(
    fails: str, tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (error, why), run, said = FAILURES[fails], tmp_path / "run", list[Event]()
    with monkeypatch.context() as patch:
        patch.setattr(made, "train", failing(error, "lora"))
        result = tune(data, run, start, listener=said.append)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates][1:] == [name for name in TRIED if name != LORA]
    assert f"LoRA: given up. {why}" in texts(said)
    said.clear()
    assert go_on(run, listener=said.append).choice == result.choice
    assert not any(isinstance(event, Progress) and event.task == "train" for event in said)
    assert any(text.startswith("LoRA: given up, as before; ") for text in texts(said))


@pytest.mark.parametrize("error", [*(error for error, _ in FAILURES.values()), TrainingDiverged("No number.")])
def test_where_every_way_is_given_up_the_first_classifier_is_delivered(
    error: Exception, tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = [name.lower().replace(" ", "-") for name in TRIED]
    monkeypatch.setattr(made, "train", failing(error, *everything))
    result = tune(data, tmp_path / "run", start)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates] == [result.choice.best]
    assert (tmp_path / "run" / "evaluation.json").is_file()
    assert vitral.load(tmp_path / "run").class_names == ("columns", "rows")


def test_in_a_job_a_process_without_memory_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may have had enough, and would wait for it."""

    def train(*given: object) -> TrainingResult:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(made._Attempts, "_trained", train)
    several: Any = SimpleNamespace(several=True, _trained=train)
    given: Any = None
    assert str(made._Attempts._tried(several, given, given)) == made.TOO_LARGE
    monkeypatch.setattr(distributed, "world", lambda: 2)
    with pytest.raises(torch.OutOfMemoryError):
        made._Attempts._tried(several, given, given)


@pytest.fixture
def lost(tmp_path: Path, data: Path, start: Path) -> Path:
    """A run that was killed in its third attempt, and lost its first classifier."""
    run = tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, start, listener=killed_when(in_attempt(3, 7)()))
    shutil.rmtree(run / "first")
    shutil.rmtree(run / "first-probe", ignore_errors=True)
    (run / "first.json").unlink()
    return run


def test_without_its_first_classifier_and_time_for_another_a_run_goes_on_with_its_attempts(
    lost: Path, whole: tuple[RunResult, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_run, "first_seconds", lambda left: 0.0)  # so that there is no time for it
    result = go_on(lost, time="20m")
    assert result.choice is not None
    assert whole[0].choice is not None
    assert [one.name for one in result.choice.candidates] == [*TRIED]
    assert result.choice.candidates[:2] == whole[0].choice.candidates[1:3]
    assert result.choice.candidates[3].images == whole[0].choice.candidates[4].images
    assert not (lost / "checkpoints").exists()
    best = lost / "attempts" / result.choice.best.lower().replace(" ", "-")
    weights = [folder / "classifier" / "weights.safetensors" for folder in (lost, best)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_with_neither_a_first_classifier_nor_an_attempt_there_is_nothing_to_deliver(
    lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_run, "first_seconds", lambda left: 0.0)
    monkeypatch.setattr(made._Attempts, "_pacer", lambda *given: None)
    for attempt in (lost / "attempts").iterdir():
        shutil.rmtree(attempt / "classifier", ignore_errors=True)
    with pytest.raises(TrainingError, match="lost its first classifier, and no attempt made another; continue it with"):
        go_on(lost, time="20m")


def test_simple_classifiers_that_its_attempts_are_compared_with_cannot_be_left_out(
    whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run", symlinks=True)
    with pytest.raises(TrainingError, match="continue it without `baselines=False`"):
        go_on(run, baselines=False)
    assert contents(run) == contents(whole[0].run.folder)

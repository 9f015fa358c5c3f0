"""The loop's promises: the same bits again, the same bits after any interruption, and no damage by a bad step."""

import os
import signal

import pytest
import torch
from torch import Tensor

from tests.training.conftest import Run
from vitral.errors import TrainingError, TrainingInterrupted
from vitral.events import Event, Progress
from vitral.images.preprocessing import PHOTOS
from vitral.training.state import load_newest


class StopAt:
    """Sends this process a signal once the run has made some steps."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step, self.number = step, number

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.done == self.step:
            os.kill(os.getpid(), self.number)


class PoisonAt:
    """Normalises pictures, but those of one step to what is no number."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, images: Tensor) -> Tensor:
        self.left -= 1
        return PHOTOS.normalize(images) * (float("nan") if self.left < 0 else 1.0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_seed_gives_the_same_bits(run: Run, other_run: Run, precision: str) -> None:
    run.train(precision=precision)
    other_run.train(precision=precision)
    assert run.bits() == other_run.bits()


def test_another_seed_gives_others(run: Run, other_run: Run) -> None:
    run.train()
    other_run.train(seed=4)
    assert run.bits() != other_run.bits()


def test_the_number_of_workers_changes_nothing(run: Run, other_run: Run) -> None:
    run.train()
    other_run.train(workers=2)
    assert run.bits() == other_run.bits()


@pytest.mark.parametrize(("step", "number"), [(1, signal.SIGINT), (13, signal.SIGTERM), (20, signal.SIGINT)])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stopped_run_resumes_to_the_same_bits(
    run: Run, other_run: Run, step: int, number: signal.Signals, workers: int
) -> None:
    run.train()
    with pytest.raises(TrainingInterrupted, match=f"saved after step {step} of 30.*--resume") as stopped:
        other_run.train(listener=StopAt(step, number), workers=workers)
    assert stopped.value.exit_code == 128 + number
    other_run.train(resume=True, workers=workers)
    assert run.bits() == other_run.bits()


def test_signals_are_ours_only_while_training(run: Run) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run.train()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("step", [0, 1, 11, 29])
def test_a_step_without_a_number_changes_nothing_and_stops(run: Run, step: int) -> None:
    with pytest.raises(TrainingError, match=rf"at step {step} .*digits\[\d+\]") as stopped:
        run.train(normalize=PoisonAt(step))
    newest = load_newest(run.folder / "checkpoints", lambda event: None)
    if step < 10:
        assert newest is None
        assert "no checkpoint yet" in str(stopped.value)
        return
    assert newest is not None
    state, tensors = newest
    assert state.step == step // 10 * 10
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    assert f"step-{state.step:08d}" in str(stopped.value)


def test_a_run_is_not_begun_twice(run: Run) -> None:
    run.train()
    with pytest.raises(TrainingError, match="already holds a run; go on with it by --resume"):
        run.train()


def test_a_run_does_not_go_on_with_other_settings(run: Run) -> None:
    run.train()
    with pytest.raises(TrainingError, match=r"began with another 'batch_size'"):
        run.train(resume=True, batch_size=8)


def test_a_finished_run_resumed_is_as_it_was(run: Run) -> None:
    model, result = run.train()
    before = run.bits()
    again, resumed = run.train(resume=True)
    assert run.bits() == before
    assert resumed.steps == result.steps
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))


def test_a_finished_run_can_be_made_longer(run: Run) -> None:
    run.train()
    _, result = run.train(resume=True, steps=40)
    assert result.steps == 40
    assert [row["step"] for row in result.history][-1] == 40


def test_a_killed_run_without_a_checkpoint_simply_begins(run: Run, other_run: Run) -> None:
    run.folder.mkdir()
    (run.folder / "recipe.toml").write_text(run.recipe().to_toml())
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n')
    run.train(resume=True)
    other_run.train()
    assert run.bits() == other_run.bits()


def test_a_budget_makes_a_run_shorter_and_ends_its_schedule(run: Run) -> None:
    _, result = run.train(steps=1_000_000, budget=9.0, evaluation={"every_steps": 1_000_000})
    assert 10 < result.steps < 1_000_000
    assert result.seconds < 9.0
    rates = [row["learning_rate"] for row in result.history if "learning_rate" in row]
    assert rates[-1] < 0.1 * max(rates)


def test_the_best_step_survives_a_resume(run: Run, other_run: Run) -> None:
    _, whole = run.train()
    with pytest.raises(TrainingInterrupted):
        other_run.train(listener=StopAt(20, signal.SIGTERM))
    _, resumed = other_run.train(resume=True)
    assert (resumed.best_step, resumed.best_accuracy) == (whole.best_step, whole.best_accuracy)
    assert resumed.history == whole.history

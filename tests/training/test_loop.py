"""The loop's promises: the same bits again, the same bits after any interruption, and no damage by a bad step."""

import itertools
import os
import signal
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.conftest import Run
from vitral.errors import TrainingError, TrainingInterrupted
from vitral.events import Event, Message, Progress
from vitral.images.preprocessing import PHOTOS
from vitral.training.clock import Clock
from vitral.training.records import checkpoints
from vitral.training.records.checkpoints import load_newest
from vitral.training.step import SIGNALS


class StopAt:
    """Sends this process a signal once the run has made some steps."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step, self.number = step, number

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.done == self.step:
            os.kill(os.getpid(), self.number)


class PoisonAt:
    """Normalises images, but those of some batches, counted as they come, to what is not finite."""

    def __init__(self, *bad: int, onwards: bool = False) -> None:
        self.bad, self.onwards, self.count = bad, onwards, -1

    def __call__(self, images: Tensor) -> Tensor:
        self.count += 1
        poisoned = self.count in self.bad or (self.onwards and self.count >= self.bad[0])
        return PHOTOS.normalize(images) * (float("nan") if poisoned else 1.0)


class Ticking:
    """Seconds that pass as images are normalised: a tenth for those of an update, and half of that after three seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def normalize(self, images: Tensor) -> Tensor:
        self.seconds += 0.1 if self.seconds < 3 else 0.05
        return PHOTOS.normalize(images)


@pytest.mark.requirement(id="R7")
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


@pytest.mark.parametrize(
    ("step", "number", "workers"), [(1, signal.SIGINT, 2), (13, signal.SIGTERM, 0), (20, signal.SIGUSR1, 2)]
)
def test_a_stopped_run_resumes_to_the_same_bits_and_figures(
    run: Run, other_run: Run, step: int, number: signal.Signals, workers: int
) -> None:
    _, whole = run.train()
    with pytest.raises(TrainingInterrupted, match=f"saved after step {step} of 30.*`resume=True`") as stopped:
        other_run.train(listener=StopAt(step, number), workers=workers)
    assert stopped.value.exit_code == 128 + number
    _, resumed = other_run.train(resume=True, workers=workers)
    assert run.bits() == other_run.bits()
    assert (resumed.best_step, resumed.best_accuracy) == (whole.best_step, whole.best_accuracy)
    assert resumed.history == whole.history


def test_an_error_leaves_no_thread_that_still_writes_a_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(path: Path) -> None:
        sleep(0.5)

    def failing(event: Event) -> None:
        if isinstance(event, Progress) and event.done == 11:
            raise ZeroDivisionError

    monkeypatch.setattr(checkpoints, "sync_file", slowly)
    with pytest.raises(ZeroDivisionError):
        run.train(listener=failing)
    assert [path.name for path in checkpoints.checkpoints(run.folder / "checkpoints")] == ["step-00000010"]


def test_signals_are_ours_only_while_training(run: Run) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    run.train()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_warning_that_somebody_else_handles_stays_theirs(run: Run) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        run.train(listener=StopAt(3, signal.SIGUSR1))  # to its end
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


@pytest.mark.parametrize("step", [0, 1, 11, 29])
def test_a_step_without_a_number_changes_nothing_and_stops(run: Run, step: int) -> None:
    with pytest.raises(TrainingError, match=rf"at step {step} .*digits\[\d+\]") as stopped:
        run.train(normalize=PoisonAt(step, onwards=True), faults={"max_skipped": 0})
    newest = load_newest(run.folder / "checkpoints", lambda event: None)
    if step < 10:
        assert newest is None
        assert "no checkpoint yet" in str(stopped.value)
        return
    assert newest is not None
    assert newest.state.step == step // 10 * 10
    assert all(bool(torch.isfinite(newest.tensor(name)).all()) for name in newest.parts)
    assert newest.path.name in str(stopped.value)


@pytest.mark.parametrize("bad", [(0,), (7,), (10,), (11, 12), (3, 17, 29)])
def test_a_bad_batch_is_skipped_and_recorded(run: Run, bad: tuple[int, ...]) -> None:
    heard: list[Event] = []
    _, result = run.train(normalize=PoisonAt(*bad), listener=heard.append)
    assert result.skipped == bad
    assert [row["step"] for row in result.history if "skipped" in row] == [step + 1 for step in bad]
    warnings = [event.text for event in heard if isinstance(event, Message) and event.warning]
    assert len(warnings) == len(bad)
    assert f"at step {bad[0]} " in warnings[0]
    assert "digits[" in warnings[0]


@pytest.mark.requirement(id="R8")
def test_no_weight_is_changed_by_a_bad_batch(run: Run) -> None:
    bad = tuple(range(0, 40, 2))
    seen: list[Tensor] = []

    class Poison(PoisonAt):
        def __call__(self, images: Tensor) -> Tensor:
            seen.append(torch.cat([p.detach().flatten().clone() for p in run.model.parameters()]))
            return super().__call__(images)

    _, result = run.train(normalize=Poison(*bad), steps=41, faults={"max_skipped": len(bad)})
    assert result.skipped == bad
    assert [torch.equal(before, after) for before, after in itertools.pairwise(seen)] == [True, False] * len(bad)


def test_a_skipped_batch_stays_skipped_after_a_resume(run: Run, other_run: Run) -> None:
    run.train(normalize=PoisonAt(13))
    with pytest.raises(TrainingInterrupted):
        other_run.train(normalize=PoisonAt(13), listener=StopAt(17, signal.SIGTERM))
    _, result = other_run.train(resume=True)
    assert result.skipped == (13,)
    assert run.bits() == other_run.bits()


def test_damaged_weights_send_the_run_back_to_its_checkpoint(run: Run, other_run: Run) -> None:
    class Damage(PoisonAt):
        def __call__(self, images: Tensor) -> Tensor:
            if self.count + 1 == 17:
                next(run.model.parameters()).data.fill_(float("inf"))
            return super().__call__(images)

    heard: list[Event] = []
    _, result = run.train(normalize=Damage(17), listener=heard.append)
    assert result.skipped == (17,)
    assert any("returned to 'step-00000015'" in event.text for event in heard if isinstance(event, Message))
    other_run.train(normalize=PoisonAt(17))
    assert run.bits() == other_run.bits()


def test_a_validation_without_a_number_stops_the_run_before_it_is_written_down(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "figure", lambda network: float("nan"))
    with pytest.raises(TrainingError, match=r"diverged: after step 15 .*step-00000010.*Lower optimizer\.lr"):
        run.train()
    assert "NaN" not in (run.folder / "metrics.jsonl").read_text()


@pytest.mark.requirement(id="R8")
def test_too_many_bad_batches_stop_the_run(run: Run) -> None:
    with pytest.raises(TrainingError, match="after 3 skipped batches"):
        run.train(normalize=PoisonAt(4, 8, 12, 16))


def test_a_run_is_not_begun_twice(run: Run) -> None:
    run.train()
    with pytest.raises(TrainingError, match="already holds a run; continue it by `resume=True`"):
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
    time = Ticking()
    _, result = run.train(
        steps=1_000_000,
        clock=Clock(6.0, 0.0, time),
        normalize=time.normalize,
        evaluation={"every_steps": 1_000_000},
    )
    assert 85 <= result.steps <= 91
    assert time.seconds <= 6.0 + 1e-9
    rates = [row["learning_rate"] for row in result.history if "learning_rate" in row]
    falling = rates[rates.index(max(rates)) :]
    assert falling == sorted(falling, reverse=True)  # also where the run turned out longer
    assert rates[-1] < 0.1 * max(rates)


def test_a_run_that_a_budget_cut_keeps_its_plan_when_it_is_resumed(run: Run) -> None:
    long: dict[str, Any] = {"steps": 100_000, "checkpoint": {"every_steps": 5}, "evaluation": {"every_steps": 100_000}}
    time = Ticking()
    with pytest.raises(TrainingInterrupted):
        run.train(clock=Clock(8.0, 0.0, time), normalize=time.normalize, listener=StopAt(40, signal.SIGTERM), **long)
    loaded = load_newest(run.folder / "checkpoints", lambda event: None)
    assert loaded is not None
    planned = loaded.state.total_steps
    assert 85 <= planned <= 95
    _, resumed = run.train(resume=True, **long)
    assert resumed.steps == planned
    rates = [row["learning_rate"] for row in resumed.history if "learning_rate" in row and row["step"] > planned // 2]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.01 * rates[0]
    before = run.bits()
    _, again = run.train(resume=True, **long)
    assert again.steps == planned
    assert run.bits() == before

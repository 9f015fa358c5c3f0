"""Several ways to learn, killed, stopped, damaged or given more: the same bits, and never a worse classifier."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import vitral
from tests.training.candidates.attempts_run import (
    SETTINGS,
    STEPS,
    TRIED,
    attempts_of,
    best_of,
    contents,
    count_into,
    cut_short,
    go_on,
    in_attempt,
    reached,
    tune,
)
from tests.training.candidates.material import Killed, at_message, killed_when
from vitral.cli.command_line import commands_of
from vitral.errors import StorageError, TrainingDiverged, TrainingError, TrainingInterrupted
from vitral.events import Event, Message, Progress, ignore
from vitral.training.candidates import first as candidates
from vitral.training.candidates import trained as made
from vitral.training.candidates.first import HEAD, least
from vitral.training.candidates.result import PIXELS, PROBE, RunResult
from vitral.training.choose import attempts
from vitral.training.choose import recipe as chosen_recipe
from vitral.training.plan import ALL, LORA, TRAINED, read_plan
from vitral.training.records.checkpoints import newest_state
from vitral.training.records.run_folder import kept_remarks, stored_request
from vitral.training.resume import has_unused_time, time_left

pytestmark = [pytest.mark.usefixtures("short"), pytest.mark.long]

MOMENTS: dict[str, Callable[[], Callable[[Event], bool]]] = {
    "within the first": in_attempt(1, 3),
    "between the first and the second": lambda: at_message("LoRA:"),
    "within the last": in_attempt(3, 14),
    "when the choice is made": lambda: at_message("Selected: "),
}


@pytest.mark.parametrize("when", MOMENTS)
def test_a_run_that_is_killed_goes_on_where_it_was_to_the_same_bits(
    when: str, whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    result, _ = whole
    trained: list[Progress] = []
    count = count_into(trained)
    run = tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, start, listener=killed_when(MOMENTS[when]()))
    finished = [folder for folder in attempts_of(run) if (folder / "attempt.json").is_file()]
    assert vitral.load(run).class_names == ("columns", "rows")  # usable, whenever it was killed
    later = go_on(run, listener=count)
    assert later.choice == result.choice
    assert len(trained) <= (len(TRIED) - len(finished)) * STEPS
    assert contents(run) == contents(result.run.folder)
    again = go_on(run, listener=count)  # which has nothing left to do
    assert again.evaluation == result.evaluation
    assert len(trained) <= (len(TRIED) - len(finished)) * STEPS


def figures_so_far(run: Path) -> list[float]:
    paths = [run / "first.json", *(run / "attempts").glob("*/attempt.json")]
    records = [json.loads(path.read_text()) for path in paths]
    return [record["figure"] for record in records]


def stop(event: Event) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fill_the_disk(event: Event) -> None:
    raise StorageError("Cannot write 'checkpoint': the disk is full; free some space and run the command again.")


@pytest.mark.parametrize(("number", "happens"), [(2, stop), (3, fill_the_disk)])
def test_an_attempt_that_is_stopped_leaves_the_best_so_far_in_place(
    number: int,
    happens: Callable[[Event], None],
    whole: tuple[RunResult, list[str]],
    tmp_path: Path,
    data: Path,
    start: Path,
) -> None:
    now, run = in_attempt(number, 3)(), tmp_path / "run"

    def listen(event: Event) -> None:
        if now(event):
            happens(event)

    with pytest.raises((TrainingInterrupted, StorageError)) as stopped:
        tune(data, run, start, listener=listen)
    if happens is stop:
        assert str(stopped.value).endswith(f"continue with `resume=True` `out='{run}'`.")
    best = vitral.evaluate(run, data, split="validation", listener=ignore).headline()
    assert best == pytest.approx(max(figures_so_far(run)))
    go_on(run)
    assert contents(run) == contents(whole[0].run.folder)


def test_a_stop_that_comes_with_the_last_update_of_one_is_none_of_the_next(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    now, run = in_attempt(2, STEPS)(), tmp_path / "run"

    def listen(event: Event) -> None:
        if now(event):
            stop(event)

    with pytest.raises(TrainingInterrupted, match=f"Stopped by SIGINT after {LORA}; continue with") as stopped:
        tune(data, run, start, listener=listen)
    assert stopped.value.exit_code == 130
    assert len(attempts_of(run)) == 2
    go_on(run)
    assert contents(run) == contents(whole[0].run.folder)


def test_a_first_classifier_made_in_a_hurry_is_made_again_where_there_is_more_time(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as hurry:
        hurry.setattr(candidates, "affordable", lambda run, train, *given, **more: least(run, train))
        tune(data, run, start, quick=True, time=60)
    monkeypatch.setattr(candidates, "MOST_IMAGES", 64)
    same = shutil.copytree(run, tmp_path / "same")
    go_on(same, quick=True, time=70)  # hardly more than that
    go_on(run, quick=True, time=600)
    few, more = (vitral.load(folder).provenance.training["method"] for folder in (same, run))
    assert few.startswith(PIXELS)
    assert few.endswith("on 4 training images")
    assert more.endswith("on 64 training images")
    assert "quick" not in commands_of(go_on(run)).splitlines()[0]


def test_all_that_was_tried_is_judged_by_the_data_as_they_are_now(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path
) -> None:
    photos = shutil.copytree(data, tmp_path / "photos")
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run", symlinks=True)
    before = json.loads((run / "first.json").read_text())["figure"]
    for index in range(0, 15, 2):  # what was right is wrong, of half of the validation images
        one, other = (photos / "val" / name / f"{index}.png" for name in ("columns", "rows"))
        one.rename(photos / "kept.png")
        other.rename(one)
        (photos / "kept.png").rename(other)
    said: list[Event] = []
    result = go_on(run, data=photos, data_changed=True, listener=said.append)
    assert result.choice is not None
    again = {one.name: one.figure for one in result.choice.candidates}
    judged = {json.loads((folder / "attempt.json").read_text())["name"]: folder for folder in attempts_of(run)}
    judged[next(iter(again))] = run / "first"
    assert judged.keys() == again.keys()
    for name, folder in judged.items():
        assert again[name] == pytest.approx(
            vitral.evaluate(folder, photos, split="validation", listener=ignore).headline()
        )
    assert json.loads((run / "first.json").read_text())["figure"] != before
    told = [event.text for event in said if isinstance(event, Message)]
    assert sum("of the data as they were" in line for line in told) == len(TRIED)
    said.clear()
    go_on(run, data=photos, listener=said.append)
    assert not any("of the data as they were" in event.text for event in said if isinstance(event, Message))


def test_quick_stops_before_them_and_resume_tries_them(tmp_path: Path, data: Path, start: Path) -> None:
    run = tmp_path / "run"
    quick = tune(data, run, start, quick=True)
    assert quick.training.steps == 0
    assert not (run / "attempts").exists()
    later = go_on(run)
    assert later.choice is not None
    assert len(later.choice.candidates) == 1 + len(TRIED)
    with pytest.raises(TrainingError, match="past its first classifier"):
        go_on(run, quick=True)


def test_more_steps_go_to_the_best_alone(whole: tuple[RunResult, list[str]], tmp_path: Path) -> None:
    result, _ = whole
    run = shutil.copytree(result.run.folder, tmp_path / "run")
    later = go_on(run, overrides=["steps=30"])
    steps = reached(run)
    assert sorted(steps.values()) == [*[STEPS] * (len(TRIED) - 1), 30]
    assert steps[best_of(result).name] == 30
    assert later.choice is not None


def no_time(*given: object) -> None:
    """Stand for `_pacer` where there is time for nothing."""


def diverge(*given: object, **more: object) -> None:
    raise TrainingDiverged("The loss is no number.")


def all_wrong(*given: object) -> float:
    return 0.0


OUTCOMES: dict[str, tuple[object, str, object]] = {
    "no time": (made._Attempts, "_pacer", no_time),
    "diverged": (made, "train", diverge),
    "worse": (made._Attempts, "_figure", all_wrong),
}


@pytest.mark.parametrize("happens", OUTCOMES)
def test_more_time_never_leaves_a_worse_classifier_than_there_was(
    happens: str, whole: tuple[RunResult, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = whole
    run = shutil.copytree(result.run.folder, tmp_path / "run", symlinks=True)
    before = {name: held for name, held in contents(run).items() if not name.startswith("attempts/")}
    with monkeypatch.context() as patch:
        patch.setattr(*OUTCOMES[happens])
        later = go_on(run, overrides=["steps=30"])
    assert later.choice == result.choice
    trained: list[Progress] = []
    again = go_on(run, listener=count_into(trained))  # which has nothing left to do
    assert (again.choice, trained) == (result.choice, [])
    for name, held in before.items():
        assert (run / name).read_bytes() == held, name
    assert reached(run)[best_of(result).name] == (30 if happens == "worse" else STEPS)
    go_on(run, overrides=["steps=36"], listener=count_into(trained))
    assert reached(run)[best_of(result).name] == 36
    assert len(trained) == 36 - (30 if happens == "worse" else STEPS)


def at_step(step: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Progress) and (event.task, event.done) == ("train", step)


@pytest.mark.parametrize("step", [STEPS + 1, 33])  # before a checkpoint beyond the old end, and after
def test_a_longer_training_that_is_killed_goes_on_to_the_same_bits(
    step: int, whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    one, other = (shutil.copytree(whole[0].run.folder, tmp_path / name, symlinks=True) for name in ("one", "other"))
    go_on(one, overrides=["steps=40"])
    with pytest.raises(Killed):
        go_on(other, overrides=["steps=40"], listener=killed_when(at_step(step)))
    go_on(other)
    assert reached(other) == reached(one)
    assert reached(other)[best_of(whole[0]).name] == 40
    assert contents(other) == contents(one)
    best = best_of(whole[0]).name
    states = [
        run / "attempts" / best / "checkpoints" / "last" / "tensors-00000-00000.safetensors" for run in (one, other)
    ]
    assert states[0].read_bytes() == states[1].read_bytes()


@pytest.mark.parametrize("step", [STEPS + 1, 33])
def test_more_time_that_was_cut_short_is_used_when_the_run_goes_on(
    step: int, whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run", symlinks=True)
    cut_short(run, planned=60)
    with pytest.raises(Killed):
        go_on(run, time="20m", listener=killed_when(at_step(step)))
    plan, request = read_plan(run), stored_request(run)
    assert request is not None
    left = time_left(run, plan, request, replace(request, time=None))
    assert left is not None
    assert has_unused_time(run, plan) == (left == 1200.0) == (step == STEPS + 1)
    assert 1000 < left <= 1200
    best = best_of(whole[0]).name
    saved = newest_state(run / "attempts" / best / "checkpoints")
    assert saved is not None
    trained: list[Progress] = []
    go_on(run, listener=count_into(trained))
    assert reached(run) == {name: 60 if name == best else STEPS for name in reached(run)}
    assert len(trained) == 60 - saved.step
    assert (saved.step == STEPS) == (step == STEPS + 1)
    assert time_left(run, plan, request, replace(request, time=None)) is None


@pytest.mark.parametrize("damaged", ["attempt.json", "classifier/classifier.json"])
def test_an_attempt_whose_record_is_damaged_is_taken_from_its_checkpoint(
    damaged: str, whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run")
    path = run / "attempts" / "lora" / damaged
    path.write_text("{") if damaged == "attempt.json" else path.unlink()
    assert go_on(run).choice == whole[0].choice
    assert contents(run) == contents(whole[0].run.folder)


def test_an_attempt_that_diverges_is_given_up_and_the_others_go_on(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LORA_LR", 1e30)
    said: list[Event] = []
    settings = (*SETTINGS, "faults.max_skipped=0")
    result = tune(data, tmp_path / "run", start, overrides=settings, listener=said.append)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates][1:] == [name for name in TRIED if name != LORA]
    (warning,) = [event.text for event in said if isinstance(event, Message) and "given up" in event.text]
    assert warning.startswith("LoRA: given up. ")
    said.clear()
    later = go_on(tmp_path / "run", listener=said.append)  # which does not try it again
    assert later.choice == result.choice
    assert not any(isinstance(event, Progress) and event.task == "train" for event in said)
    (line,) = [event.text for event in said if isinstance(event, Message) and event.text.startswith("LoRA:")]
    assert line.startswith("LoRA: given up, as before; ")


def test_what_there_was_no_time_for_is_tried_when_there_is_more(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(made._Attempts, "_pacer", no_time)
        assert tune(data, run, start).choice == go_on(run).choice
    said: list[Event] = []
    later = go_on(run, listener=said.append)
    assert later.choice is not None
    assert len(later.choice.candidates) == 1
    assert sum("no time, as before" in event.text for event in said if isinstance(event, Message)) == len(TRIED)
    more = go_on(run, time="20m")
    assert more.choice is not None
    assert [one.name for one in more.choice.candidates][1:] == [*TRIED]


def test_one_way_alone_begins_so_too_however_often_it_is_stopped(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MOST_IMAGES", 1000)
    monkeypatch.setattr(attempts, "_without_budget", lambda *_: [ALL])  # as where several would take too long
    monkeypatch.setattr(chosen_recipe, "FULL_LR", 1e-12)
    run = tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, start, listener=killed_when(in_attempt(1, 1)()))
    assert not list(run.glob("checkpoints/step-*"))
    result = go_on(run)
    assert result.choice is not None
    probe, trained = result.choice.candidates
    assert (probe.name, trained.name) == (PROBE, TRAINED)
    assert trained.figure == pytest.approx(probe.figure)
    assert probe.figure > 0.9
    assert kept_remarks(run) == (HEAD,)
    assert not (run / "attempts").exists()

"""Several ways to learn that are given more later: what was asked last holds, what is said is true, and disks stay free."""

import shutil
from pathlib import Path
from typing import Any

import pytest

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
    make_short,
    reached,
    tune,
)
from tests.training.candidates.material import Killed, at_message, killed_when
from vitral.events import Event, Message, Progress
from vitral.paths import attempt_folder_name
from vitral.training.candidates import trained as made
from vitral.training.candidates.result import RunResult
from vitral.training.plan import LORA, read_plan
from vitral.training.records.attempts import states, trained_seconds

pytestmark = [pytest.mark.usefixtures("short"), pytest.mark.long]


def texts(said: list[Event]) -> list[str]:
    return [event.text for event in said if isinstance(event, Message)]


def test_a_length_that_was_said_last_is_that_of_every_attempt_to_come(tmp_path: Path, data: Path, start: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, start, listener=killed_when(in_attempt(1, 3)()))
    with pytest.raises(Killed):
        go_on(run, overrides=["steps=30", "checkpoint.every_steps=6"], listener=killed_when(in_attempt(2, 3)()))
    recipe = go_on(run).run.recipe
    assert sorted(reached(run).values()) == [30] * len(TRIED)
    assert recipe.checkpoint.every_steps == 6


def test_a_length_that_an_attempt_was_killed_before_is_not_forgotten(
    whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run", symlinks=True)
    named = best_of(whole[0]).name
    plan = read_plan(run)
    assert plan is not None
    best = next(attempt for attempt in plan.attempts if attempt_folder_name(attempt.name) == named)
    begins = at_message(f"{best.name[1:]}: {best.reason}.")
    with pytest.raises(Killed):
        go_on(run, overrides=["steps=30"], listener=killed_when(begins))
    assert f"\nsteps = {STEPS}\n" in (run / "attempts" / named / "recipe.toml").read_text()
    go_on(run)
    assert reached(run)[named] == 30


def test_the_same_length_said_again_tries_again_what_was_given_up(
    whole: tuple[RunResult, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run", symlinks=True)
    with monkeypatch.context() as patch:
        patch.setattr(made._Attempts, "_pacer", lambda *given: None)
        go_on(run, overrides=["steps=30"])
    go_on(run)
    assert reached(run)[best_of(whole[0]).name] == STEPS
    go_on(run, overrides=["steps=30"])
    assert reached(run)[best_of(whole[0]).name] == 30


def test_more_time_is_not_said_to_be_for_the_best_where_that_made_all_its_steps(
    tmp_path: Path, data: Path, start: Path
) -> None:
    run, said = tmp_path / "run", list[Event]()
    with pytest.raises(Killed):
        tune(data, run, start, listener=killed_when(in_attempt(3, 1)()))
    result = go_on(run, time="20m", listener=said.append)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates][1:] == [*TRIED]
    lines = texts(said)
    assert not any("finished" in line for line in lines)
    assert not any(line.startswith((f"{LORA} ", "Last blocks ")) for line in lines)  # which were there before
    (line,) = [line for line in lines if "the best so far" in line]
    assert line.endswith("made all its steps; another length by `overrides=['steps=N']` gives it more.")
    begun = [event for event in said if isinstance(event, Progress) and (event.task, event.done) == ("train", 1)]
    assert len(begun) == len(TRIED) - 2


def test_of_the_best_that_stays_as_it_was_that_is_said(
    whole: tuple[RunResult, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = shutil.copytree(whole[0].run.folder, tmp_path / "run", symlinks=True), list[Event]()
    assert whole[0].choice is not None
    assert whole[0].choice.trained, "the probe was better"
    with monkeypatch.context() as patch:
        patch.setattr(made._Attempts, "_figure", lambda *given: 0.0)
        go_on(run, overrides=["steps=30"], listener=said.append)
    (line,) = [text for text in texts(said) if "no better than before" in text]
    assert " of 30 validation " in line


def steps_kept(run: Path) -> dict[str, list[str]]:
    return {folder.name: sorted(path.name for path in folder.glob("checkpoints/*")) for folder in attempts_of(run)}


def test_the_best_alone_keeps_a_checkpoint_the_newest(whole: tuple[RunResult, list[str]]) -> None:
    run, best = whole[0].run.folder, best_of(whole[0]).name
    newest = f"step-{STEPS:08d}"
    for name, kept in steps_kept(run).items():
        assert [path for path in kept if path.startswith("step-")] == ([newest] if name == best else [])
        assert all(
            path.exists() for path in (run / "attempts" / name / "checkpoints").glob("*")
        )  # and no link to nothing
    stands = states(run, read_plan(run))
    assert [state.step for state in stands] == [STEPS] * len(TRIED)
    assert [state.recipe_steps for state in stands] == [STEPS] * len(TRIED)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, data: Path, start: Path) -> Path:
    """The same run with all of its checkpoints: as an earlier version, or a kill, leaves it."""
    with make_short(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "free_checkpoints", lambda folder, *, newest: None)
        run = tune(data, tmp_path_factory.mktemp("crowded") / "run", start).run.folder
    assert all(len(kept) > 2 for kept in steps_kept(run).values())
    return run


MORE: dict[str, dict[str, Any]] = {"nothing": {}, "time": {"time": "20m"}, "steps": {"overrides": ["steps=30"]}}


@pytest.mark.parametrize("more", MORE)
def test_without_the_others_a_run_goes_on_as_with_them(
    more: str, whole: tuple[RunResult, list[str]], crowded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, all_of_them = (
        shutil.copytree(run, tmp_path / name, symlinks=True)
        for name, run in (("few", whole[0].run.folder), ("all", crowded))
    )
    trained: tuple[list[Progress], list[Progress]] = ([], [])
    if more == "time":
        cut_short(few, planned=60)
        cut_short(all_of_them, planned=60)
    one = go_on(few, listener=count_into(trained[0]), **MORE[more])
    with monkeypatch.context() as patch:
        patch.setattr(made, "free_checkpoints", lambda folder, *, newest: None)
        other = go_on(all_of_them, listener=count_into(trained[1]), **MORE[more])
    assert one.choice == other.choice
    assert reached(few) == reached(all_of_them)
    assert len(trained[0]) == len(trained[1]) == {"nothing": 0, "time": 60 - STEPS, "steps": 30 - STEPS}[more]
    weights = [name for name in contents(few) if name.endswith(".safetensors")]
    assert [contents(few)[name] for name in weights] == [contents(all_of_them)[name] for name in weights]


def test_what_an_earlier_version_or_a_kill_left_is_freed_when_the_run_goes_on(
    whole: tuple[RunResult, list[str]], crowded: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(crowded, tmp_path / "run", symlinks=True)
    before = trained_seconds(run, read_plan(run))
    go_on(run)
    assert steps_kept(run) == steps_kept(whole[0].run.folder)
    assert trained_seconds(run, read_plan(run)) == pytest.approx(before)


def test_who_says_which_checkpoints_are_kept_keeps_them(tmp_path: Path, data: Path, start: Path) -> None:
    tune(data, tmp_path / "run", start, overrides=(*SETTINGS, "checkpoint.keep=3"))
    assert all(sum(name.startswith("step-") for name in kept) >= 3 for kept in steps_kept(tmp_path / "run").values())

"""Several ways to learn from trained weights: each tried in turn, the best delivered, and all of it on record."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vitral
from tests.cases import every_case
from tests.forks import job
from tests.training.candidates import attempts_run
from tests.training.candidates.attempts_run import SETTINGS, TRIED, attempts_of, go_on, in_attempt, tune
from tests.training.candidates.conftest import Learned
from tests.training.candidates.material import Killed, killed_when
from vitral.cli.command_line import commands_of
from vitral.data.loader import TrainingBatches
from vitral.events import Event, Message, ignore
from vitral.studies.run_report import run_report
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training import loop
from vitral.training import run as one_run
from vitral.training.candidates import first as candidates
from vitral.training.candidates import trained as made
from vitral.training.candidates.first import HEAD
from vitral.training.candidates.result import PROBE, RunResult
from vitral.training.candidates.trained import share_of_time
from vitral.training.choose import attempts
from vitral.training.choose import recipe as chosen_recipe
from vitral.training.clock import Pacer
from vitral.training.loop import TrainingResult
from vitral.training.plan import ANEW, TRAINED, read_plan
from vitral.training.records.run_folder import kept_remarks
from vitral.training.settings.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("short")


def test_each_way_learns_at_the_rates_of_its_recipe(
    whole: tuple[RunResult, list[str]], learned: dict[str, Learned]
) -> None:
    """The common recipe has a stochastic depth of 0.1, that without weights none."""
    rates = [(one.stochastic_depth, one.recipe.regularization.stochastic_depth) for one in learned.values()]
    assert len(rates) == len(TRIED)
    assert len(set(rates)) == 2
    assert all(one == other for one, other in rates)


def test_each_way_is_tried_in_a_folder_of_its_own_and_the_best_is_delivered(
    whole: tuple[RunResult, list[str]],
) -> None:
    result, said = whole
    run = result.run.folder
    assert result.choice is not None
    tried = result.choice.candidates
    assert [one.name for one in tried[1:]] == [*TRIED]
    assert [folder.name for folder in attempts_of(run)] == sorted(
        ["last-blocks", "lora", "all-weights", "as-from-scratch"]
    )
    kept = next(one for one in tried if one.name == result.choice.best)
    assert kept.figure == max(one.figure for one in tried)
    assert kept == [one for one in tried if one.figure == kept.figure and one.name != ANEW][-1]  # of equals the last
    assert result.choice.sentence() in said
    for one in tried[1:]:
        (line,) = [text for text in said if text.startswith(f"{one.name[0].upper()}{one.name[1:]}: ")]
        assert one.reached(SINGLE_LABEL.headline) in line


def test_what_is_delivered_scores_what_was_said_of_it(whole: tuple[RunResult, list[str]], data: Path) -> None:
    result, _ = whole
    assert result.choice is not None
    scores = vitral.evaluate(result.run.folder, data, split="validation", listener=ignore)
    kept = next(one for one in result.choice.candidates if one.name == result.choice.best)
    assert scores.headline() == pytest.approx(kept.figure)
    for folder in attempts_of(result.run.folder):
        own = json.loads((folder / "attempt.json").read_text())
        assert vitral.evaluate(folder, data, split="validation", listener=ignore).headline() == pytest.approx(
            own["figure"]
        )


def test_all_figures_are_in_every_record(whole: tuple[RunResult, list[str]]) -> None:
    result, _ = whole
    run, (sentence,) = result.run.folder, result.choice_lines()
    for name in ("run.json", "evaluation.json"):
        choice = json.loads((run / name).read_text())["choice"]
        assert choice["sentence"] == sentence
        assert [one["name"] for one in choice["candidates"]][1:] == [*TRIED]
    assert result.to_json()["choice"]["sentence"] == sentence
    assert vitral.load(run).provenance.training["choice"]["sentence"] == sentence
    card = (run / "classifier" / "README.md").read_text()
    assert all(name in card for name in TRIED)
    assert ("Choice", sentence) in run_report(result).facts


@pytest.mark.long
def test_the_recipe_of_the_run_makes_what_it_delivers_again_or_it_is_said_why_not(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    result, _ = whole
    assert result.choice is not None
    assert result.choice.trained, "the probe was better, so that there is nothing to make again"
    run = result.run.folder
    assert load_recipe(run / "recipe.toml") == result.run.recipe
    assert f"# not the same weights again: {HEAD}" in commands_of(result)
    one = tune(
        data, tmp_path / "one", start, baselines=False, overrides=[*SETTINGS, "steps=6"]
    )  # its head begins at zero
    assert commands_of(one).endswith("# the same weights again")
    recipe = one.run.folder / "recipe.toml"
    again = vitral.finetune(data, source=start, out=tmp_path / "again", recipe=recipe, listener=ignore)
    bits = [made.run.folder / "classifier" / "weights.safetensors" for made in (one, again)]
    assert bits[0].read_bytes() == bits[1].read_bytes()
    assert (one.run.folder / "metrics.jsonl").read_bytes() == (again.run.folder / "metrics.jsonl").read_bytes()


@pytest.mark.long
def test_a_run_that_is_begun_anew_leaves_nothing_of_the_attempts_before(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole[0].run.folder, run)
    assert attempts_of(run) != []
    tune(data, run, start, overrides=(*SETTINGS, "steps=3"), overwrite=True)
    plan = read_plan(run)
    assert plan is not None
    assert [attempt.name for attempt in plan.attempts] == [TRAINED]
    assert not (run / "attempts").exists()


@every_case("used", [0.0, 0.5, 1.0])
def test_what_an_attempt_leaves_goes_to_the_next_and_the_end_is_kept(used: float) -> None:
    left, shares, ending, given = 100.0, [0.2, 0.3, 0.5], 10.0, []
    while shares:
        seconds = share_of_time(left, ending, shares)
        given.append(seconds)
        left -= used * seconds
        shares = shares[1:]
        assert seconds <= left + (used * seconds) - ending + 1e-9
    assert left >= ending - 1e-9
    assert given[0] == pytest.approx(18.0)
    assert given == sorted(given)
    assert share_of_time(5.0, 10.0, [0.5, 0.5]) == 0.0


@pytest.mark.long
def test_several_processes_make_the_same_choice(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    for done in job(2, attempts_run.main, tmp_path / "run", data, start):
        assert done.returncode == 0, done.stderr[-3000:]
    one, other = ((tmp_path / f"run-{rank}.txt").read_text().splitlines() for rank in (0, 1))
    assert one == other
    assert one[0] == json.loads((tmp_path / "run" / "run.json").read_text())["choice"]["kept"]
    assert len(one) == 2 + len(TRIED) + 1
    assert vitral.load(tmp_path / "run").class_names == ("columns", "rows")


def test_a_plan_shows_them_and_quick_shows_no_training(data: Path, start: Path) -> None:
    run = vitral.plan(data, source=start, image_size=16, listener=ignore)
    told, planned = repr(run), run.to_json()
    assert all(f"  {name}, " in told for name in TRIED)
    assert "images/s in training" in told
    assert [one["name"] for one in planned["attempts"]] == [*TRIED]
    assert sum(one["share"] for one in planned["attempts"]) == pytest.approx(1.0)
    run = vitral.plan(data, source=start, image_size=16, quick=True, listener=ignore)
    told, planned = repr(run), run.to_json()
    assert "images/s" not in told
    assert not any(f"  {name}, " in told for name in TRIED)
    assert (planned["attempts"], planned["cost"]) == ([], None)


def test_each_begins_with_the_linear_probe_as_its_head(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MOST_IMAGES", 1000)
    for room, name in ((attempts, "LORA_LR"), (chosen_recipe, "FULL_LR")):
        monkeypatch.setattr(room, name, 1e-12)  # so that what was begun with is still there at the end
    monkeypatch.setattr(attempts, "SMALL_NETWORK", 0)
    result = tune(data, tmp_path / "run", start)
    assert result.choice is not None
    probe, *others = result.choice.candidates
    assert probe.name == PROBE
    assert probe.figure > 0.9
    assert [one.figure for one in others] == pytest.approx([probe.figure] * (len(TRIED) - 1))
    assert (
        result.choice.best == [one.name for one in others if one.name != ANEW][-1]
    )  # of equals what was trained further
    remarks = [kept_remarks(folder) for folder in (tmp_path / "run", *attempts_of(tmp_path / "run"))]
    assert remarks == [(HEAD,)] * len(TRIED)


def test_as_from_scratch_all_weights_learn_from_views_and_by_an_optimizer_of_their_own(
    whole: tuple[RunResult, list[str]], learned: dict[str, Learned]
) -> None:
    scratch = load_recipe("scratch")
    for name, (_, batches, recipe) in learned.items():
        assert batches.augmentation == recipe.augmentation
        assert (recipe.optimizer == scratch.optimizer) == (name == "as-from-scratch")
    batches, others = learned["as-from-scratch"].batches, learned["all-weights"].batches
    own, before = batches.augmentation, others.augmentation
    assert (before.crop, before.flip, before.decode) == ("inception", True, "scaled")
    assert (own.crop, own.flip, own.decode) == ("padded", "alternating", "kept")
    folder = whole[0].run.folder / "attempts"
    assert kept_remarks(folder / "as-from-scratch") == ()  # nor the probe's head
    assert kept_remarks(folder / "all-weights") == (HEAD,)
    one, other = batches.batch(0).images, others.batch(0).images
    assert one.shape == other.shape
    assert not np.array_equal(one, other)


@pytest.mark.long
def test_without_a_first_classifier_the_way_that_pays_first_is_trained_and_said(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_run, "first_seconds", lambda left: 0.0)  # so that there is no time for it
    learned: list[TrainingBatches] = []

    def watched(*of: Any, **named: Any) -> TrainingResult:  # noqa: ANN401
        learned.append(of[1])
        return loop.train(*of, **named)

    monkeypatch.setattr(made, "train", watched)
    said: list[Event] = []
    result = tune(data, tmp_path / "run", start, time="20m", listener=said.append)
    assert result.choice is None
    scratch = load_recipe("scratch").optimizer
    assert result.run.recipe.optimizer == scratch
    assert load_recipe(tmp_path / "run" / "recipe.toml").optimizer == scratch
    (line,) = [event.text for event in said if isinstance(event, Message) and "one training is tried" in event.text]
    assert ANEW in line
    assert not (tmp_path / "run" / "attempts").exists()
    assert go_on(tmp_path / "run").run.recipe.optimizer == scratch  # which has nothing left to train
    (began,) = learned
    assert began.augmentation == result.run.recipe.augmentation


@pytest.mark.long
def test_within_a_budget_each_has_its_share_and_the_last_all_that_is_left(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []
    train = loop.train

    def noted(*given: Any, pacer: Pacer, **more: Any) -> TrainingResult:  # noqa: ANN401
        assert pacer.seconds is not None
        ends.append(pacer.seconds)
        return train(*given, pacer=pacer, **more)

    monkeypatch.setattr(made, "train", noted)
    run = tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, start, time="20m", listener=killed_when(in_attempt(2, 3)()))
    plan = read_plan(run)
    assert plan is not None
    first, second = (attempt.share for attempt in plan.attempts[:2])
    assert first * 600 < ends[0] < first * 1200 + 300
    assert ends[0] < ends[1] < (first + second) * 1200 + 300
    ends.clear()
    later = go_on(run)
    assert later.choice is not None
    assert [one.name for one in later.choice.candidates][1:] == [*TRIED]
    assert len(ends) == len(TRIED) - 1
    assert ends == sorted(ends)
    assert ends[-1] == later.run.clock.seconds
    assert 1100 < ends[-1] <= 1200  # what the attempts trained before the kill is gone

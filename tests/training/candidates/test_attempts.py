"""Several ways to learn from trained weights: each tried in turn, the best kept, and nothing worse ever left behind."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vitral
from tests.forks import job
from tests.training.candidates import attempts_run
from tests.training.candidates.attempts_run import SETTINGS, STEPS, make_short
from tests.training.candidates.test_first import a_start, at_message, stripes
from vitral.cli.command_line import commands_of
from vitral.cli.main import main
from vitral.errors import StorageError, TrainingDiverged, TrainingError, TrainingInterrupted
from vitral.events import Event, Message, Progress, ignore
from vitral.studies.run_report import run_report
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training import loop
from vitral.training.candidates import attempts as made
from vitral.training.candidates import deliver
from vitral.training.candidates import first as candidates
from vitral.training.candidates.attempts import share_of_time
from vitral.training.candidates.choice import PROBE, TRAINED, Candidate, choose
from vitral.training.candidates.first import HEAD
from vitral.training.loop import TrainingResult
from vitral.training.planning import attempts
from vitral.training.planning.attempts import ALL, COST, LAST, LORA
from vitral.training.planning.budget import Budget
from vitral.training.records.asked import last_asked
from vitral.training.records.attempts import kept_attempts
from vitral.training.records.checkpoints import newest_state
from vitral.training.records.recipe_file import kept_remarks
from vitral.training.records.resume import budget_left, has_unused_time
from vitral.training.result import RunResult
from vitral.training.settings.recipe import load_recipe


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with make_short():
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stripes(tmp_path_factory.mktemp("data") / "photos", 150)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_start(tmp_path_factory.mktemp("start"), depth=3)


def tune(data: Path | None, out: Path, start: Path | None, **asked: Any) -> RunResult:  # noqa: ANN401
    given: dict[str, Any] = {"source": start, "image_size": 16, "overrides": SETTINGS, "listener": ignore}
    return vitral.finetune(data, out=out, **(given | asked))


def go_on(run: Path, **asked: Any) -> RunResult:  # noqa: ANN401
    return vitral.finetune(out=run, resume=True, **({"listener": ignore} | asked))


def attempts_of(run: Path) -> list[Path]:
    return sorted((run / "attempts").iterdir())


def contents(run: Path) -> dict[str, bytes]:
    """Return what must not depend on how often a run was interrupted."""
    names = ["classifier/weights.safetensors", "metrics.jsonl", "recipe.toml", "evaluation.json", "first.json"]
    for folder in attempts_of(run):
        names += [
            f"attempts/{folder.name}/{name}"
            for name in ("classifier/weights.safetensors", "metrics.jsonl", "recipe.toml")
        ]
    return {name: (run / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path, start: Path) -> tuple[RunResult, list[str]]:
    """A run that nothing interrupted, and what it said."""
    with make_short():
        said: list[Event] = []
        result = tune(data, tmp_path_factory.mktemp("whole") / "run", start, listener=said.append)
    return result, [event.text for event in said if isinstance(event, Message)]


def test_each_way_is_tried_in_a_folder_of_its_own_and_the_best_is_delivered(
    whole: tuple[RunResult, list[str]],
) -> None:
    result, said = whole
    run = result.run.folder
    assert result.choice is not None
    tried = result.choice.candidates
    assert [one.name for one in tried[1:]] == [*COST]
    assert [folder.name for folder in attempts_of(run)] == sorted(["last-blocks", "lora", "all-weights"])
    kept = next(one for one in tried if one.name == result.choice.kept)
    assert kept.figure == max(one.figure for one in tried)
    assert kept == next(one for one in tried if one.figure == kept.figure)  # of equals the cheaper
    assert result.choice.sentence(SINGLE_LABEL.headline) in said
    for one in tried[1:]:
        (line,) = [text for text in said if text.startswith(f"{one.name[0].upper()}{one.name[1:]} ")]
        assert one.text(SINGLE_LABEL.headline) in line
        assert one.of() in line


def test_what_is_delivered_scores_what_was_said_of_it(whole: tuple[RunResult, list[str]], data: Path) -> None:
    result, _ = whole
    assert result.choice is not None
    scores = vitral.evaluate(result.run.folder, data, split="validation", listener=ignore)
    kept = next(one for one in result.choice.candidates if one.name == result.choice.kept)
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
        assert [one["name"] for one in choice["candidates"]][1:] == [*COST]
    assert result.to_json()["choice"]["sentence"] == sentence
    assert vitral.load(run).provenance.training["choice"]["sentence"] == sentence
    card = (run / "classifier" / "README.md").read_text()
    assert all(name in card for name in COST)
    assert ("Kept", sentence) in run_report(result).facts


def test_the_recipe_of_the_run_makes_what_it_delivers_again(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    result, _ = whole
    assert result.choice is not None
    assert result.choice.trained, "the probe was better, so that there is nothing to make again"
    run = result.run.folder
    assert load_recipe(run / "recipe.toml") == result.run.recipe
    assert str(run / "recipe.toml") in commands_of(result)
    again = vitral.finetune(data, source=start, out=tmp_path / "run", recipe=run / "recipe.toml", listener=ignore)
    bits = [folder / "classifier" / "weights.safetensors" for folder in (run, again.run.folder)]
    assert bits[0].read_bytes() == bits[1].read_bytes()
    assert (run / "metrics.jsonl").read_bytes() == (again.run.folder / "metrics.jsonl").read_bytes()


class Killed(BaseException):
    """Stands for the end of a process."""


def in_attempt(number: int, step: int) -> Callable[[], Callable[[Event], bool]]:
    """Return what waits for a step of the attempt of a number."""

    def waiting() -> Callable[[Event], bool]:
        begun = 0

        def now(event: Event) -> bool:
            nonlocal begun
            begun += isinstance(event, Progress) and event.task == "train" and event.done == 1
            return isinstance(event, Progress) and event.task == "train" and (begun, event.done) == (number, step)

        return now

    return waiting


MOMENTS: dict[str, Callable[[], Callable[[Event], bool]]] = {
    "within the first": in_attempt(1, 3),
    "between the first and the second": lambda: at_message("LoRA:"),
    "within the last": in_attempt(3, 14),
    "when the choice is made": lambda: at_message("By 30 validation images"),
}


@pytest.mark.parametrize("when", MOMENTS)
def test_a_run_that_is_killed_goes_on_where_it_was_to_the_same_bits(
    when: str, whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    result, _ = whole
    now, trained = MOMENTS[when](), []

    def listen(event: Event) -> None:
        if now(event):
            raise Killed

    def count(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            trained.append(event)

    run = tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, start, listener=listen)
    finished = [folder for folder in attempts_of(run) if (folder / "attempt.json").is_file()]
    assert vitral.load(run).class_names == ("columns", "rows")  # usable, whenever it was killed
    later = go_on(run, listener=count)
    assert later.choice == result.choice
    assert len(trained) <= (len(COST) - len(finished)) * STEPS
    assert contents(run) == contents(result.run.folder)
    again = go_on(run, listener=count)  # which has nothing left to do
    assert again.evaluation == result.evaluation
    assert len(trained) <= (len(COST) - len(finished)) * STEPS


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
        assert str(stopped.value).endswith(f"go on with `resume=True` `out='{run}'`.")
    best = vitral.evaluate(run, data, split="validation", listener=ignore).headline()
    assert best == pytest.approx(max(figures_so_far(run)))
    go_on(run)
    assert contents(run) == contents(whole[0].run.folder)


def test_a_run_that_is_begun_anew_leaves_nothing_of_the_attempts_before(
    tmp_path: Path, data: Path, start: Path
) -> None:
    run = tmp_path / "run"
    tune(data, run, start)
    tune(data, run, start, overrides=(*SETTINGS, "steps=3"), overwrite=True)
    assert kept_attempts(run) == ()
    assert not (run / "attempts").exists()


def test_quick_stops_before_them_and_resume_tries_them(tmp_path: Path, data: Path, start: Path) -> None:
    run = tmp_path / "run"
    quick = tune(data, run, start, quick=True)
    assert quick.training.steps == 0
    assert not (run / "attempts").exists()
    later = go_on(run)
    assert later.choice is not None
    assert len(later.choice.candidates) == 1 + len(COST)
    with pytest.raises(TrainingError, match="past its first classifier"):
        go_on(run, quick=True)


def test_more_steps_go_to_the_best_alone(whole: tuple[RunResult, list[str]], tmp_path: Path) -> None:
    result, _ = whole
    run = shutil.copytree(result.run.folder, tmp_path / "run")
    later = go_on(run, overrides=["steps=30"])
    steps = reached(run)
    assert sorted(steps.values()) == [STEPS, STEPS, 30]
    assert steps[best_of(result).name] == 30
    assert later.choice is not None


def reached(run: Path) -> dict[str, int]:
    """Return the updates that each attempt of a run made in all."""
    return {path.parent.name: json.loads(path.read_text())["reached"] for path in run.glob("attempts/*/attempt.json")}


def best_of(result: RunResult) -> Path:
    """Return the folder of the best attempt of a run."""
    assert result.choice is not None
    best = choose(result.choice.candidates[1:], SINGLE_LABEL.headline).kept
    return result.run.folder / "attempts" / best.lower().replace(" ", "-")


def count_into(trained: list[Progress]) -> Callable[[Event], None]:
    def count(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            trained.append(event)

    return count


def no_time(*given: object) -> None:
    """Stand for `_budget` where there is time for nothing."""


def diverge(*given: object, **more: object) -> None:
    raise TrainingDiverged("The loss is no number.")


def all_wrong(*given: object) -> float:
    return 0.0


OUTCOMES = {"no time": ("_budget", no_time), "diverged": ("train", diverge), "worse": ("figure_of", all_wrong)}


@pytest.mark.parametrize("happens", OUTCOMES)
def test_more_time_never_leaves_a_worse_classifier_than_there_was(
    happens: str, whole: tuple[RunResult, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = whole
    run = shutil.copytree(result.run.folder, tmp_path / "run", symlinks=True)
    before = {name: held for name, held in contents(run).items() if not name.startswith("attempts/")}
    with monkeypatch.context() as patch:
        patch.setattr(made, *OUTCOMES[happens])
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


def killed_at(step: int) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, Progress) and (event.task, event.done) == ("train", step):
            raise Killed

    return listen


@pytest.mark.parametrize("step", [STEPS + 1, 33])  # before a checkpoint beyond the old end, and after
def test_a_longer_training_that_is_killed_goes_on_to_the_same_bits(
    step: int, whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    one, other = (shutil.copytree(whole[0].run.folder, tmp_path / name, symlinks=True) for name in ("one", "other"))
    go_on(one, overrides=["steps=40"])
    with pytest.raises(Killed):
        go_on(other, overrides=["steps=40"], listener=killed_at(step))
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
    for attempt in attempts_of(run):  # as if a budget had ended them before the recipe's length
        state = attempt / "checkpoints" / "last" / "state.json"
        state.write_text(json.dumps(json.loads(state.read_text()) | {"recipe_steps": 60}))
        recipe = (attempt / "recipe.toml").read_text()
        assert f"\nsteps = {STEPS}\n" in recipe
        (attempt / "recipe.toml").write_text(recipe.replace(f"\nsteps = {STEPS}\n", "\nsteps = 60\n"))
    with pytest.raises(Killed):
        go_on(run, time="20m", listener=killed_at(step))
    asked = last_asked(run)
    assert asked is not None
    left = budget_left(run, replace(asked, budget_seconds=None))
    assert left is not None
    assert has_unused_time(run) == (left == 1200.0) == (step == STEPS + 1)
    assert 1000 < left <= 1200
    best = best_of(whole[0]).name
    saved = newest_state(run / "attempts" / best / "checkpoints")
    assert saved is not None
    trained: list[Progress] = []
    go_on(run, listener=count_into(trained))
    assert reached(run) == {name: 60 if name == best else STEPS for name in reached(run)}
    assert len(trained) == 60 - saved.step
    assert (saved.step == STEPS) == (step == STEPS + 1)
    assert budget_left(run, replace(asked, budget_seconds=None)) is None


@pytest.mark.parametrize("damaged", ["attempt.json", "classifier/classifier.json"])
def test_an_attempt_whose_record_is_damaged_is_taken_from_its_checkpoint(
    damaged: str, whole: tuple[RunResult, list[str]], tmp_path: Path
) -> None:
    run = shutil.copytree(whole[0].run.folder, tmp_path / "run")
    path = run / "attempts" / "lora" / damaged
    path.write_text("{") if damaged == "attempt.json" else path.unlink()
    assert go_on(run).choice == whole[0].choice
    assert contents(run) == contents(whole[0].run.folder)


@pytest.mark.parametrize(
    "figures", [(0.9, 0.9, 0.9, 0.9), (0.8, 0.9, 0.9, 0.9), (0.9, 0.8, 0.7, 0.6), (0.5, 0.6, 0.6, 0.7)]
)
def test_what_is_kept_is_never_worse_and_of_equals_the_cheapest(figures: tuple[float, ...]) -> None:
    names = (PROBE, *COST)
    tried = [Candidate(name, figure, 400) for name, figure in zip(names, figures, strict=True)]
    assert choose(tried, SINGLE_LABEL.headline).kept == names[figures.index(max(figures))]


@pytest.mark.parametrize(
    ("kept", "end"),
    [
        (LORA, "LoRA is kept."),
        (LAST, "The network whose last blocks learned is kept."),
        (ALL, "The network all of which learned is kept."),
        (PROBE, "The linear probe is kept."),
    ],
)
def test_the_sentence_names_all_of_them(kept: str, end: str) -> None:
    tried = [Candidate(name, 0.9 + 0.01 * (name == kept), 412) for name in (PROBE, *COST)]
    sentence = choose(tried, SINGLE_LABEL.headline).sentence(SINGLE_LABEL.headline)
    assert sentence.startswith("By 412 validation images: linear probe 9")
    assert sentence.endswith(end)
    assert all(name in sentence for name in COST)


@pytest.mark.parametrize("used", [0.0, 0.5, 1.0])
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


def test_several_processes_make_the_same_choice(
    whole: tuple[RunResult, list[str]], tmp_path: Path, data: Path, start: Path
) -> None:
    for done in job(2, attempts_run.main, tmp_path / "run", data, start):
        assert done.returncode == 0, done.stderr[-3000:]
    one, other = ((tmp_path / f"run-{rank}.txt").read_text().splitlines() for rank in (0, 1))
    assert one == other
    assert one[0] == json.loads((tmp_path / "run" / "run.json").read_text())["choice"]["kept"]
    assert len(one) == 2 + len(COST) + 1
    assert vitral.load(tmp_path / "run").class_names == ("columns", "rows")


def test_an_attempt_that_diverges_is_given_up_and_the_others_go_on(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LORA_LR", 1e30)
    said: list[Event] = []
    settings = (*SETTINGS, "faults.max_skipped=0")
    result = tune(data, tmp_path / "run", start, overrides=settings, listener=said.append)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates][1:] == [LAST, ALL]
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
        patch.setattr(made, "_budget", no_time)
        assert tune(data, run, start).choice == go_on(run).choice
    said: list[Event] = []
    later = go_on(run, listener=said.append)
    assert later.choice is not None
    assert len(later.choice.candidates) == 1
    assert sum("no time, as before" in event.text for event in said if isinstance(event, Message)) == len(COST)
    more = go_on(run, time="20m")
    assert more.choice is not None
    assert [one.name for one in more.choice.candidates][1:] == [*COST]


def test_a_plan_shows_them_and_quick_shows_no_training(
    tmp_path: Path, data: Path, start: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["finetune", "--data", str(data), "--from", str(start), "--image-size", "16", "--plan"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert all(f"  {name}, " in told for name in COST)
    assert "of training at" in told
    assert main([*command, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in planned["attempts"]] == [*COST]
    assert sum(one["share"] for one in planned["attempts"]) == pytest.approx(1.0)
    assert main([*command, "--quick"]) == 0
    assert "of training at" not in capsys.readouterr().out
    assert main([*command, "--quick", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["attempts"], planned["cost"]) == ([], None)


def test_each_begins_with_the_linear_probe_as_its_head(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MOST_IMAGES", 1000)
    for name in ("LORA_LR", "FULL_LR"):
        monkeypatch.setattr(attempts, name, 1e-12)  # so that what was begun with is still there at the end
    result = tune(data, tmp_path / "run", start)
    assert result.choice is not None
    probe, *others = result.choice.candidates
    assert probe.name == PROBE
    assert probe.figure > 0.9
    assert [one.figure for one in others] == pytest.approx([probe.figure] * len(COST))
    assert result.choice.kept == PROBE  # of equals the cheapest
    remarks = [kept_remarks(folder) for folder in (tmp_path / "run", *attempts_of(tmp_path / "run"))]
    assert remarks == [(HEAD,)] * (1 + len(COST))


def test_one_way_alone_begins_so_too_however_often_it_is_stopped(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MOST_IMAGES", 1000)
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.0)  # so that there is none for several
    monkeypatch.setattr(attempts, "FULL_LR", 1e-12)
    run = tmp_path / "run"
    now = in_attempt(1, 1)()

    def listen(event: Event) -> None:
        if now(event):
            raise Killed

    with pytest.raises(Killed):
        tune(data, run, start, listener=listen)
    assert not list(run.glob("checkpoints/step-*"))
    result = go_on(run)
    assert result.choice is not None
    probe, trained = result.choice.candidates
    assert (probe.name, trained.name) == (PROBE, TRAINED)
    assert trained.figure == pytest.approx(probe.figure)
    assert probe.figure > 0.9
    assert kept_remarks(run) == (HEAD,)
    assert not (run / "attempts").exists()


def test_without_a_first_classifier_the_way_that_pays_first_is_trained_and_said(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "FIRST_SHARE", 0.0)  # so that there is no time for it
    said: list[Event] = []
    result = tune(data, tmp_path / "run", start, time="20m", listener=said.append)
    assert result.choice is None
    assert result.run.recipe.adaptation.method == "lora"
    assert load_recipe(tmp_path / "run" / "recipe.toml").adaptation.method == "lora"
    (line,) = [event.text for event in said if isinstance(event, Message) and "one way to learn is tried" in event.text]
    assert LORA in line
    assert not (tmp_path / "run" / "attempts").exists()
    assert go_on(tmp_path / "run").run.recipe.adaptation.method == "lora"


def test_within_a_budget_each_has_its_share_and_the_last_all_that_is_left(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[float] = []
    train = loop.train

    def noted(*given: Any, budget: Budget, **more: Any) -> TrainingResult:  # noqa: ANN401
        assert budget.seconds is not None
        ends.append(budget.seconds)
        return train(*given, budget=budget, **more)

    monkeypatch.setattr(made, "train", noted)
    now, run = in_attempt(2, 3)(), tmp_path / "run"

    def listen(event: Event) -> None:
        if now(event):
            raise Killed

    with pytest.raises(Killed):
        tune(data, run, start, time="20m", listener=listen)
    first, second = (attempt.share for attempt in kept_attempts(run)[:2])
    assert first * 600 < ends[0] < first * 1200 + 300
    assert ends[0] < ends[1] < (first + second) * 1200 + 300
    ends.clear()
    later = go_on(run)
    assert later.choice is not None
    assert [one.name for one in later.choice.candidates][1:] == [*COST]
    assert len(ends) == 2
    assert ends == sorted(ends)
    assert ends[-1] == later.run.session.budget_seconds
    assert 1100 < ends[-1] <= 1200  # what the attempts trained before the kill is gone

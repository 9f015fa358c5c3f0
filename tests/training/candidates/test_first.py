"""The first classifier: there before anything is trained, judged by the validation images, and never undercut."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from tests.cases import every_case
from tests.training.candidates.material import SIZE, Killed, a_start, at_message, killed_when, shades, stripes, write
from vitral.classifier.metadata import BASELINE
from vitral.cli.main import main
from vitral.data.batch import Batch
from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.errors import TrainingError, UsageError
from vitral.evaluation.baselines import Describer
from vitral.events import Event, Message, Progress, ignore
from vitral.inference.torch_predictor import TorchPredictor
from vitral.report.page import render_report
from vitral.studies.run_report import run_facts, run_report
from vitral.training import facts, measuring
from vitral.training.candidates import first as candidates
from vitral.training.candidates import trained
from vitral.training.candidates.linear_model import LinearModel
from vitral.training.candidates.result import PIXELS, PROBE, RunResult
from vitral.training.choose.network import FINE, NARROW
from vitral.training.clock import LEAST_SCORED
from vitral.training.loop import Validate
from vitral.training.scoring import validation as within_time
from vitral.training.scoring.validation import Scoring, run_validation
from vitral.training.session import Run
from vitral.training.settings.recipe import load_recipe
from vitral.training.starting import prepare
from vitral.training.step import Step

QUICK = ("steps=4", "batch_size=8", "workers=0", "checkpoint.every_steps=2", "precision=fp32")


def tune(data: Path, out: Path, **asked: Any) -> RunResult:  # noqa: ANN401
    given: dict[str, Any] = {
        "source": "vit-mu4",
        "image_size": SIZE,
        "overrides": QUICK,
        "listener": lambda event: None,
    }
    return vitral.finetune(data, out=out, **(given | asked))


def contents(run: Path) -> dict[str, bytes]:
    """Return what must not depend on how often a run was interrupted."""
    names = ("classifier/weights.safetensors", "first/weights.safetensors", "first.json", "evaluation.json")
    return {name: (run / name).read_bytes() for name in names}


def test_what_training_does_not_beat_is_delivered_and_said_everywhere(tmp_path: Path) -> None:
    said: list[Event] = []
    result = tune(shades(tmp_path / "photos"), tmp_path / "run", listener=said.append)
    assert result.choice is not None
    assert result.choice.best == PIXELS
    sentence = result.choice_lines()[0]
    lines = [event.text for event in said if isinstance(event, Message)]
    facts = (PIXELS, "4 of 4 validation ", f"'{tmp_path / 'run' / 'classifier'}'")
    (first,) = [line for line in lines if all(fact in line for fact in facts)]
    assert lines.index(first) < lines.index(sentence)
    assert sentence.index(PIXELS) < sentence.index("trained network")
    run = tmp_path / "run"
    kept = vitral.load(run)
    assert type(kept.model.config).__name__ == "PixelsConfig"
    for place in (json.loads((run / name).read_text()) for name in ("run.json", "evaluation.json")):
        assert place["choice"]["sentence"] == sentence
    assert result.to_json()["choice"]["kept"] == PIXELS
    shown = dict(run_facts(result))  # of what is delivered, and not of the network that was trained in vain
    assert "Recipe" not in shown
    assert shown["Made by"].startswith(PIXELS)
    assert PIXELS in shown["Started from"]
    assert f"{result.training.steps} steps" in shown["Also trained"]
    assert result.to_json()["split"] == json.loads((run / "evaluation.json").read_text())["split"] == "test"
    assert not any(BASELINE in name for name in kept.provenance.scores)  # it would be compared with itself
    assert kept.provenance.training["choice"]["sentence"] == sentence
    assert sentence in (run / "classifier" / "README.md").read_text()
    report = run_report(result)
    assert ("Choice", sentence) in report.facts
    assert report.method == "weight times input"
    assert "exactly what each cell of the shrunk image adds" in render_report(report)
    assert report.evaluation is not None
    assert (
        report.evaluation.headline()
        == vitral.evaluate(run, tmp_path / "photos", listener=lambda event: None).headline()
    )
    assert kept.predict(np.full((9, 7, 3), 250, np.uint8))[0].label == "light"


def test_what_beats_it_is_delivered(tmp_path: Path) -> None:
    settings = (
        "steps=150",
        "batch_size=32",
        "workers=0",
        "optimizer.lr=0.003",
        "schedule.warmup_steps=10",
        "precision=fp32",
    )
    result = tune(stripes(tmp_path / "photos"), tmp_path / "run", overrides=settings)
    assert result.choice is not None
    pixels, trained = result.choice.candidates
    assert trained.figure > pixels.figure
    assert result.choice.best == "trained network"
    assert vitral.load(tmp_path / "run").model.config == result.training.model.config
    assert result.evaluation.headline() > 0.8


def test_more_training_that_is_no_better_leaves_the_network_as_it_was(tmp_path: Path) -> None:
    settings = ("batch_size=32", "workers=0", "optimizer.lr=0.003", "schedule.warmup_steps=10", "precision=fp32")
    run = tmp_path / "run"
    result = tune(stripes(tmp_path / "photos"), run, overrides=("steps=150", *settings))
    assert result.choice is not None
    assert result.choice.best == "trained network"
    before = (run / "classifier" / "weights.safetensors").read_bytes()
    said: list[Event] = []
    for steps in (151, 151):  # at the lowest rate; and then nothing is left to do
        later = vitral.finetune(out=run, resume=True, overrides=(f"steps={steps}",), listener=said.append)
        assert later.choice == result.choice
        assert later.training.steps == 150
        assert (run / "classifier" / "weights.safetensors").read_bytes() == before
        assert later.evaluation == result.evaluation
    assert any(at_message("after 150")(event) for event in said)


def test_more_training_that_is_better_is_delivered(tmp_path: Path) -> None:
    settings = ("batch_size=32", "workers=0", "optimizer.lr=0.003", "schedule.warmup_steps=10", "precision=fp32")
    run = tmp_path / "run"
    short = tune(stripes(tmp_path / "photos"), run, overrides=("steps=30", *settings))
    later = vitral.finetune(out=run, resume=True, overrides=("steps=150",), listener=lambda event: None)
    assert short.choice is not None
    assert later.choice is not None
    assert later.choice.candidates[1].figure > short.choice.candidates[1].figure
    assert later.training.steps == vitral.load(run).provenance.training["steps"] == 150


def test_without_validation_images_and_time_nothing_is_trained_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        write(tmp_path / "photos" / name / "0.png", np.full((SIZE, SIZE, 3), 90 if name == "one" else 200))
    monkeypatch.setattr(candidates, "affordable", lambda *given, **more: None)  # as on a machine that is busy
    result = tune(tmp_path / "photos", tmp_path / "run", time="10m")
    assert result.training.steps == 0
    assert result.choice is not None
    assert result.choice.best == PIXELS


def test_a_start_that_may_have_learned_what_is_scored_now_is_warned_of(tmp_path: Path) -> None:
    """Splits are drawn anew from data that grew."""

    def warned(data: Path, start: Path) -> bool:
        said: list[Event] = []
        vitral.plan(data, source=start, time="60s", listener=said.append)
        return any(isinstance(event, Message) and "scores too good" in event.text for event in said)

    photos, run = shades(tmp_path / "photos"), tmp_path / "run"
    tune(photos, run, baselines=False)
    assert not warned(photos, run)
    assert not warned(stripes(tmp_path / "others"), run)
    write(photos / "dark" / "new.png", np.full((SIZE, SIZE, 3), 20))
    assert warned(photos, run)
    shades(photos / "val", 4)
    (tmp_path / "split" / "train").parent.mkdir()
    photos.rename(tmp_path / "split" / "train")
    (tmp_path / "split" / "train" / "val").rename(tmp_path / "split" / "val")
    (tmp_path / "split" / "test").symlink_to("val")
    assert not warned(tmp_path / "split", run)


def test_of_trained_weights_the_probe_on_their_features_is_the_first(tmp_path: Path) -> None:
    data, start = stripes(tmp_path / "photos"), a_start(tmp_path / "start")
    result = tune(data, tmp_path / "run", source=start, quick=True, overrides=())
    assert result.choice is not None
    (probe,) = result.choice.candidates
    assert probe.name == PROBE
    assert probe.figure > 0.7
    scores = vitral.evaluate(tmp_path / "run", data, split="validation", listener=lambda event: None)
    assert scores.headline() == pytest.approx(probe.figure)  # of the whole classifier, as it lies there
    assert scores.num_examples == probe.images
    assert result.training.steps == 0


def test_it_is_fitted_in_the_precision_of_training_and_judged_in_that_of_predicting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # else features are kept from another test
    data, start = stripes(tmp_path / "photos"), a_start(tmp_path / "start")
    images = {True: 0, False: 0}
    computed = TorchPredictor.features

    def counted(predictor: TorchPredictor, batch: torch.Tensor) -> torch.Tensor:
        images[torch.is_autocast_enabled("cpu")] += len(batch)
        return computed(predictor, batch)

    monkeypatch.setattr(TorchPredictor, "features", counted)
    result = tune(data, tmp_path / "run", source=start, quick=True, overrides=("precision=bf16",))
    assert images == {True: 96, False: 12}
    assert result.choice is not None
    scores = vitral.evaluate(tmp_path / "run", data, split="validation", listener=lambda event: None)
    assert scores.headline() == result.choice.candidates[0].figure


def test_a_quick_run_measures_nothing_of_a_training_that_is_not_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[int] = []
    gradients = Step.gradients

    def counted(one: Step, batch: Batch, **more: Any) -> Any:  # noqa: ANN401
        learned.append(len(batch))
        return gradients(one, batch, **more)

    monkeypatch.setattr(Step, "gradients", counted)
    report = run_report(tune(shades(tmp_path / "photos"), tmp_path / "run", quick=True))
    assert not learned
    assert "not trained" in report.plan_title  # what was planned is no fact of this classifier
    assert report.curves == ()
    vitral.finetune(out=tmp_path / "run", resume=True, listener=lambda event: None)
    assert learned


def test_from_random_weights_nothing_but_pixels_is_looked_at_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*arguments: Any, **more: Any) -> None:  # noqa: ANN401
        raise AssertionError("an image went through the untrained network")

    monkeypatch.setattr(TorchPredictor, "features", computed)
    data, run = stripes(tmp_path / "photos"), tmp_path / "run"
    result = tune(data, run)
    assert result.baselines is not None
    assert (result.baselines.knn, result.baselines.linear_probe) == (None, None)
    assert result.baselines.num_train == 96  # the first classifier's fit, not a smaller one of its own
    bars = render_report(run_report(result)).partition('id="baselines"')[2].partition("</section>")[0]
    assert "96 training photos" in bars
    assert bars.count('class="fill"') == 1
    assert "None" not in bars


def test_a_run_whose_random_features_an_older_version_scored_goes_on_with_those(tmp_path: Path) -> None:
    data, run = shades(tmp_path / "photos"), tmp_path / "run"
    with pytest.raises(Killed):
        tune(data, run, listener=killed_when(at_message("First classifier")))
    older = {"knn": 0.5, "linear_probe": 0.75, "split": "test", "num_train": 30, "num_test": 6}
    older |= {"pixel_neighbour": 1.0, "pixel_linear": 1.0}
    (run / "baselines.json").write_text(json.dumps(older))
    result = vitral.finetune(out=run, resume=True, listener=lambda event: None)
    assert result.to_json()["baselines"] == older
    assert "nearest neighbours" in render_report(run_report(result))


def test_the_images_of_the_score_have_no_part_in_it(tmp_path: Path) -> None:
    bits = []
    for name, value in (("one", 0), ("other", 255)):
        data = tmp_path / name / "photos"
        for split in ("train", "val", "test"):
            shades(data / split, 6)
        write(data / "test" / "dark" / "0.png", np.full((SIZE, SIZE, 3), value))
        tune(data, tmp_path / name / "run", quick=True)
        bits.append(contents(tmp_path / name / "run")["first/weights.safetensors"])
    assert bits[0] == bits[1]


def test_a_named_recipe_delivers_what_it_trains(tmp_path: Path) -> None:
    result = tune(shades(tmp_path / "photos"), tmp_path / "run", recipe="finetune")
    assert result.choice is None
    assert not (tmp_path / "run" / "first.json").exists()
    again = tune(None, tmp_path / "run", resume=True, source=None, overrides=(), image_size=None)  # type: ignore[arg-type]
    assert again.choice is None


def test_the_classifier_names_the_recipe_that_trained_it_and_not_what_the_data_had_no_room_for(tmp_path: Path) -> None:
    overrides = ("batch_size=64", "schedule.warmup_steps=200", "steps=4", "workers=0", "precision=fp32")
    result = tune(shades(tmp_path / "photos"), tmp_path / "run", recipe="scratch", overrides=overrides)
    trained_by = load_recipe(tmp_path / "run" / "recipe.toml")
    assert (trained_by.batch_size, trained_by.schedule.warmup_steps) != (64, 200)
    assert result.run.recipe == trained_by
    described = vitral.load(tmp_path / "run").provenance.training["recipe"]
    assert described["batch_size"] == trained_by.batch_size
    assert described["schedule"]["warmup_steps"] == trained_by.schedule.warmup_steps


def test_quick_stops_after_it_and_resume_goes_on(tmp_path: Path) -> None:
    data, run = shades(tmp_path / "photos"), tmp_path / "run"
    quick = tune(data, run, quick=True)
    assert quick.training.steps == 0
    assert not (run / "checkpoints").exists()
    later = vitral.finetune(out=run, resume=True, listener=lambda event: None)
    assert later.training.steps == 4
    assert later.choice is not None
    assert [one.name for one in later.choice.candidates] == [PIXELS, "trained network"]
    with pytest.raises(TrainingError, match="past its first classifier"):
        vitral.finetune(out=run, resume=True, quick=True, listener=lambda event: None)


def test_with_more_time_network_and_first_classifier_are_judged_by_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    quick = vitral.finetune("digits", source="vit-mu4", out=run, quick=True, overrides=QUICK, listener=ignore)
    assert quick.choice is not None
    judged = quick.choice.candidates[0].images
    assert judged == 179
    validated = list[int]()

    def noted(run: Run, scoring: Scoring) -> Validate | None:
        validated.append(0 if scoring.validating is None else len(scoring.validating))
        return run_validation(run, scoring)

    monkeypatch.setattr(trained, "run_validation", noted)
    for room in (measuring, within_time):
        monkeypatch.setattr(room, "time_images", lambda *given: 0.05)
    vitral.finetune(out=run, resume=True, time="4m", listener=ignore)  # 1 % of it would be 48 images
    assert set(validated) == {judged}


@pytest.mark.long
def test_what_goes_on_before_an_update_is_planned_as_the_whole_command_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = shades(tmp_path / "photos"), tmp_path / "run"
    asked = {"source": None, "image_size": None, "overrides": ("steps=2", "batch_size=8", "workers=0")}
    monkeypatch.setattr(facts, "training_speed", lambda device: 1e5)
    tune(data, run, quick=True, **asked)
    assert json.loads((run / "run.json").read_text())["from"] == NARROW[FINE]
    monkeypatch.setattr(facts, "training_speed", lambda device: 5e10)
    vitral.finetune(out=run, resume=True, listener=lambda event: None)
    tune(data, tmp_path / "whole", **asked)
    assert (run / "recipe.toml").read_text() == (tmp_path / "whole" / "recipe.toml").read_text()
    assert load_recipe(run / "recipe.toml").image_size == 24
    for path in (run, tmp_path / "whole"):
        assert json.loads((path / "run.json").read_text())["from"] == FINE
    vitral.finetune(out=run, resume=True, overrides=("steps=3",), listener=lambda event: None)  # what has begun is kept
    assert load_recipe(run / "recipe.toml").image_size == 24


@pytest.mark.parametrize("asked", [{"recipe": "finetune"}, {"sweep": True}, {"baselines": False}])
def test_quick_goes_with_nothing_that_it_would_leave_out(asked: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stops after the first"):
        tune(tmp_path, tmp_path / "run", quick=True, **asked)


KILLS: dict[str, Callable[[Event], bool]] = {
    "while its images are read": lambda event: isinstance(event, Progress) and event.task == "read photos",
    "when it is saved": at_message("First classifier"),
    "while the network trains": lambda event: isinstance(event, Progress) and event.task == "train" and event.done == 3,
    "when the choice is made": at_message("Selected: "),
}


@pytest.mark.parametrize("when", KILLS)
def test_a_run_that_is_killed_goes_on_to_the_same_choice_and_bits(when: str, tmp_path: Path) -> None:
    data, start = shades(tmp_path / "photos"), a_start(tmp_path / "start")
    asked: dict[str, Any] = {"source": start, "overrides": QUICK}
    whole = tune(data, tmp_path / "whole", **asked)
    run = tmp_path / "killed"
    with pytest.raises(Killed):
        tune(data, run, listener=killed_when(KILLS[when]), **asked)
    result = vitral.finetune(out=run, resume=True, listener=lambda event: None)
    assert result.choice == whole.choice
    assert contents(run) == contents(tmp_path / "whole")


def test_it_is_there_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, start, run = shades(tmp_path / "photos"), a_start(tmp_path / "start"), tmp_path / "run"
    asked: dict[str, Any] = {"source": start, "overrides": QUICK}
    whole = tune(data, tmp_path / "whole", **asked)

    def killed(*arguments: Any, **more: Any) -> None:  # noqa: ANN401
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(prepare, "measure", killed)
        with pytest.raises(Killed):
            tune(data, run, **asked)
    assert "in closed form" in vitral.load(run).provenance.training["method"]
    assert vitral.finetune(out=run, resume=True, listener=lambda event: None).choice == whole.choice
    assert contents(run) == contents(tmp_path / "whole")


def test_it_survives_a_training_that_fails(tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        tune(
            shades(tmp_path / "photos"),
            tmp_path / "run",
            overrides=(*QUICK, "optimizer.lr=1e30", "faults.max_skipped=0"),
        )
    assert vitral.load(tmp_path / "run").provenance.training["method"].startswith(PIXELS)


def test_without_validation_images_it_is_judged_by_images_left_out(tmp_path: Path) -> None:
    said: list[Event] = []
    result = tune(shades(tmp_path / "photos", 2), tmp_path / "run", listener=said.append)
    assert result.training.steps == 0
    assert result.choice is not None
    assert (result.choice.candidates[0].images, result.choice.candidates[0].split) == (4, "training")
    assert any(at_message("there are no validation photos")(event) for event in said)
    assert any(at_message("`recipe='scratch'` trains all the same")(event) for event in said)
    tune(tmp_path / "photos", tmp_path / "other", source=a_start(tmp_path / "start"), listener=said.append)
    assert any(at_message("`recipe='finetune'` trains all the same")(event) for event in said)
    said.clear()
    tune(tmp_path / "photos", tmp_path / "quick", quick=True, listener=said.append)
    assert not any(at_message("continues with training")(event) for event in said)
    assert any(at_message("`resume=True` would train nothing")(event) for event in said)


@pytest.mark.long
@every_case("start", [False, True])
def test_the_plan_expects_no_training_where_nothing_could_judge_it(start: bool, tmp_path: Path) -> None:
    source = a_start(tmp_path / "start") if start else None
    for images, trains in ((2, False), (20, True)):
        photos = shades(tmp_path / f"photos-{images}", images)
        plan = vitral.plan(photos, source=source, listener=lambda event: None)
        assert ("Speed:" in str(plan), "after training the better" in str(plan)) == (trains, trains)
        assert ("no validation photos" in str(plan)) != trains
        named = vitral.plan(photos, source=source, recipe="finetune", listener=lambda event: None)
        assert "Speed:" in str(named)


def test_a_score_of_few_training_images_leaves_all_of_them_to_learn_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shades(tmp_path / "photos", 2)
    for kind in range(60):
        for name in ("0", "1"):
            write(data / f"kind-{kind}" / f"{name}.png", np.full((SIZE, SIZE, 3), 4 * kind + int(name)))
    monkeypatch.setattr(measuring, "time_images", lambda *_: 4.0)  # so slow that a few are scored in a minute
    said: list[Event] = []
    result = tune(data, tmp_path / "run", time="1m", listener=said.append)
    assert result.choice is not None
    assert (result.choice.candidates[0].images, result.choice.candidates[0].split) == (124, "training")
    scored = result.evaluation.num_examples
    assert LEAST_SCORED <= scored < 124
    assert any(at_message(f"To keep `time`, at least {LEAST_SCORED} of 124 training photos")(event) for event in said)


def test_training_may_begin_with_the_probe_where_pixels_are_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinearModel, "better_than", lambda *_: False)
    data, start = shades(tmp_path / "photos"), a_start(tmp_path / "start")
    result = tune(data, tmp_path / "run", source=start)
    assert result.choice is not None
    assert result.choice.candidates[0].name == PIXELS
    probe = vitral.load(tmp_path / "run" / "first-probe")
    assert "linear probe, in closed form" in probe.provenance.training["method"]
    assert "its head began as the run's linear probe" in (tmp_path / "run" / "recipe.toml").read_text()


def test_equal_images_give_a_classifier_that_claims_nothing(tmp_path: Path) -> None:
    for name in ("one", "other"):
        for index in range(20):
            write(tmp_path / "photos" / name / f"{index}.png", np.full((SIZE, SIZE, 3), 90))
    result = tune(tmp_path / "photos", tmp_path / "run")
    assert result.choice is not None  # equal images all learn, so that none of them is validated on what it learned
    assert result.choice.candidates[0].figure <= 0.5
    assert result.classifier.predict(np.full((SIZE, SIZE, 3), 90, np.uint8))[0].probability == pytest.approx(
        0.5, abs=0.05
    )


def test_a_budget_too_short_for_training_delivers_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within_time, "STEP_DOUBT", 1e9)  # as if one update took so many times longer
    said: list[Event] = []
    data, run = shades(tmp_path / "photos"), tmp_path / "run"
    result = tune(data, run, time="20m", listener=said.append)
    assert result.training.steps == 0
    assert result.evaluation.headline() == 1.0
    assert any(at_message("all right already")(event) for event in said), "more time would not help"
    said.clear()
    equal = shades(tmp_path / "equal", apart=0)
    assert tune(equal, tmp_path / "guess", time="20m", listener=said.append).training.steps == 0
    assert any(at_message("no time is left for it")(event) for event in said)
    with pytest.raises(TrainingError, match="too short"):
        tune(data, tmp_path / "other", time="20m", recipe="scratch")  # which means training, and nothing else


@every_case("then", ("pixels of all", "features of fewer", "features of all"))
def test_what_is_made_anew_with_more_time_is_fitted_on_more(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that became busy since affords less than at the beginning."""
    data, start = stripes(tmp_path / "photos"), a_start(tmp_path / "start")
    monkeypatch.setattr(within_time, "STEP_DOUBT", 1e9)  # as if one update took so many times longer
    fitted_on: list[int] = []

    def some(run: Run, train: Source, *given: Any, **more: Any) -> candidates.Affordable:  # noqa: ANN401
        count = len(train) if fitted_on and "all" in then else len(train) // (3 if fitted_on else 2)
        fitted_on.append(count)
        network = len(fitted_on) == 1 or "features" in then
        return spread_over(train, count), Describer.of(run.classifier, network=network)

    monkeypatch.setattr(candidates, "affordable", some)
    result = tune(data, tmp_path / "run", source=start, time="20m")
    assert result.training.steps == 0
    assert result.choice is not None
    assert result.choice.best == PROBE
    (of_the_first, of_the_second), method = fitted_on, result.classifier.provenance.training["method"]
    assert f"on {of_the_second if then == 'features of all' else of_the_first} training images" in method


@pytest.mark.parametrize("quick", [False, True])
def test_where_there_is_no_time_for_anything_a_linear_model_on_pixels_is_delivered_and_said_to_be_late(
    tmp_path: Path, quick: bool
) -> None:
    said: list[Event] = []
    result = tune(shades(tmp_path / "photos"), tmp_path / "run", time="0.1s", quick=quick, listener=said.append)
    assert result.training.steps == 0
    assert result.choice is not None
    assert result.choice.best == PIXELS
    assert result.evaluation.headline() == 1.0
    assert any(at_message("leaves no time for anything")(event) for event in said)
    clock = replace(result.run.clock, started=result.run.clock.started - 60)  # as on a slower machine
    ended = replace(result, run=replace(result.run, clock=clock)).at_its_end()
    assert "`time`" in ended.late
    assert vitral.load(result.classifier_folder).class_names == ("dark", "light")


def test_what_trained_weights_see_stays_where_changed_data_leave_no_time_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, start, run = stripes(tmp_path / "photos"), a_start(tmp_path / "start"), tmp_path / "run"
    before = tune(data, run, source=start, quick=True)
    assert before.choice is not None
    assert before.choice.best == PROBE
    shutil.copy(data / "rows" / "0.png", data / "rows" / "further.png")
    monkeypatch.setattr(candidates, "affordable", lambda run, train, *_, **__: candidates.least(run, train))
    again = vitral.finetune(data, out=run, resume=True, quick=True, data_changed=True, listener=lambda event: None)
    assert again.choice is not None
    assert again.choice.best == PROBE
    image = data / "columns" / "0.png"
    assert vitral.load(run).predict(image)[0].probability == before.classifier.predict(image)[0].probability


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = str(shades(tmp_path / "photos")), str(tmp_path / "run")
    command = ["finetune", "--data", data, "--out", run, "--from", "vit-mu4", "--image-size", "16", "--quick"]
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["choice"]["kept"] == PIXELS
    assert "--resume" in told.err
    image = str(tmp_path / "photos" / "dark" / "0.png")
    assert main(["predict", image, "--classifier", run]) == 0
    assert "dark" in capsys.readouterr().out


def test_a_start_that_does_not_help_is_warned_of_before_training(tmp_path: Path) -> None:
    said: list[Event] = []
    start = a_start(tmp_path / "start")
    tune(shades(tmp_path / "photos", 60), tmp_path / "run", source=start, listener=said.append)
    warned = [event.text for event in said if isinstance(event, Message) and event.warning]
    assert any(line.startswith("These weights hardly help") for line in warned)

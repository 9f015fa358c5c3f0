"""An attempt with a network of its own, from scratch: trained as its recipe says, delivered, resumed, given up when behind."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vitral
from tests.training.candidates.attempts_run import contents, go_on, in_attempt, tune
from tests.training.candidates.material import SIZE, Killed, killed_when
from vitral.data.subset import spread_over
from vitral.events import Event, Message, ignore
from vitral.tasks.single_label import SingleLabel
from vitral.training.candidates import beside, first, trained
from vitral.training.candidates.result import PROBE, Candidate, Choice
from vitral.training.choose.decide import decide
from vitral.training.clock import Clock, Pacer, Reserve
from vitral.training.plan import ALL, FRESH, Attempt, Plan
from vitral.training.settings.recipe import load_recipe
from vitral.training.starting import prepare

pytestmark = pytest.mark.usefixtures("short")

NETWORK, SIDE = "vit-mu4", 32
SCRATCH = load_recipe(
    "scratch",
    [f"image_size={SIDE}", "steps=12", "batch_size=16", "workers=0", "precision=fp32", "checkpoint.every_steps=4"],
)


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan a network from scratch beside all weights, which hardly learn."""

    def planned(*given: Any) -> Plan:  # noqa: ANN401
        plan = decide(*given)
        fresh = Attempt(FRESH, SCRATCH, "a network learns from random weights", 0.8, network=NETWORK)
        rest = [replace(attempt, share=0.2) for attempt in plan.attempts if attempt.name == ALL]
        slow = [replace(each, recipe=each.recipe.with_changes({"optimizer.lr": 1e-9})) for each in rest]
        return replace(plan, attempts=(fresh, *slow)) if plan.attempts else plan

    monkeypatch.setattr(prepare, "decide", planned)


@pytest.mark.long
def test_it_is_a_network_of_its_own_prepared_as_it_learned(tmp_path: Path, data: Path, start: Path) -> None:
    run = tmp_path / "run"
    result = tune(data, run, start)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates[1:]] == [FRESH, ALL]
    own = run / "attempts" / "from-scratch"
    assert load_recipe(own / "recipe.toml").optimizer == SCRATCH.optimizer
    network = vitral.load(own)
    assert network.preprocessing.image_size == network.model.image_size == (SIDE, SIDE)
    assert vitral.load(run / "attempts" / "all-weights").model.image_size == (SIZE, SIZE)
    assert "random weights" in network.provenance.source
    figure = json.loads((own / "attempt.json").read_text())["figure"]
    assert vitral.evaluate(own, data, split="validation", listener=ignore).headline() == pytest.approx(figure)
    with pytest.raises(Killed):  # in the network's own training
        tune(data, tmp_path / "killed", start, listener=killed_when(in_attempt(1, 6)()))
    assert go_on(tmp_path / "killed").choice == result.choice
    assert contents(tmp_path / "killed") == contents(run)


def test_it_is_delivered_where_it_is_best(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained, "_candidate", lambda record, own=trained._candidate: better(own(record)))
    result = tune(data, tmp_path / "run", start)
    assert result.choice is not None
    assert result.choice.best == FRESH
    delivered = vitral.load(tmp_path / "run")
    assert delivered.model.image_size == delivered.preprocessing.image_size == (SIDE, SIDE)
    assert load_recipe(tmp_path / "run" / "recipe.toml").optimizer == SCRATCH.optimizer
    assert vitral.evaluate(delivered, data, listener=ignore).headline() == result.evaluation.headline()


def better(candidate: Any) -> Any:  # noqa: ANN401
    return replace(candidate, figure=1.0) if candidate.name == FRESH else candidate


def test_it_is_given_up_once_it_is_behind_and_the_others_go_on(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "is_behind", lambda *figures: True)
    said: list[Event] = []
    result = tune(data, tmp_path / "run", start, time=60.0, listener=said.append)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates[1:]] == [ALL]
    (line,) = [one for one in said if isinstance(one, Message) and one.text.startswith("From scratch: given up")]
    assert not line.warning
    assert "%" in line.text
    assert not (tmp_path / "run" / "attempts" / "from-scratch" / "classifier").exists()


def test_alone_it_is_given_up_too_and_the_first_classifier_made_anew_on_all_photos(
    tmp_path: Path, data: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "is_behind", lambda *figures: True)
    planned, fitted = vars(prepare)["decide"], list[int]()
    monkeypatch.setattr(prepare, "decide", lambda *given: alone(planned(*given)))
    monkeypatch.setattr(first, "affordable", half_at_first(first.affordable, fitted))
    said: list[Event] = []
    result = tune(data, tmp_path / "run", start, time=60.0, listener=said.append)
    assert result.choice is not None
    assert not result.choice.trained
    assert any(isinstance(one, Message) and "given up" in one.text for one in said)
    few, many = fitted
    assert few < many
    assert f"on {many} training images" in vitral.load(tmp_path / "run").provenance.training["method"]


def alone(plan: Plan) -> Plan:
    return plan.only(plan.attempts[0]) if plan.attempts else plan


def half_at_first(affordable: Any, fitted: list[int]) -> Any:  # noqa: ANN401
    def afforded(*given: Any, **others: Any) -> Any:  # noqa: ANN401
        images, describer = affordable(*given, **others)
        images = images if fitted else spread_over(images, len(images) // 2)
        fitted.append(len(images))
        return images, describer

    return afforded


def test_once_it_is_ahead_it_has_the_rest_of_the_time() -> None:
    now = 30.0
    whole = Pacer(Clock(100.0, 0.0, lambda: now), reserve=Reserve(fixed=9.0))
    pacer = Pacer(replace(whole.clock, seconds=80.0), reserve=Reserve(fixed=1.0))
    figures = {"top1": 0.75}
    probe = Choice((Candidate(PROBE, 0.7, 1000),), PROBE, SingleLabel.headline)
    heard: list[Event] = []
    network = vitral.create_model(NETWORK, num_classes=2)
    validate = beside.compared(lambda *_: figures, SingleLabel.headline, pacer, whole, lambda: probe)
    assert validate(network, heard.append, bool) == figures  # too early
    assert pacer.clock.left() == 50.0
    now = 50.0
    validate(network, heard.append, bool)
    assert (pacer.clock.left(), pacer.reserve.fixed) == (50.0, 9.0)
    now, figures["top1"] = 90.0, 0.1  # from now on nobody else has time
    validate(network, heard.append, bool)
    assert len(heard) == 1

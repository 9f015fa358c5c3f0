"""A plan is written before the first step and read again by the command that continues."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.training.choose.situations import LAPTOP, changed, planned
from vitral.errors import TrainingError
from vitral.paths import PLAN_FILE
from vitral.training.facts import Measured
from vitral.training.plan import TRAINED, ChosenStart, Plan, read_plan, write_plan

MEASURED = Measured(images_per_second=40.0, fixed_bytes=1 << 28, image_bytes=1 << 24, image_seconds=0.03)


def of_several() -> Plan:
    """Return the plan of a run from trained weights that tries four attempts, each of its values another than its default."""
    plan = planned(replace(LAPTOP, measured=MEASURED), source="start/", overrides=("seed=3",))
    chosen = ChosenStart("vit-s14@dinov2", ("Start: it.", "  It is in the cache."))
    return replace(plan, exactly=True, learned=True, chosen=chosen, why_none="no images")


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = of_several()
    assert len(plan.attempts) == 4
    assert read_plan(tmp_path) is None
    write_plan(tmp_path, plan)
    of_any_machine = replace(plan, image_seconds=None)
    assert plan.image_seconds == MEASURED.image_seconds
    assert read_plan(tmp_path) == of_any_machine
    written = json.loads((tmp_path / PLAN_FILE).read_text())
    assert written == of_any_machine.to_json()
    assert [attempt["recipe"]["image_size"] for attempt in written["attempts"]] == [224, 224, 224, 336]


def test_a_plan_of_what_nobody_measured_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = planned(overrides=("steps=7",))
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan
    assert (plan.attempts, plan.cost, plan.image_seconds) == ((), None, None)


def test_each_of_several_attempts_has_a_folder_of_its_own_in_small_letters(tmp_path: Path) -> None:
    plan = of_several()
    folders = [*plan.folders(tmp_path).values()]
    assert len({folder.name for folder in folders}) == len(plan.attempts)
    assert all(folder.name == folder.name.lower() and " " not in folder.name for folder in folders)


def cut(text: str) -> str:
    return text[: len(text) // 2]


def without_start(text: str) -> str:
    values: dict[str, Any] = json.loads(text)
    del values["start"]
    return json.dumps(values)


def with_impossible_rate(text: str) -> str:
    values: dict[str, Any] = json.loads(text)
    values["attempts"][0]["recipe"]["optimizer"]["lr"] = -1.0
    return json.dumps(values)


def of_another_version(text: str) -> str:
    values: dict[str, Any] = json.loads(text)
    values["recipe"]["optimizer"]["unheard_of"] = 1
    return json.dumps(values)


def without_speed(text: str) -> str:
    values: dict[str, Any] = json.loads(text)
    values["cost"]["images_per_second"] = 0.0
    return json.dumps(values)


def with_an_attempt_twice(text: str) -> str:
    values: dict[str, Any] = json.loads(text)
    values["attempts"][1]["name"] = values["attempts"][0]["name"]
    return json.dumps(values)


def without_length(text: str) -> str:
    values: dict[str, Any] = json.loads(text)
    values["attempts"][2]["recipe"]["steps"] = None
    return json.dumps(values)


DAMAGES = (
    cut,
    without_start,
    with_impossible_rate,
    of_another_version,
    without_speed,
    with_an_attempt_twice,
    without_length,
    lambda text: "",
    lambda text: "[" * 100_000,
)


@every_case("damage", DAMAGES)
def test_a_damaged_plan_is_refused_in_one_line(damage: Callable[[str], str], tmp_path: Path) -> None:
    write_plan(tmp_path, of_several())
    path = tmp_path / PLAN_FILE
    path.write_text(damage(path.read_text()))
    with pytest.raises(TrainingError) as refused:
        read_plan(tmp_path)
    message = str(refused.value)
    assert "\n" not in message
    assert str(path) in message
    assert "`overwrite=True`" in message
    assert len(message) < 300 + 2 * len(str(tmp_path))


def test_the_only_attempt_has_the_run_folder_and_each_of_several_its_own(tmp_path: Path) -> None:
    plan = of_several()
    folders = [*plan.folders(tmp_path).values()]
    assert len(set(folders)) == 4
    assert {folder.parent for folder in folders} == {tmp_path / "attempts"}
    single = plan.only(plan.attempts[1])
    (attempt,) = single.attempts
    assert (attempt.name, attempt.share, single.several) == (TRAINED, 1.0, False)
    assert attempt.recipe == plan.attempts[1].recipe
    assert [*single.folders(tmp_path).values()] == [tmp_path]


def test_a_folder_in_place_of_a_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).mkdir()
    with pytest.raises(TrainingError, match="cannot be read"):
        read_plan(tmp_path)


@every_case("time", [None, "10m"])
def test_shares_of_the_time_add_up_and_longer_runs_cost_more(time: str | None) -> None:
    plan = planned(replace(LAPTOP, measured=MEASURED), source="start/", time=time)
    assert sum(attempt.share for attempt in plan.attempts) == pytest.approx(1.0)
    slower = planned(changed(LAPTOP, measured=replace(MEASURED, images_per_second=39.0)), source="start/", time=time)
    assert plan.cost is not None
    assert slower.cost is not None
    assert slower.cost.seconds > plan.cost.seconds
    assert plan.step_seconds == pytest.approx(64 / 40.0)

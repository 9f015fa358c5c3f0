"""What a command that continues with a run is to do: the folder's request and plan, with what may change changed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from vitral.errors import PluginError, TrainingError
from vitral.images.augment import Augmentation
from vitral.training.plan import LAST, LORA, TRAINED, Attempt, Plan, write_plan
from vitral.training.records.checkpoints import State, save_checkpoint
from vitral.training.records.run_folder import begin, read_run, stored_request
from vitral.training.request import Request
from vitral.training.resume import continued, note_request, with_settings
from vitral.training.settings.recipe import Recipe, load_recipe

RECIPE = load_recipe("finetune").with_changes({"steps": 20, "epochs": None, "seed": 3})
PLAN = Plan("vit-mu16", "model", RECIPE, Augmentation(), (), (Attempt(TRAINED, RECIPE),))


def saved(folder: Path, step: int = 10) -> None:
    """Let an attempt have saved itself."""
    save_checkpoint(folder / "checkpoints", State(step, total_steps=20, seconds=5.0), {}, keep=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was stopped while it trained."""
    folder = tmp_path / "run"
    folder.mkdir()
    begin(folder, Request("fine-tune", data="digits", overrides=("workers=0", "optimizer.name=adamw")))
    write_plan(folder, PLAN)
    saved(folder)
    return folder


def asking(folder: Path, **given: Any) -> Request:  # noqa: ANN401
    """Return the request of a command that continues, which it notes in the folder."""
    known = continued(Request(given.pop("kind", "fine-tune"), out=folder, resume=True, **given))
    assert known.plan is not None
    write_plan(folder, known.plan)
    note_request(folder, known.plan, known.request, more_time=known.more_time, retry=known.retry)
    return known.request


def settings(request: Request) -> dict[str, str]:
    return dict(change.split("=") for change in request.overrides)


def test_what_a_later_command_changes_holds_for_those_after_it(run: Path) -> None:
    asking(run, overrides=("steps=30", "compute.checkpointing=true"))
    first = {"workers": "0", "optimizer.name": "adamw"}
    assert settings(asking(run)) == first | {"steps": "30", "compute.checkpointing": "true"}
    assert settings(asking(run, overrides=("steps=40", "workers=2"))) == settings(asking(run))
    assert settings(asking(run))["steps"] == "40"
    assert settings(asking(run, overrides=("workers=0",)))["workers"] == "0"  # as it was first
    stored = stored_request(run)
    assert stored is not None
    assert settings(stored)["workers"] == "0"


def test_a_plan_is_read_and_takes_only_what_may_change(run: Path) -> None:
    assert continued(Request("fine-tune", out=run, resume=True)).plan == PLAN
    longer = continued(Request("fine-tune", out=run, resume=True, overrides=("steps=30",))).plan
    assert longer is not None
    assert (longer.recipe.steps, longer.attempts[0].recipe.steps) == (30, 30)
    assert with_settings(PLAN, ("optimizer.lr=1", "batch_size=8")) == PLAN


SAME: list[dict[str, Any]] = [
    {"seed": 3},
    {"source": "vit-mu16"},
    {"overrides": ("optimizer.name=adamw",)},
    {"overrides": (f"batch_size={RECIPE.batch_size}",)},
    {"data": "digits", "image_size": None},
]
OTHERS: list[dict[str, Any]] = [
    {"seed": 4},
    {"source": "vit-ti16"},
    {"overrides": ("batch_size=7",)},
    {"recipe": "scratch"},
    {"classes": "top"},
    {"sweep": True},
    {"image_size": 48},
]


def test_what_the_plan_says_may_be_repeated_and_nothing_else(run: Path) -> None:
    for given in SAME:
        assert continued(Request("fine-tune", out=run, resume=True, **given)).plan == PLAN, given
    for given in OTHERS:
        with pytest.raises(TrainingError, match="cannot continue with"):
            continued(Request("fine-tune", out=run, resume=True, **given))


def test_a_recipe_that_is_named_again_must_be_the_plans(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(RECIPE.to_toml())
    assert continued(Request("fine-tune", out=run, resume=True, recipe=str(path))).plan == PLAN
    path.write_text(RECIPE.with_changes({"optimizer.lr": 0.5}).to_toml())
    with pytest.raises(TrainingError, match="cannot continue with"):
        continued(Request("fine-tune", out=run, resume=True, recipe=str(path)))


def test_until_training_began_what_is_new_is_planned_anew(tmp_path: Path) -> None:
    begin(tmp_path, Request("fine-tune", data="digits"))
    write_plan(tmp_path, PLAN)
    again = Request("fine-tune", out=tmp_path, resume=True)
    assert continued(again).plan == PLAN
    for given in ({"time": "60s"}, {"overrides": ("steps=9",)}, {"data_changed": True}):
        assert continued(replace(again, **given)).plan is None, given
    write_plan(tmp_path, replace(PLAN, attempts=()))  # as of a quick run
    assert continued(again).plan is None
    write_plan(tmp_path, PLAN)
    (tmp_path / "recipe.toml").write_text(RECIPE.to_toml())  # it was killed before its first checkpoint
    assert continued(replace(again, time="60s")).plan == PLAN
    assert continued(replace(again, data_changed=True)).plan == PLAN
    longer = continued(replace(again, overrides=("steps=9",))).plan
    assert longer is not None
    assert longer.recipe.steps == 9


def test_several_attempts_of_which_the_first_was_killed_at_once_are_continued(tmp_path: Path) -> None:
    begin(tmp_path, Request("fine-tune", data="digits"))
    plan = replace(PLAN, attempts=(Attempt(LAST, RECIPE, share=0.4), Attempt(LORA, RECIPE, share=0.6)))
    write_plan(tmp_path, plan)
    again = Request("fine-tune", out=tmp_path, resume=True, time="60s")
    assert continued(again).plan is None
    folder = plan.folders(tmp_path)[LAST]
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE.to_toml())
    assert continued(again).plan == plan


def test_a_setting_in_a_table_holds_like_one_with_a_dot(run: Path) -> None:
    plan = continued(Request("fine-tune", out=run, resume=True, overrides=("checkpoint={keep=7}",))).plan
    assert plan is not None
    assert plan.attempts[0].recipe.checkpoint.keep == 7


def test_what_a_run_that_lost_its_request_is_given_holds_or_is_refused(run: Path) -> None:
    (run / "run.json").write_text("{")
    again = Request("fine-tune", out=run, resume=True, data="digits")
    with pytest.raises(TrainingError, match="cannot continue with"):
        continued(replace(again, overrides=("optimizer.lr=0.5",)))
    known = continued(replace(again, overrides=("steps=40",)))
    assert known.plan is not None
    assert (known.plan.attempts[0].recipe.steps, known.retry) == (40, True)
    (run / "plan.json").unlink()
    (run / "recipe.toml").write_text(RECIPE.to_toml())
    with pytest.raises(TrainingError, match=r"no plan\.json"):
        continued(again)


def test_the_time_given_last_counts_from_where_it_was_given(run: Path) -> None:
    """A run of 100 s that continued with 60 s more, and was killed 20 s later, has 40 s left."""
    begin(run, Request("fine-tune", data="digits", time=100.0))
    again = Request("fine-tune", out=run, resume=True)

    def stand(seconds: float, *, step: int = 10, **more: Any) -> None:  # noqa: ANN401
        state = State(step, total_steps=20, seconds=seconds, **more)
        save_checkpoint(run / "checkpoints", state, {}, keep=2)

    def left() -> tuple[int | None, bool]:
        known = continued(again)
        return None if known.seconds is None else round(known.seconds), known.more_time

    stand(90.0)
    assert left() == (10, False)
    asking(run, time=60.0)
    assert left() == (60, True)  # nothing of it was used
    stand(110.0, step=12)
    assert left() == (40, False)
    stand(120.0, step=13, bend_step=13)  # a budget has shortened the run, and that length holds
    assert left() == (None, False)
    stand(120.0, step=20)  # it is finished
    assert left() == (None, False)


def test_several_attempts_are_not_continued_without_what_they_are_compared_with(run: Path) -> None:
    write_plan(run, replace(PLAN, attempts=(Attempt(LAST, RECIPE, share=0.4), Attempt(LORA, RECIPE, share=0.6))))
    with pytest.raises(TrainingError, match="continue it without `baselines=False`"):
        continued(Request("fine-tune", out=run, resume=True, baselines=False))


def test_a_run_of_another_kind_version_or_plugin_is_refused_in_one_line(run: Path) -> None:
    with pytest.raises(TrainingError, match="continue it by that command"):
        continued(Request("pre-train", out=run, resume=True))
    (run / "plan.json").unlink()
    (run / "recipe.toml").write_text(RECIPE.to_toml())
    with pytest.raises(TrainingError, match=r"no plan\.json"):
        continued(Request("fine-tune", out=run, resume=True))
    (run / "plan.json").write_text('{"start": 5}')
    with pytest.raises(TrainingError, match="cannot be read") as refused:
        continued(Request("fine-tune", out=run, resume=True))
    assert "\n" not in str(refused.value)
    write_plan(run, PLAN)
    description = read_run(run)
    description["request"]["plugins"] = ["mine.py"]
    (run / "run.json").write_text(json.dumps(description))
    with pytest.raises(PluginError, match=r"mine\.py"):
        continued(Request("fine-tune", out=run, resume=True))


def test_paths_are_those_of_where_the_command_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "photos").mkdir(parents=True)
    begin(tmp_path, Request("fine-tune", data="photos", source="digits", where=str(tmp_path / "here")))
    monkeypatch.chdir(tmp_path)
    request = continued(Request("fine-tune", out=tmp_path, resume=True)).request
    assert (request.data, request.source) == (str(tmp_path / "here" / "photos"), "digits")


def test_trained_weights_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "start").mkdir(parents=True)
    folder = tmp_path / "run"
    folder.mkdir()
    begin(folder, Request("fine-tune", data="digits", source="start", where=str(tmp_path / "here")))
    write_plan(folder, replace(PLAN, start="start", origin="weights"))
    saved(folder)
    monkeypatch.chdir(tmp_path)
    known = continued(Request("fine-tune", out=folder, resume=True))
    assert known.plan is not None
    assert known.plan.start == known.request.source == str(tmp_path / "here" / "start")


def test_the_recipe_of_a_plan_is_a_recipe(run: Path) -> None:
    plan = continued(Request("fine-tune", out=run, resume=True)).plan
    assert plan is not None
    assert isinstance(plan.recipe, Recipe)
    assert plan.recipe.to_toml() == RECIPE.to_toml()


@every_case("text", ["", "{", "[]", "[" * 100_000, '{"request": 5}', '{"request": {"kind": ["x"]}}'])
def test_a_damaged_description_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert stored_request(tmp_path) is None


def test_a_recipes_file_is_that_of_the_folder_where_it_was_named(tmp_path: Path) -> None:
    there, folder = tmp_path / "there", tmp_path / "run"
    there.mkdir()
    folder.mkdir()
    (there / "own.toml").write_text(RECIPE.to_toml())
    begin(folder, Request("fine-tune", data="digits", recipe="own.toml", where=str(there)))
    write_plan(folder, PLAN)
    saved(folder)
    assert continued(Request("fine-tune", out=folder, resume=True)).request.recipe == str(there / "own.toml")


def test_a_folder_whose_request_is_lost_has_the_time_of_the_command(tmp_path: Path) -> None:
    known = continued(Request("fine-tune", out=tmp_path, time="60s"))
    assert (known.plan, known.seconds, known.more_time) == (None, 60.0, True)
    untimed = continued(Request("fine-tune", out=tmp_path))
    assert (untimed.plan, untimed.seconds, untimed.more_time) == (None, None, False)

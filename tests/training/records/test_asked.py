"""What is asked of a run that goes on: what was asked first, as later commands changed it, and nothing else."""

import json
from pathlib import Path

import pytest

from vitral.errors import TrainingError
from vitral.training.request import Request
from vitral.training.records.run_file import ATTEMPTS_SAID, ask_again, begin, go_on, read_run, said_anew


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that tries several ways to learn."""
    begin(tmp_path, Request("fine-tune", data="digits", overrides=("workers=0", "optimizer.name=adamw")))
    (tmp_path / "run.json").write_text(json.dumps(read_run(tmp_path) | {ATTEMPTS_SAID: []}))
    return tmp_path


def asking(run: Path, *overrides: str) -> Request:
    """Return what a command asks that goes on, and note it as the command does."""
    asked = go_on(run, Request("fine-tune", overrides=overrides))
    ask_again(run, budget_seconds=None, overrides=asked.overrides, trained=0.0)
    return asked


def settings(asked: Request) -> dict[str, str]:
    """Return what holds: of a setting the last."""
    return dict(change.split("=") for change in asked.overrides)


def test_what_a_later_command_said_holds_for_those_after_it(run: Path) -> None:
    asking(run, "steps=30", "compute.checkpointing=true")
    begun = {"workers": "0", "optimizer.name": "adamw"}
    assert settings(asking(run)) == begun | {"steps": "30", "compute.checkpointing": "true"}
    assert settings(asking(run, "steps=40", "workers=2")) == settings(asking(run))
    assert settings(asking(run))["steps"] == "40"
    assert settings(asking(run, "workers=0"))["workers"] == "0"  # as it was first
    assert settings(asking(run))["workers"] == "0"


def test_what_may_not_change_stays_what_it_was_whatever_the_record_of_later_commands_says(run: Path) -> None:
    ask_again(run, budget_seconds=None, overrides=("optimizer.name=sgd", "batch_size=8", "steps=30"), trained=0.0)
    assert settings(go_on(run, Request("fine-tune"))) == {"workers": "0", "optimizer.name": "adamw", "steps": "30"}
    with pytest.raises(TrainingError, match="did not begin with `overrides=\\['batch_size=8'\\]`"):
        go_on(run, Request("fine-tune", overrides=("batch_size=8",)))


def test_a_settled_recipe_takes_only_what_is_said_anew(tmp_path: Path) -> None:
    begin(tmp_path, Request("fine-tune", data="digits", overrides=("workers=0",)))
    (tmp_path / "recipe.toml").write_text("")
    asking(tmp_path, "steps=30")
    assert asking(tmp_path).overrides == ()
    asked = go_on(tmp_path, Request("fine-tune", overrides=("workers=2",)))
    assert said_anew(tmp_path, asked) == {"workers"}


def test_what_a_command_says_itself_is_told_from_what_held_before(run: Path) -> None:
    for overrides, keys in (((), set()), (("steps=30",), {"steps"}), ((), set()), (("steps=30",), {"steps"})):
        assert said_anew(run, go_on(run, Request("fine-tune", overrides=overrides))) == keys
        asking(run, *overrides)
    assert said_anew(run / "none", Request("fine-tune", overrides=("workers=0",))) == {"workers"}


def test_attempts_are_not_gone_on_with_without_what_they_are_compared_with(run: Path) -> None:
    with pytest.raises(TrainingError, match="go on with it without `baselines=False`"):
        go_on(run, Request("fine-tune", baselines=False))

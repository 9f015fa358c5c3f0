"""Every look at a run's test split is in its run.json, and is said where somebody chooses by it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import vitral
from tests.cli.conftest import Refused, home, refused, there
from vitral.cli.main import main
from vitral.events import Event, Message, ignore

__all__ = ["Refused", "home", "refused", "there"]


@pytest.fixture
def run(there: Path, tmp_path: Path) -> Path:
    shutil.copytree("runs/photos", tmp_path / "run")
    return tmp_path / "run"


def looks(run: Path) -> list[dict[str, Any]]:
    opened: list[dict[str, Any]] = json.loads((run / "run.json").read_text())["test_opened"]
    return opened


def test_training_opens_the_test_split_once(run: Path) -> None:
    (look,) = looks(run)
    assert look["by"] == "fine-tune"
    assert look["split"] == "test"
    assert look["images"] == 3
    assert "1 time<" in (run / "report.html").read_text()


def test_every_command_that_uses_it_is_logged_and_who_chooses_by_it_hears_how_often(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((run / "run.json").read_text())
    name = str(run)
    for command in (
        ["evaluate", "--data", "photos", "--classifier", name],
        ["compare", name, "runs/photos", "--data", "photos"],
        ["calibrate", "--data", "photos", "--classifier", name],
        ["evaluate", "--data", "photos", "--classifier", name, "--frozen", "knn"],
        ["evaluate", "--data", "photos", "--classifier", name, "--report", str(tmp_path / "scores.html")],
    ):
        assert main(command) == 0
        assert ("3 times" in capsys.readouterr().err) == (command[0] == "compare")
    by = ["fine-tune", "evaluate", "compare", "calibrate", "score_frozen", "evaluate"]
    assert [look["by"] for look in looks(run)] == by
    assert "<td>6 times</td>" in (tmp_path / "scores.html").read_text()
    after = json.loads((run / "run.json").read_text())
    assert {key: value for key, value in after.items() if key != "test_opened"} == {
        key: value for key, value in before.items() if key != "test_opened"
    }


def test_the_command_is_what_was_typed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/lib/python3/vitral/__main__.py", "evaluate", "--data", "my photos"])
    vitral.evaluate(run, "photos", listener=ignore)
    assert looks(run)[-1]["command"] == "vitral evaluate --data 'my photos'"


def test_other_splits_and_other_data_are_no_look_at_it(run: Path, there: Path) -> None:
    heard: list[Event] = []
    before = len(looks(run))
    vitral.evaluate(run, "photos", split="validation", listener=heard.append)
    assert len(looks(run)) == before
    vitral.evaluate(run, there / "photos", listener=ignore)
    assert len(looks(run)) == before + 1
    shutil.copytree("photos", run / "other", ignore=shutil.ignore_patterns("1*.jpg"))
    shutil.move(run / "other", run.parent / "other")
    vitral.evaluate(run, run.parent / "other", listener=heard.append)
    assert looks(run)[-1]["data"] == "other"
    assert not any(isinstance(event, Message) and " times" in event.text for event in heard)


def test_a_run_that_cannot_be_written_is_scored_all_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.errors import StorageError
    from vitral.evaluation import opening as module

    def full(*_: object) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(module, "write_file", full)
    heard: list[Event] = []
    assert vitral.evaluate(run, "photos", listener=heard.append).num_examples == 3
    assert any(isinstance(event, Message) and event.warning and "could not be logged" in event.text for event in heard)


def test_training_photos_are_known_by_their_content_wherever_they_lie(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("photos", tmp_path / "moved")
    for number, photo in enumerate(sorted(Path("photos").rglob("*.jpg")) or sorted(Path("photos").rglob("*.png"))):
        (tmp_path / "renamed" / photo.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, tmp_path / "renamed" / photo.parent.name / f"{number}{photo.suffix}")
    scored = {}
    for name in ("moved", "renamed"):
        assert main(["evaluate", str(run), str(tmp_path / name), "--json"]) == 0
        printed = capsys.readouterr()
        scored[name] = json.loads(printed.out)["num_examples"], "30 of 36 photos" in printed.err
    assert scored == {"moved": (3, False), "renamed": (36, True)}

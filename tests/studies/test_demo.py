"""The demo: its page is drawn from what the runs left, it continues after an interruption, and is replaced once finished."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vitral.errors import StorageError
from vitral.events import Event, Progress, ignore
from vitral.studies import demo as module
from vitral.studies.demo import DESIGN, demo
from vitral.studies.trainings import Training


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's own runs, of three steps each and two seeds, without simple classifiers beside them."""
    quick = ("steps=3", "batch_size=8", "workers=0", "schedule.warmup_steps=1", "evaluation.every_steps=3")
    arms = []
    for arm in DESIGN.arms:
        assert isinstance(arm.work, Training)
        asked = replace(arm.work.request, overrides=quick, baselines=False)
        arms.append(replace(arm, work=Training(asked), seeds=arm.seeds[:2]))
    monkeypatch.setattr(module, "DESIGN", replace(DESIGN, arms=tuple(arms)))


@pytest.mark.long
def test_an_interrupted_demo_goes_on_and_a_finished_one_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "demo"

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "scratch-0":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo(out, listener=interrupt)
    tuned = (out / "finetune-1" / "classifier" / "weights.safetensors").stat()
    result = demo(out, command="make it again", listener=ignore)
    assert (out / "finetune-1" / "classifier" / "weights.safetensors").stat().st_mtime_ns == tuned.st_mtime_ns
    assert [arm.name for arm in result.arms] == ["pre-trained, then fine-tuned", "from scratch"]
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert result.arms[1].values("top1") == tuple(row["figures"]["top1"] for row in rows if row["arm"] == "scratch")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "make it again" in page
    assert "2 seeds each, scored on the 359 test digits" in page
    assert page.count("Training images of ") >= 2
    assert json.loads((out / "demo.json").read_text())["classifier"] == str(out / "finetune-0" / "classifier")
    assert (out / "study.html").is_file()
    again = demo(out, listener=ignore)
    assert again.arms == result.arms
    assert (out / "finetune-1" / "classifier" / "weights.safetensors").stat().st_mtime_ns != tuned.st_mtime_ns


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"mine\.txt"):
        demo(tmp_path, listener=ignore)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

"""Logs are never a reason to lose a classifier: what is lost or damaged of them is fixed or passed over, with a word."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import Fork, script
from tests.training.conftest import Run
from vitral.errors import StorageError, TrainingError
from vitral.events import Event, Message
from vitral.training.records.checkpoints import TENSORS, checkpoints, load_newest, newest_state
from vitral.training.records.logs import MetricsLog, read_metrics


def stopped_at_20(run: Run) -> None:
    """Leave a run of 30 steps as a kill after its second checkpoint does."""
    run.train()
    shutil.rmtree(run.folder / "checkpoints" / "step-00000030")
    log = run.folder / "metrics.jsonl"
    log.write_bytes(b"".join(line for line in log.read_bytes().splitlines(True) if json.loads(line)["step"] <= 20))


def lost(log: Path) -> None:
    log.unlink()


def emptied(log: Path) -> None:
    log.write_bytes(b"")


def cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-30])


def scribbled(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[5:90] = bytes(85)
    log.write_bytes(content)


def nested(log: Path) -> None:
    log.write_bytes(b"[" * log.stat().st_size)


@pytest.mark.parametrize("damage", [lost, emptied, cut, scribbled, nested])
def test_a_damaged_log_is_mended_and_the_run_goes_on(run: Run, other_run: Run, damage: Callable[[Path], None]) -> None:
    other_run.train()
    stopped_at_20(run)
    damage(run.folder / "metrics.jsonl")
    said: list[Event] = []
    run.train(resume=True, listener=said.append)
    assert run.bits()["tensors"] == other_run.bits()["tensors"]
    assert any(isinstance(event, Message) and "bytes of it are lost" in event.text for event in said)
    content = (run.folder / "metrics.jsonl").read_bytes()
    assert b"\0" not in content
    whole = [json.loads(line) for line in content.splitlines()]
    expected = read_metrics(other_run.folder)
    assert [row for row in expected if row["step"] > 20] == [row for row in whole if row["step"] > 20]
    assert all(row in expected for row in whole)


def test_no_tensorboard_is_no_reason_to_stop(run: Run) -> None:
    run.folder.mkdir()
    (run.folder / "tensorboard").write_text("mine")
    said: list[Event] = []
    assert run.train(listener=said.append)[1].steps == 30
    assert any(isinstance(event, Message) and "No log for TensorBoard" in event.text for event in said)


def test_what_is_no_checkpoint_is_passed_over(run: Run, other_run: Run) -> None:
    other_run.train()
    stopped_at_20(run)
    folder = run.folder / "checkpoints"
    for stray in ("step-notes", "step-00000099-copy", "notes"):
        (folder / stray).mkdir()
    (folder / "step-00000030").write_text("mine")
    (folder / "last").unlink()
    (folder / "last").mkdir()
    run.train(resume=True)
    one, other = (checkpoints(each.folder / "checkpoints")[-1] / TENSORS for each in (run, other_run))
    assert one.read_bytes() == other.read_bytes()
    assert (folder / "step-00000030.stray").read_text() == "mine"
    assert {"step-notes", "step-00000099-copy", "notes"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "change",
    [{"step": {"a": 1}}, {"step": "20"}, {"skipped": [[1]]}, {"log_bytes": "9"}, {"files": [1]}, {"parts": {"a": 1}}],
)
def test_a_state_of_another_form_is_damage(run: Run, change: dict[str, object]) -> None:
    run.train(steps=20)
    path = run.folder / "checkpoints" / "step-00000020" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    said: list[Event] = []
    newest = load_newest(run.folder / "checkpoints", said.append)
    assert newest is not None
    assert newest.state.step == 15  # the best, which is the one before
    path.write_text("[" * 100_000)
    assert load_newest(run.folder / "checkpoints", said.append) is not None
    found = newest_state(run.folder / "checkpoints")
    assert found is not None
    assert found.step == 15


def test_a_checkpoint_that_may_not_be_read_is_not_gone_back_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.train(steps=20)
    read = Path.read_text

    def refuse(path: Path, *arguments: str, **how: str) -> str:
        if "step-00000020" in str(path):
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **how)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(StorageError, match="no permission"):
        load_newest(checkpoints(run.folder / "checkpoints")[0].parent, lambda event: None)


LOSES_A_WORKER = """
import multiprocessing, os, signal, sys
from vitral.data.generated import open_digits
from vitral.data.loader import TrainingBatches, load_training
from vitral.errors import DataError

data = open_digits()
batches = TrainingBatches(
    data.splits["train"], batch_size=16, image_size=(8, 8), augmentation=data.augmentation, seed=0
)
try:
    for step, _ in enumerate(load_training(batches, first_step=0, last_step=100_000, workers=1)):
        if step == 2:
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)
except DataError as error:
    print(error)
"""


def test_a_killed_worker_is_one_line() -> None:
    done = Fork(script, LOSES_A_WORKER).ended()
    assert (done.returncode, done.stderr) == (0, "")
    assert "was killed" in done.stdout
    assert "`overrides=['workers=0']`" in done.stdout
    assert done.stdout.count("\n") == 1


def test_another_recipe_is_still_refused(run: Run) -> None:
    run.train()
    with pytest.raises(TrainingError, match="another 'seed'"):
        run.train(resume=True, seed=4)


def test_tensorboards_files_may_be_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own thread, too, ends without a traceback, and the hook is as it was once the log is closed."""
    unhandled: list[object] = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    before, said = threading.excepthook, list[Event]()
    log = MetricsLog(tmp_path, length=0, first_step=0, listener=said.append)
    log.write(1, {"loss": 1.0})
    log.flush()
    shutil.rmtree(tmp_path / "tensorboard")
    log._board._get_file_writer().event_writer._async_writer._worker._next_flush_time = 0
    for step in range(2, 8):
        log.write(step, {"loss": 1.0})
        log.flush()
    log.close()
    assert [isinstance(event, Message) and "No log for TensorBoard" in event.text for event in said] == [True]
    assert len(read_metrics(tmp_path)) == 7
    assert not unhandled
    assert threading.excepthook == before


def test_what_is_logged_can_be_read_at_once(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, length=0, first_step=0)
    log.write(7, {"train/loss": 0.5})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 7, "train/loss": 0.5}
    log.close()

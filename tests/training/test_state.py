"""A damaged checkpoint is recognised, and the one before it is used (R4)."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import Record
from vitral.errors import StorageError, TrainingError
from vitral.events import Event, Message
from vitral.training.optimization.state import Piece
from vitral.training.records import checkpoints as state_module
from vitral.training.records.checkpoints import (
    STATE,
    TENSORS,
    State,
    Writer,
    checkpoints,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)
from vitral.training.settings.sections import CheckpointSettings

OLD, NEW = {"weight": Piece(torch.arange(1000.0))}, {"weight": Piece(torch.arange(1000.0) + 1)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path, State(step=1, total_steps=9), OLD, keep=3)
    save_checkpoint(tmp_path, State(step=2, total_steps=9), NEW, keep=3)
    return tmp_path


def damage(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        del data[int(rng.integers(0, len(data))) :]
    else:
        place = int(rng.integers(0, len(data)))
        data[place] ^= 1 << int(rng.integers(0, 8))
    path.write_bytes(bytes(data))


def check_damage(folder: Path, case: int) -> None:
    rng = np.random.default_rng(case)
    victim = checkpoints(folder)[-1]
    pristine = folder.parent / f"pristine-{case}"
    shutil.copytree(victim, pristine)
    name = TENSORS if rng.random() < 0.7 else STATE
    damage(victim / name, rng)
    heard: list[Event] = []
    loaded = load_newest(folder, heard.append)
    assert loaded is not None
    state, tensors = loaded.state, {name: loaded.tensor(name) for name in loaded.parts}
    texts = [event.text for event in heard if isinstance(event, Message) and event.warning]
    if state.step == 2:  # a flipped bit of state.json that means nothing, such as one in white space
        assert name == STATE
        assert torch.equal(tensors["weight"], NEW["weight"].tensor)
    else:
        assert torch.equal(tensors["weight"], OLD["weight"].tensor)
        assert "step-00000002" in texts[0]
        assert "step-00000001" in texts[1]
    shutil.rmtree(victim)
    shutil.move(pristine, victim)


@pytest.mark.requirement(id="R4")
def test_damage_is_recognised(folder: Path) -> None:
    for case in range(20):
        check_damage(folder, case)


@pytest.mark.requirement(id="R4")
@pytest.mark.slow
def test_damage_is_recognised_200_times(folder: Path, record_counts: Record) -> None:
    for case in range(1000, 1200):
        check_damage(folder, case)
    record_counts("R4", {"damaged": 200, "recognised": 200})


def test_nothing_whole_is_an_error(folder: Path) -> None:
    for path in checkpoints(folder):
        (path / TENSORS).write_bytes(b"")
    with pytest.raises(TrainingError, match="None of the 2 checkpoints"):
        load_newest(folder, lambda event: None)


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in range(1, 7):
        save_checkpoint(tmp_path, State(step=step, total_steps=9, best_step=min(step, 2)), OLD, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == [f"step-{step:08d}" for step in (2, 5, 6)]


def test_what_a_killed_save_left_is_cleared_away(folder: Path) -> None:
    (folder / ".vitral-partial-step-00000003-x").mkdir()
    assert load_newest(folder, lambda event: None) is not None
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_every_so_many_are_archived(tmp_path: Path) -> None:
    for step in range(1, 10):
        save_checkpoint(tmp_path, State(step=step, total_steps=9, best_step=1), OLD, keep=2, archive_steps=3)
    assert [int(path.name[-8:]) for path in checkpoints(tmp_path)] == [1, 3, 6, 8, 9]
    assert (tmp_path / "last").resolve().name == "step-00000009"
    assert (tmp_path / "best").resolve().name == "step-00000001"


def test_large_tensors_go_into_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "FILE_BYTES", 5000)
    tensors = {f"t{number}": torch.full((1000,), float(number)) for number in range(5)}
    pieces = {name: Piece(tensor) for name, tensor in tensors.items()}
    path = save_checkpoint(tmp_path, State(step=1, total_steps=1), pieces, keep=2)
    assert len(list(path.glob("*.safetensors"))) == 5
    loaded = load_checkpoint(path)
    assert all(torch.equal(loaded.tensor(name), tensor) for name, tensor in tensors.items())
    (path / "tensors-00000-00003.safetensors").unlink()
    with pytest.raises(TrainingError, match="damaged"):
        load_checkpoint(path)


def test_an_error_in_the_background_reaches_the_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    writer = Writer(blocked / "checkpoints", CheckpointSettings(), shared=False)
    writer.save(State(step=1, total_steps=2), OLD)
    with pytest.raises(StorageError, match="Cannot write"):
        writer.wait()


def test_a_checkpoint_is_written_beside_the_training(tmp_path: Path) -> None:
    tensor = torch.zeros(1000)
    writer = Writer(tmp_path, CheckpointSettings(), shared=False)
    for step in (1, 2, 3):
        writer.save(State(step=step, total_steps=3), {"weight": Piece(tensor + step)})
    writer.wait()
    assert torch.equal(load_checkpoint(checkpoints(tmp_path)[-1]).tensor("weight"), tensor + 3)

"""A damaged checkpoint is recognised, and the one before it is used (R4)."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from vitral.errors import TrainingError
from vitral.events import Event, Message
from vitral.training.state import STATE, TENSORS, State, checkpoints, load_newest, save_checkpoint

OLD, NEW = {"weight": torch.arange(1000.0)}, {"weight": torch.arange(1000.0) + 1}


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
    state, tensors = loaded
    texts = [event.text for event in heard if isinstance(event, Message) and event.warning]
    if state.step == 2:  # a flipped bit of state.json that means nothing, such as one in white space
        assert name == STATE
        assert torch.equal(tensors["weight"], NEW["weight"])
    else:
        assert torch.equal(tensors["weight"], OLD["weight"])
        assert "step-00000002" in texts[0]
        assert "step-00000001" in texts[1]
    shutil.rmtree(victim)
    shutil.move(pristine, victim)


def test_damage_is_recognised(folder: Path) -> None:
    for case in range(20):
        check_damage(folder, case)


@pytest.mark.slow
def test_damage_is_recognised_200_times(folder: Path) -> None:
    for case in range(1000, 1200):
        check_damage(folder, case)


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

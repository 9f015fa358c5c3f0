"""Every input and output of one save failed, and cut off, in turn: what loads after is the old state or the new (R2, R10)."""

import builtins
import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.conftest import Record
from tests.processes.power_loss import Durable
from vitral.errors import StorageError
from vitral.training.optimization.state import Piece
from vitral.training.records.checkpoints import State, load_newest, save_checkpoint
from vitral.weights import containers

OLD, NEW = {"weight": Piece(torch.zeros(256))}, {"weight": Piece(torch.ones(256))}
CALLS: list[tuple[Any, str]] = [
    (os, name) for name in ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "chmod", "symlink")
]


class PowerCut(BaseException):
    """The process is gone: no handler may run, and the disk stays as it is."""


class Failing:
    """Counts calls that touch the disk, and fails the one with a given number."""

    def __init__(self, number: int, failure: Callable[[], BaseException]) -> None:
        self.number, self.failure, self.calls, self.dead = number, failure, 0, False

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if self.dead:  # what a dead process would do in its handlers never happens
                raise PowerCut
            self.calls += 1
            if self.calls == self.number:
                error = self.failure()
                self.dead = isinstance(error, PowerCut)
                raise error
            return call(*arguments, **options)

        return counted


@contextmanager
def failing(number: int, failure: Callable[[], BaseException]) -> Iterator[Failing]:
    shim = Failing(number, failure)
    patches = [*CALLS, (builtins, "open"), (containers, "save_file"), (safetensors.torch, "save_file")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in patches]
    for owner, name, call in kept:
        setattr(owner, name, shim.wrap(call))
    try:
        yield shim
    finally:
        for owner, name, call in kept:
            setattr(owner, name, call)


def save(folder: Path, *, new: bool) -> None:
    state = State(step=2 if new else 1, total_steps=9)
    save_checkpoint(folder, state, NEW if new else OLD, keep=1)


def check_every_call(tmp_path: Path, failure: Callable[[], BaseException]) -> int:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        save(folder, new=False)
        with failing(number, failure) as shim, contextlib.suppress(StorageError, PowerCut):
            save(folder, new=True)
        loaded = load_newest(folder, lambda event: None)
        assert loaded is not None
        state = loaded.state
        assert torch.equal(loaded.tensor("weight"), (OLD if state.step == 1 else NEW)["weight"].tensor)
        assert list(folder.glob(".vitral-partial-*")) == []
        if shim.calls < number:
            assert state.step == 2
            return number - 1
        shutil.rmtree(folder)


@pytest.mark.requirement(id="R2")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_an_error_at_every_call(tmp_path: Path, code: int, record_counts: Record) -> None:
    points = check_every_call(tmp_path, lambda: OSError(code, os.strerror(code)))
    assert points > 8
    record_counts(f"R2-{errno.errorcode[code]}", {"points": points, "whole": points})


@pytest.mark.requirement(id="R2")
@pytest.mark.parametrize("names", [False, True], ids=["contents", "contents and names"])
@pytest.mark.parametrize("first", [False, True], ids=["second save", "first save"])
def test_a_power_cut_that_loses_all_that_was_not_flushed(
    tmp_path: Path, names: bool, first: bool, record_counts: Record
) -> None:
    number = 0
    while True:
        number += 1
        disk, after = tmp_path / f"{number}", tmp_path / f"{number}-after"
        disk.mkdir()
        durable = Durable(disk)
        run = disk / "run" / "checkpoints"
        with durable.watching():
            if not first:
                save(run, new=False)
            with failing(number, PowerCut) as shim, contextlib.suppress(PowerCut):
                save(run, new=True)
        durable.after_the_cut(after, names=names)
        loaded = load_newest(after / "run" / "checkpoints", lambda event: None)
        whole = shim.calls < number
        assert loaded is not None or (first and not whole)
        if loaded is not None:
            assert loaded.state.step == 2 if whole else loaded.state.step in (1, 2)
            assert torch.equal(loaded.tensor("weight"), (OLD if loaded.state.step == 1 else NEW)["weight"].tensor)
        if whole:
            break
        shutil.rmtree(disk)
        shutil.rmtree(after)
    assert number > 8
    record_counts(f"R2-unflushed-{'first' if first else 'second'}-{names}", {"points": number - 1, "whole": number - 1})


@pytest.mark.requirement(id="R2")
def test_a_power_cut_at_every_call(tmp_path: Path, record_counts: Record) -> None:
    points = check_every_call(tmp_path, PowerCut)
    assert points > 8
    record_counts("R2-cut", {"points": points, "whole": points})


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    save(tmp_path, new=False)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with failing(3, lambda: full), pytest.raises(StorageError, match="the disk is full"):
        save(tmp_path, new=True)

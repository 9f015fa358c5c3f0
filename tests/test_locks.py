"""Two processes never write into one run."""

import dataclasses
import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from vitral import outputs
from vitral.errors import TrainingError
from vitral.files import this_process
from vitral.outputs import LOCK_FILE, locked


def _no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_second_one_is_told_who_works_there(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(TrainingError, match="Another run of this process"), locked(tmp_path):
            pass
        code = (
            "import sys; from pathlib import Path; from vitral.outputs import locked\n"
            "with locked(Path(sys.argv[1])): pass"
        )
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
        assert f"Process {this_process().pid} on" in other.stderr
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_holds_nothing_even_while_its_workers_live(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from vitral.outputs import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    process.kill()
    process.wait()
    with locked(tmp_path):
        pass
    process.stdout.close()


@every_case(
    ("change", "silent", "free"),
    [
        ({"machine": "other"}, 5.0, False),  # another machine's, and it gave a sign of life just now
        ({"machine": "other"}, 100.0, True),
        ({"boot": "before"}, 5.0, True),  # this machine was started anew since
        ({"started": 1}, 5.0, True),  # the number is another process's by now
    ],
)
@every_case("has_locks", [True, False])
def test_the_dead_are_told_from_the_living(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    silent: float,
    free: bool,
    has_locks: bool,
) -> None:
    if not has_locks:
        monkeypatch.setattr(fcntl, "lockf", _no_locks)
        monkeypatch.setattr(outputs, "SETTLING_SECONDS", 0.01)
    owner = dataclasses.asdict(dataclasses.replace(this_process(), **change))
    path = tmp_path / LOCK_FILE
    path.write_text(json.dumps({"token": "theirs", "host": "node7", "owner": owner}))
    renewed = time.time() - silent
    os.utime(path, (renewed, renewed))
    if free:
        with locked(tmp_path):
            pass
        return
    with pytest.raises(TrainingError, match="on node7 is working"), locked(tmp_path):
        pass


def test_a_damaged_lock_is_none(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"[" * 5000)
    with locked(tmp_path):
        pass


def test_where_the_system_has_no_locks_the_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "lockf", _no_locks)
    monkeypatch.setattr(outputs, "SETTLING_SECONDS", 0.01)
    with locked(tmp_path):
        outputs._held.clear()  # as another process of this machine would find it
        with pytest.raises(TrainingError, match="is working"), locked(tmp_path):
            pass

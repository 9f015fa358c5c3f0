"""Ctrl-C before a command has been imported."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("slow", "command"),
    [
        ("rich", ["predict", "photo.jpg"]),
        ("torch", ["predict", "photo.jpg"]),
        ("torch", ["predict", "photo.jpg", "--out", "rows.csv"]),
        ("torch", ["evaluate", "--data", "photos"]),
    ],
)
def test_before_the_imports_are_done_it_is_one_line(tmp_path: Path, slow: str, command: list[str]) -> None:
    """A stub stands for a library that takes its time, and that makes of the interruption what it likes."""
    (tmp_path / slow).mkdir()
    (tmp_path / slow / "__init__.py").write_text(
        "import time\nprint('importing', flush=True)\ntry:\n    time.sleep(30)\nexcept BaseException:\n    raise ImportError"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    process = subprocess.Popen(
        [sys.executable, "-m", "vitral", *command],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "vitral: Interrupted.\n")

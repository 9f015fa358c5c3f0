"""The first commands of a user end well without what Windows lacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.portable import first_commands
from tests.portable.windows import as_on_windows


@pytest.mark.long
def test_the_first_commands_end_well(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, first_commands.__file__, str(folder)],
        env=as_on_windows(tmp_path),
        capture_output=True,
        text=True,
        encoding="cp1252",
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (folder / "answers.csv").read_text().count("\n") == 13
    assert not [path for path in folder.rglob("*") if path.is_symlink() or path.name.startswith(".vitral-")]

"""The main commands end well without what Windows lacks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.portable.windows import as_on_windows
from tests.studies.made_starts import write_gratings

COMMANDS = (
    ("check", "photos"),
    ("finetune", "--data", "photos", "--quick", "--out", "runs/photos", "--set", "workers=1"),
    ("evaluate", "--classifier", "runs/photos", "--data", "photos", "--report", "scores.html"),
    ("predict", "photos/val", "--classifier", "runs/photos", "--out", "answers.csv"),
    ("explain", "photos/val", "--classifier", "runs/photos", "--out", "maps.html"),
    ("finetune", "--data", "photos", "--quick", "--out", "runs/photos", "--resume"),
)
PROGRAM = """
import json, sys
from vitral.cli.main import main

if __name__ == "__main__":
    print(json.dumps([main(command) for command in json.loads(sys.argv[1])]))
"""


@pytest.mark.long
def test_the_main_commands_end_well(tmp_path: Path) -> None:
    write_gratings(tmp_path / "photos" / "train", 12, seed=1)
    write_gratings(tmp_path / "photos" / "val", 4, seed=2)
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py", json.dumps(COMMANDS)],
        cwd=tmp_path,
        env=as_on_windows(tmp_path),
        capture_output=True,
        text=True,
        encoding="cp1252",
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == [0] * len(COMMANDS), ended.stderr
    assert (tmp_path / "answers.csv").read_text().count("\n") == 17
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink() or path.name.startswith(".vitral-")]

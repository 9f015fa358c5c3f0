"""What is installed is complete: every file of the package is in the wheel, and the sdist builds the same wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import vitral

PACKAGE = Path(vitral.__file__).parent


def built(source: Path, out: Path, *what: str) -> list[Path]:
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(out.iterdir())


@pytest.mark.long
def test_the_wheel_holds_the_whole_package(tmp_path: Path) -> None:
    pytest.importorskip("build")
    _, wheel = built(PACKAGE.parent, tmp_path)  # by way of the sdist
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(PACKAGE.parent).as_posix() for path in files}
    with zipfile.ZipFile(wheel) as archive:
        assert wanted <= set(archive.namelist())

"""What is installed is complete: every file of the package is in the wheel."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import vitral

PACKAGE = Path(vitral.__file__).parent
BUILD = "from setuptools import build_meta; build_meta.build_wheel('.')"


@pytest.mark.long
def test_the_wheel_holds_the_whole_package(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PACKAGE.parent / name, tmp_path)
    shutil.copytree(PACKAGE, tmp_path / "vitral", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-c", BUILD], cwd=tmp_path, capture_output=True, check=True)
    wanted = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "vitral").rglob("*") if path.is_file()}
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        assert wanted <= set(wheel.namelist())

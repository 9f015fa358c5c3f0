"""From a messy folder to sorted photos and a page of mistakes, by the README alone; nothing of the user's changes."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.docs.messy import BROKEN, make_messy
from tests.docs.transcript import replay
from tests.docs.world import SECONDS, photos
from tests.forks import type_command


def contents(folder: Path) -> dict[str, str]:
    """Return every file of a folder with a hash of its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_messy_folder_has_what_it_says(tmp_path: Path) -> None:
    photos(tmp_path / "clean", 10, seed=0)
    messy = make_messy(tmp_path / "clean", tmp_path / "messy")
    assert (messy.learned, messy.loose, messy.heic) == (24, 6, 3)
    names = [path.name for path in (tmp_path / "messy").rglob("*") if path.is_file()]
    assert sum(name.endswith((".JPG", ".HEIC")) for name in names) == 30 + 2 * BROKEN
    assert sum(name.endswith(".MOV") for name in names) == 2
    for path, label in messy.misplaced.items():
        assert (tmp_path / "messy" / "photos" / path).exists()
        assert not path.startswith(f"{label}/")


@pytest.mark.long
def test_the_first_hour_ends_in_sorted_photos_and_a_page(tmp_path: Path) -> None:
    photos(tmp_path / "clean", 40, seed=0)
    folder = tmp_path / "messy"
    messy = make_messy(tmp_path / "clean", folder)
    before = {name: contents(folder / name) for name in ("photos", "holiday")}

    def run(words: list[str], where: Path) -> subprocess.CompletedProcess[str]:
        return type_command(where, *words[1:])

    for line, done in replay(folder, run, time=SECONDS):
        # What could not be read is named, and makes the status of a job over it 1; nothing ends in a traceback.
        assert done.returncode == 0 or (done.returncode == 1 and "predict" in line), (
            f"{line}:\n{done.stdout}{done.stderr}"
        )
        assert "Traceback" not in done.stderr
    assert {name: contents(folder / name) for name in before} == before
    copied = [path for path in (folder / "sorted").rglob("*") if path.suffix in (".JPG", ".HEIC")]
    readable = [name for name in before["holiday"] if name.endswith(".JPG")]
    assert len(readable) - BROKEN <= len(copied) <= messy.loose
    assert any(path.suffix == ".html" for path in folder.rglob("*"))

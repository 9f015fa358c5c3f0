"""`vitral fix` from the command line: what it proposes next, and what it does not overwrite."""

import os
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Refused, write_images
from vitral.checks.corrections import COLUMNS
from vitral.cli.main import main


@pytest.fixture
def mixed(there: Path, tmp_path: Path) -> str:
    """Photos of which one lies in the folder of another class, as seen from the folder of a run."""
    write_images(tmp_path / "mixed", {"red": 12, "green": 12, "blue": 12})
    (tmp_path / "mixed" / "red" / "0.jpg").rename(tmp_path / "mixed" / "blue" / "wrong.jpg")
    return os.path.relpath(tmp_path / "mixed")


def test_what_it_proposes_next_can_be_pasted(mixed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = os.path.relpath(tmp_path / "my corrections.csv"), tmp_path / "page.html"
    assert main(["fix", mixed, "--out", out, "--report", str(page)]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(command) == ["vitral", "fix", mixed, "--apply", out]
    assert main(shlex.split(command)[1:]) == 0
    # The page saves a table of its own, by this name.
    assert f"vitral fix {mixed} --apply corrections.csv<" in page.read_text()


def test_corrections_of_other_photos_are_refused_before_any_photo_is_looked_at(
    mixed: str, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.checks.doubtful.find_doubtful", None)
    out, page = tmp_path / "corrections.csv", tmp_path / "page.html"
    out.write_text(f"{','.join(COLUMNS)}\nhat/1.jpg,hat,shoes,0.9,shoes\n")
    before = out.read_bytes()
    said = refused("fix", mixed, "--out", str(out), "--report", str(page))
    assert "would lose 1 correction" in said
    assert "--out" in said
    assert "--overwrite" in said
    assert out.read_bytes() == before
    assert not page.exists()

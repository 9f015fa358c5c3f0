"""--max-pixels, with any command: the limit of what is read holds for that command alone."""

import os
from pathlib import Path

import pytest
from PIL import Image

from vitral.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(4):
            image = Image.new("RGB", (60, 40), (50 * number, 90, 120))
            image.save(tmp_path / name / f"{number}.png")
    return tmp_path


def test_the_limit_is_raised_and_lowered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder), "--max-pixels", "2399"]) == 0
    out = capsys.readouterr().out
    assert out.count("more than the limit of 2,399") == 8
    assert "--max-pixels 2400" in out
    for arguments in (["check", str(folder), "--max-pixels=2400"], ["check", str(folder)]):
        assert main(arguments) == 0
        assert "more than the limit" not in capsys.readouterr().out
    assert "VITRAL_MAX_PIXELS" not in os.environ


def test_what_is_no_number_of_pixels_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("0", "-1", "1e6", "50.5", "many", "0x20", "٣٢"):
        assert main(["check", str(folder), "--max-pixels", wrong]) == 2
        assert f"'{wrong}'" in capsys.readouterr().err
    assert main(["check", str(folder), "--max-pixels"]) == 2
    assert "--max-pixels needs a number" in capsys.readouterr().err

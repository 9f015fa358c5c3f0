"""`vitral calibrate` as a user types it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from vitral.cli.main import main


def test_what_was_kept_is_said_by_predict(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("runs/photos", tmp_path / "run")
    run = str(tmp_path / "run")
    path = tmp_path / "run" / "classifier" / "classifier.json"
    before = path.read_bytes()
    assert main(["calibrate", "--data", "photos", "--classifier", run, "--write"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Every validation image is classified right")
    assert out.endswith("Nothing was written.\n")
    assert path.read_bytes() == before
    assert main(["calibrate", "--data", "photos", "--classifier", run, "--accuracy", "0.01"]) == 0
    out = capsys.readouterr().out
    assert "not sure" in out
    assert "Temperature" not in out  # which none is fitted of
    assert "--write saves it" in out
    assert main(["calibrate", "--data", "photos", "--classifier", run, "--accuracy", "0.01", "--write", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["threshold"] > 0
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "calibration": {**description["calibration"], "threshold": 1.0}}))
    assert main(["predict", "photos/red/0.jpg", "--classifier", run]) == 0
    assert capsys.readouterr().out.startswith("photos/red/0.jpg: not sure  ")
    assert main(["predict", "photos/red/0.jpg", "--classifier", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["sure"] is False


def test_what_cannot_be_calibrated_is_refused_in_one_line(there: Path, refused: Refused) -> None:
    assert "such as 0.95" in refused("calibrate", "--data", "photos", "--accuracy", "95")
    assert "Only a classifier folder" in refused("calibrate", "--data", "photos", "--classifier", "vit-mu16", "--write")
    assert "does not know the class" in refused("calibrate", "--data", "photos", "--classifier", "vit-mu16")

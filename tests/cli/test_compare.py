"""`vitral compare` as a user types it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Refused, write_images
from vitral.cli.main import main

RUN = "runs/photos"


def test_the_verdict_comes_first(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", RUN, f"{RUN}/classifier", "--data", "photos"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"Not decided: {RUN} and {RUN}/classifier are right on the same photos")
    assert lines[0].endswith("test photos.")
    assert "Side by side" in lines
    assert main(["compare", RUN, RUN, "--data", "photos", "--split", "train", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert next(iter(answer)) == "verdict"
    assert answer["verdict"] == "not decided"
    assert "trained on these photos" in answer["remarks"][0]


def test_what_cannot_be_compared_is_refused_in_one_line(
    there: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    write_images(tmp_path / "near", {"red": 1, "grene": 1})
    assert "Did you mean 'green'?" in refused("compare", RUN, RUN, "--data", str(tmp_path / "near"))
    assert "no split 'tests'" in refused("compare", RUN, RUN, "--data", "photos", "--split", "tests")
    assert "missing" in refused("compare", RUN, "missing", "--data", "photos")
    assert main(["compare", RUN, "vit-mu16", "--data", "photos"]) == 1
    out, err = capsys.readouterr()
    assert not out
    said = err.splitlines()
    assert said[-1].startswith("vitral: vit-mu16 ")
    assert "3 of the 3 classes of photos (blue, green, red)" in said[-1]
    assert ["blue", "blue", "–"] in [line.split() for line in said]

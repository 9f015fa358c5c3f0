"""Names of files and classes reach the terminal and the pages only with what is unsafe in them escaped."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Refused, write_images
from vitral.advice import printable, printable_json
from vitral.cli.main import main

WICKED = "red\x1b[2J\x9b31m\u202egnp"


def test_every_kind_is_escaped() -> None:
    assert printable(WICKED) == r"red\x1b[2J\x9b31m\u202egnp"
    assert printable("b\udce9b\ud800 \r\n") == r"b\xe9b\ud800 \x0d\x0a"
    assert printable("two\n\tlines é 日本", lines=True) == "two\n\tlines é 日本"
    wild = {"name": WICKED + "\udce9\x7f"}
    assert json.loads(printable_json(json.dumps(wild, ensure_ascii=False, indent=2))) == wild


def test_names_cannot_move_the_cursor(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", {"green": 12})
    write_images(tmp_path / "more", {"green": 12})
    os.rename("more/green", f"photos/{WICKED}")
    os.rename("photos/green/0.jpg", os.fsdecode(b"photos/green/\x1b[31m\xe9.jpg"))
    said = ""
    assert main(["finetune", "--data", "photos", *QUICK, "--out", "run"]) == 0
    said += "".join(capsys.readouterr())
    for command in (
        ["predict", "photos", "--classifier", "run"],
        ["predict", "photos", "--classifier", "run", "--json"],
        ["check", "photos", "--report", "check.html"],
        ["evaluate", "--data", "photos", "--classifier", "run", "--split", "train"],
    ):
        assert main(command) == 0
        said += "".join(capsys.readouterr())
    assert r"red\x1b[2J\x9b31m\u202egnp" in said
    pages = [Path(name).read_text() for name in ("run/report.html", "check.html", "run/classifier/README.md")]
    for text in (said, *pages):
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    description = json.loads(Path("run/classifier/classifier.json").read_text())
    assert WICKED in description["class_names"]


def test_a_class_that_is_not_utf8_is_refused_before_training(refused: Refused, tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"red": 12, "green": 12})
    os.rename(tmp_path / "photos" / "red", os.fsdecode(os.fsencode(tmp_path) + b"/photos/tea\xe9"))
    line = refused("finetune", "--data", str(tmp_path / "photos"), *QUICK, "--out", str(tmp_path / "run"))
    assert r"The class 'tea\xe9'" in line
    assert "is not UTF-8" in line
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_utf8_will_do(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd = os.fsdecode(b"tea\xe9" + b"n" * 240)
    shutil.copytree(there / "photos", odd)
    assert main(["finetune", "--data", odd, *QUICK]) == 0
    (run,) = Path("runs").iterdir()
    assert main(["finetune", "--resume", "--out", str(run)]) == 0

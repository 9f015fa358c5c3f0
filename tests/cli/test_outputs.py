"""Nothing of the user's is written over: not an input, not a file of theirs, not a device; `--overwrite` says otherwise."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Refused
from vitral.cli.main import main
from vitral.errors import StorageError
from vitral.outputs import check_file
from vitral.training.records.run_folder import clear_run, make_free_folder


@pytest.fixture
def mine(there: Path, tmp_path: Path) -> Path:
    """A folder of the user's own, with a few things that took them years."""
    folder = tmp_path / "mine"
    (folder / "classifier").mkdir(parents=True)
    for name in ("classifier/thesis.py", "report.html", "metrics.jsonl", "letter.txt"):
        (folder / name).write_text("years of work")
    return folder


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_the_users_own_is_no_run_folder(refused: Refused, mine: Path) -> None:
    before = kept(mine)
    for command in (("finetune", "--data", "photos", *QUICK), ("pretrain", "--data", "photos"), ("demo",)):
        assert "holds something else" in refused(*command, "--out", str(mine))
    assert "holds something else" in refused("convert", "runs/photos", str(mine), "--format", "vitral", "--overwrite")
    assert kept(mine) == before


def test_allowed_to_overwrite_a_run_leaves_what_it_does_not_write(mine: Path, home: Path) -> None:
    arguments = ["finetune", "--data", "photos", "--recipe", "scratch", *QUICK, "--out", str(mine), "--overwrite"]
    assert main(arguments) == 0
    assert (mine / "classifier" / "thesis.py").read_text() == "years of work"
    assert (mine / "letter.txt").read_text() == "years of work"
    assert (mine / "classifier" / "weights.safetensors").is_file()
    weights = (mine / "classifier" / "weights.safetensors").read_bytes()
    (mine / "metrics.jsonl").write_text("")
    assert main([*arguments, "--seed", "1"]) == 0
    assert (mine / "classifier" / "weights.safetensors").read_bytes() != weights
    assert (mine / "metrics.jsonl").read_text().count('"step": 12,') == 2  # the update and its validation
    assert (mine / "classifier" / "thesis.py").read_text() == "years of work"


def test_an_input_is_never_written_over(refused: Refused, there: Path) -> None:
    before = kept(there / "photos")
    run = kept(there / "runs")
    link = there / "link.jpg"
    link.symlink_to("photos/red/0.jpg")
    for overwrite in ((), ("--overwrite",)):
        for target in ("photos/red/0.jpg", "link.jpg", "photos/../photos/red/0.jpg"):
            line = refused("explain", "photos/red/0.jpg", "--out", target, "--classifier", "runs/photos", *overwrite)
            assert "is an input" in line
        assert "is an input" in refused("check", "photos", "--report", "photos/red/1.jpg", *overwrite)
        assert "is an input" in refused(
            "evaluate", "--data", "photos", "--report", "photos/red/1.jpg", "--classifier", "runs/photos", *overwrite
        )
        for target in ("runs/photos", "runs/photos/classifier", "runs"):
            line = refused("convert", "runs/photos", target, "--format", "vitral", *overwrite)
            assert "is an input" in line
        target = "runs/photos/classifier/weights.safetensors"
        assert "is an input" in refused("convert", "runs/photos", target, "--format", "timm", *overwrite)
    assert "is an input" in refused("finetune", "--data", "photos", "--out", "photos", "--overwrite")
    assert "is an input" in refused("finetune", "--data", "photos", "--out", ".", "--overwrite")
    line = refused("finetune", "--data", "photos", "--from", "runs/photos", "--out", "runs/photos", "--overwrite")
    assert "is an input" in line
    link.unlink()
    assert kept(there / "photos") == before
    assert kept(there / "runs") == run


def test_another_file_is_written_over_only_if_that_is_said(
    refused: Refused, there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("photos/red/0.jpg", "--classifier", "runs/photos")
    commands = {
        "a.png": ("explain", *one, "--out"),
        "check.html": ("check", "photos", "--report"),
        "scores.html": ("evaluate", "--data", "photos", "--classifier", "runs/photos", "--report"),
    }
    for name, command in commands.items():
        (tmp_path / name).write_text("mine")
        assert "this command did not write it" in refused(*command, str(tmp_path / name))
        assert (tmp_path / name).read_text() == "mine"
        assert main([*command, str(tmp_path / name), "--overwrite"]) == 0
        assert main([*command, str(tmp_path / name)]) == 0  # its own it replaces
    assert "did not write it" in refused(*commands["check.html"], str(tmp_path / "scores.html"))
    shutil.copy("runs/photos/report.html", tmp_path / "run.html")
    assert "did not write it" in refused(*commands["scores.html"], str(tmp_path / "run.html"))
    convert = ("convert", "runs/photos", str(tmp_path / "weights.safetensors"), "--format", "timm")
    assert main(convert) == 0
    line = refused(*convert)
    assert "already exists; choose another name" in line  # nobody knows who wrote it
    assert "did not write" not in line
    assert main([*convert, "--overwrite"]) == 0


def test_an_explanation_of_another_image_takes_another_name(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, run = there / "photos", str(there / "runs" / "photos")
    monkeypatch.chdir(tmp_path)
    for name in ("red", "green", "red", "green"):
        assert main(["explain", str(photos / name / "0.jpg"), "--classifier", run]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in printed] == ["0-explained.jpg", "0-explained-2.jpg"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-explained-2.jpg", "0-explained.jpg"]


def test_what_is_no_file_is_not_replaced(refused: Refused, there: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").write_text("")
    one = ("explain", "photos/red/0.jpg", "--classifier", "runs/photos", "--overwrite", "--out")
    said = {
        str(tmp_path / "pipe.png"): "is a pipe, not a file",
        str(tmp_path / "folder.png"): "is a folder, not a file",
        str(tmp_path / "file" / "a.png"): "is not a folder",
        str(tmp_path / ("n" * 300)): "longer than 255 bytes",
        "/dev/full": "is a device, not a file",
    }
    for target, line in said.items():
        assert line in refused(*one, target)
    assert (tmp_path / "pipe.png").is_fifo()
    assert Path("/dev/full").is_char_device()
    for target in ("/dev/full", str(tmp_path / "file"), str(tmp_path / "pipe.png")):
        assert "not a folder" in refused("finetune", "--data", "photos", "--out", target, "--overwrite")


def test_nothing_is_no_name(refused: Refused, there: Path) -> None:
    for arguments in (("--out", ""), ("--out=",), ("--out", " ")):
        assert "--out is empty" in refused("finetune", "--data", "photos", *arguments, status=2)
    assert "An argument is empty" in refused("predict", "", status=2)


def test_an_unwritable_place_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="no permission to write"):
        check_file(tmp_path / "a.png")


def test_names_that_two_starts_take_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    taken = [make_free_folder("é" * 200) for _ in range(3)]
    assert len(set(taken)) == 3
    assert all(folder.is_dir() for folder in taken)
    assert make_free_folder("b\udce9b/../x").name == "b-b-..-x"


def test_clearing_a_run_leaves_what_is_not_its_own(there: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree("runs/photos", run)
    (run / "checkpoints" / "notes.txt").write_text("mine")
    clear_run(run)
    assert kept(run) == {"checkpoints/notes.txt": b"mine"}

"""What the command line says of a run that delivers a linear layer, and what its other commands make of that."""

from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from vitral.cli.main import main

LINE = ("--data", "digits", "--from", "vit-mu4", "--image-size", "16", "--quick")


def test_a_run_begins_with_four_lines_and_ends_with_its_result_and_every_command_takes_it(
    tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["finetune", *LINE, "--out", run]) == 0
    out, err = capsys.readouterr()
    begins = [line.split()[0] for line in err.splitlines()]
    assert begins[:4] == ["Found", "Model", "Time", "Folder"]
    printed = out.splitlines()
    assert next(index for index, line in enumerate(printed) if "test photos right" in line) < printed.index("Next:")
    assert any("report.html" in line for line in printed[: printed.index("Next:")])
    assert main(["finetune", *LINE, "--out", str(tmp_path / "verbose"), "-v"]) == 0
    assert len(capsys.readouterr().err.splitlines()) > len(begins)
    assert main(["table", run, str(tmp_path / "verbose")]) == 0
    shown = capsys.readouterr().out
    assert all(fact in shown for fact in ("linear model on pixels", "digits", "seed 0")), shown
    assert main(["evaluate", "--data", "digits", "--classifier", run]) == 0
    other = refused("convert", run, str(tmp_path / "other"), "--format", "transformers")
    assert all(fact in other for fact in ("'vitral'", "'vitral export'"))
    assert main(["convert", run, str(tmp_path / "folder"), "--format", "vitral"]) == 0

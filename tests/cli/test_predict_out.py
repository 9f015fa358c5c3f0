"""`vitral predict --out` as it is typed: the file, what is said, and what is refused before anything is computed."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from tests.inference.test_engines import in_bf16
from vitral.classifier.bulk.predict_to_file import WrittenPredictions
from vitral.cli.main import main
from vitral.inference.engines import Engine


def test_a_table_of_a_folder(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table.csv"
    assert main(["predict", "photos", "--out", str(out), "--precision", "fp32"]) == 0
    assert f"{out}: 36 images; computed by torch in fp32." in capsys.readouterr().out
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert main(["predict", "photos", "--json"]) == 0
    said = {row["source"]: row for row in json.loads(capsys.readouterr().out)}
    assert {row["source"]: row["label"] for row in rows} == {name: row["label"] for name, row in said.items()}


@in_bf16
def test_another_precision_is_said(
    engine: Engine, there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "table.jsonl")
    assert main(["predict", "photos", "--out", out, "--engine", engine, "--precision", "bf16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["computed_by"] == f"{engine} in bf16"
    evaluate, said = ["evaluate", "--data", "photos"], "against torch in fp32, probabilities differ by at most"
    fast, page = ["--engine", engine, "--precision", "bf16"], tmp_path / "page.html"
    assert main([*evaluate, *fast, "--report", str(page)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in " ".join(page.read_text().split())
    assert main([*evaluate, *fast, "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)["difference"]
    assert list(difference) == ["computed_by", "images", "largest", "same_top"]
    assert difference["computed_by"] == f"{engine} in bf16"
    assert main([*evaluate, "--json"]) == 0
    assert "difference" not in json.loads(capsys.readouterr().out), "fp32's own form stays as it was"


def test_what_cannot_be_read_is_left_out_and_fails_a_strict_command(
    there: Path, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "photos").mkdir()
    shutil.copy("photos/red/0.jpg", tmp_path / "photos" / "0.jpg")
    (tmp_path / "photos" / "1.jpg").write_bytes(b"no image")
    (tmp_path / "photos" / "2.mov").write_bytes(b"no image")
    predict = ["predict", str(tmp_path / "photos"), "--engine", "torch"]
    for number, flags in enumerate((["--out", f"{tmp_path}/a.csv"], ["--sort-into", f"{tmp_path}/sorted"])):
        assert main([*predict, *flags]) == 0
        strict = flags if number else ["--out", f"{tmp_path}/b.csv"]
        assert main([*predict, *strict, "--strict"]) == 1
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert len(list((tmp_path / "sorted").rglob("*.jpg"))) == 1


@pytest.mark.parametrize("flags", [[], ["--out"], ["--sort-into"]])
def test_a_file_that_is_no_image_is_named(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    (tmp_path / "photos").mkdir()
    shutil.copy("photos/red/0.jpg", tmp_path / "photos" / "0.jpg")
    (tmp_path / "photos" / "clip.mov").write_bytes(b"no image")
    target = [str(tmp_path / "out.csv")] if flags == ["--out"] else [str(tmp_path / "sorted")] if flags else []
    assert main(["predict", str(tmp_path / "photos"), *flags, *target]) == 0
    assert capsys.readouterr().err.count("clip.mov") == 1


def test_what_does_not_go_together_is_refused(there: Path, tmp_path: Path, refused: Refused) -> None:
    assert "ends in .parquet, .csv, .jsonl" in refused("predict", "photos", "--out", str(tmp_path / "table.xlsx"))
    assert "--out" in refused("predict", "photos", "--overwrite", status=2)
    assert "leave --engine, --precision and --merge out" in refused(
        "evaluate", "--data", "photos", "--by", "folder", "--precision", "bf16", status=2
    )


def test_one_image_is_no_plural() -> None:
    written = WrittenPredictions("t.csv", 1, 0, "torch in fp32", 0, 1.0, None, quoted=1)
    assert [line.split(";")[0] for line in written.lines()] == [
        "t.csv: 1 image",
        "1 name that a spreadsheet would take for a formula begins with an apostrophe there.",
    ]

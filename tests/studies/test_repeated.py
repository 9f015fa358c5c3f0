"""One fine-tuning with several seeds: one recipe, a standard deviation, going on, and what cannot be repeated."""

import json
import math
from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Refused, refused, write_images
from vitral.cli.main import main
from vitral.training.settings.recipe import load_recipe

__all__ = ["refused"]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_images(tmp_path / "photos", {"red": 10, "green": 10})
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ("finetune", "--data", "photos", "--recipe", "scratch", *QUICK, "--no-baselines", "--out", "three")


def test_a_training_is_repeated_by_one_recipe_and_goes_on_where_it_was(
    photos: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    assert main([*COMMAND, "--seed", "5", "--runs", "2", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["seeds"] == [5, 6]
    one, other = (load_recipe(f"three/run-{seed}/recipe.toml") for seed in (5, 6))
    assert (one.seed, other.seed) == (5, 6)
    assert one.model_copy(update={"seed": 6}) == other
    weights = [Path(f"three/run-{seed}/classifier/weights.safetensors").read_bytes() for seed in (5, 6)]
    assert weights[0] != weights[1]
    scores = [run["top1"] for run in first["runs"]]
    assert first["mean"] == pytest.approx(sum(scores) / 2, abs=1e-12)
    assert first["deviation"] == pytest.approx(abs(scores[0] - scores[1]) / math.sqrt(2), abs=1e-12)
    before = Path("three/run-5/metrics.jsonl").stat().st_mtime_ns
    assert main([*COMMAND, "--seed", "5", "--runs", "3"]) == 0  # one more
    out = capsys.readouterr().out
    assert "over 3 runs of one recipe" in out
    assert Path("three/run-5/metrics.jsonl").stat().st_mtime_ns == before
    assert main(["table", "three", "--format", "markdown"]) == 0
    assert "3 runs, seeds 5, 6, 7" in capsys.readouterr().out
    assert "began with something else" in refused(*COMMAND, "--seed", "5", "--runs", "3", "--set", "optimizer.lr=0.5")
    assert "holds a single run" in refused(*COMMAND[:-1], "three/run-5", "--runs", "2")


def test_one_run_is_said_to_have_no_deviation(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--runs", "1"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert "one run has no standard deviation" in line
    assert "±" not in line
    assert main([*COMMAND, "--runs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["deviation"] is None


def test_what_would_help_a_run_is_said_as_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    network = ("--from", "vit-mu4", "--set", "steps=1", "--set", "batch_size=8", "--set", "workers=0")
    assert main(["finetune", "--data", "digits", *network, "--recipe", "scratch", "--no-baselines", "--runs", "1"]) == 0
    out, err = capsys.readouterr()
    assert "This may help: vitral finetune digits --from " in err
    assert "vitral.finetune" not in out + err


def test_what_cannot_be_repeated_is_refused_in_one_line(photos: Path, refused: Refused) -> None:
    assert "time budget" in refused(*COMMAND, "--time", "1m", "--runs", "2", status=2)
    for flag in ("--overwrite", "--data-changed"):
        assert flag in refused(*COMMAND, flag, "--runs", "2", status=2)
    assert "--runs" in refused(*COMMAND, "--runs", "0", status=2)
    (photos / "three").mkdir()
    (photos / "three" / "letter.txt").write_text("years of work")
    assert "holds something else" in refused(*COMMAND, "--runs", "2")
    assert [path.name for path in (photos / "three").iterdir()] == ["letter.txt"]

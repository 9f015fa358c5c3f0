"""From a folder of images without labels to a start for fine-tuning: the commands, as a user types them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import write_images
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.tasks.unlabelled import UNLABELLED

SMALL = ("--model", "vit-mu16", "--image-size", "32", "--set", "depth=1", "--set", "steps=4", "--set", "batch_size=8")
QUICK = ("--set", "workers=0", "--set", "evaluation.every_steps=2", "--set", "checkpoint.every_steps=2")
DECODER = ("--set", "method.decoder_depth=1", "--set", "method.decoder_width=16", "--set", "method.decoder_heads=2")
METHODS = {
    "masked-patches": (),
    "masked-autoencoder": DECODER,
    "lejepa": ("--set", "method.views=2", "--set", "method.hidden=16"),
}


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that nobody has put in order."""
    folder = tmp_path_factory.mktemp("home")
    write_images(folder / "sorted", {"red": 12, "green": 12})
    (folder / "album").mkdir()
    for number, path in enumerate(sorted((folder / "sorted").rglob("*.jpg"))):
        shutil.copy(path, folder / "album" / f"{number}.jpg")
    return folder


def pretrain(album: Path, out: Path, method: str) -> list[str]:
    named = ("--set", f"method.name={method}", *METHODS[method])
    return ["pretrain", "--data", f"unlabelled:{album / 'album'}", "--out", str(out), *SMALL, *QUICK, *named]


@pytest.mark.parametrize("method", METHODS)
def test_any_images_teach_without_labels_and_the_network_is_fine_tuned(
    method: str, album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(pretrain(album, tmp_path / "run", method)) == 0
    said = capsys.readouterr()
    assert all(fact in said.err for fact in ("no labels in album", "22 photos for training", "2 for validation"))
    assert "trained without labels, so nothing is scored" in said.out
    assert f"vitral finetune LABELLED --from {tmp_path / 'run'}" in said.out
    assert "vitral predict" not in said.out
    assert load(tmp_path / "run").task == UNLABELLED
    assert "no labels" in (tmp_path / "run" / "report.html").read_text()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    ranks = [row["validation/rank"] for row in rows if "validation/rank" in row]
    assert len(ranks) == 2
    assert not any("validation/knn" in row or "validation/accuracy" in row for row in rows)
    tuned = ["finetune", "--data", str(album / "sorted"), "--from", str(tmp_path / "run"), "--recipe", "finetune"]
    assert main([*tuned, "--out", str(tmp_path / "tuned"), "--set", "steps=2", "--set", "workers=0"]) == 0
    assert load(tmp_path / "tuned").class_names == ("green", "red")


@pytest.mark.long
def test_a_network_without_classes_is_asked_for_none(
    album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(pretrain(album, tmp_path / "run", "masked-patches")) == 0
    image = str(album / "album" / "0.jpg")
    asked = (
        ["predict", image, "--classifier", run],
        ["predict", image, "--classifier", run, "--out", str(tmp_path / "rows.csv")],
        ["export", run, "--out", str(tmp_path / "file")],
        ["explain", image, "--classifier", run, "--out", str(tmp_path / "map.png")],
    )
    for command in asked:
        capsys.readouterr()
        assert main(command) == 1, command
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert "trained without labels and knows no classes; fine-tune it first" in said, command
    assert main(["evaluate", "--data", str(album / "sorted"), "--classifier", run]) == 1
    assert "does not know the class" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["finetune", "pretrain"])
def test_what_learns_from_labels_refuses_images_without(
    command: str, album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--data", f"unlabelled:{album / 'album'}", "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "have no labels, which 'supervised' needs" in said
    assert not (tmp_path / "run").exists()


def test_a_run_without_labels_goes_on_and_notices_other_images(
    album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = shutil.copytree(album / "album", tmp_path / "album")
    typed = pretrain(album, tmp_path / "run", "lejepa")
    typed[typed.index("--data") + 1] = f"unlabelled:{images}"
    assert main(typed) == 0
    on = ["pretrain", "--out", str(tmp_path / "run"), "--resume", "--set", "steps=6"]
    shutil.copy(album / "sorted" / "red" / "0.jpg", images / "one-more.jpg")
    capsys.readouterr()
    assert main(on) == 1
    assert "--data-changed" in capsys.readouterr().err
    (images / "one-more.jpg").unlink()
    assert main(on) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(row["step"] for row in rows) == 6

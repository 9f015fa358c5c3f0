"""The command line as a user types it: what it makes, what it prints, and one line for every mistake."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Refused, write_images
from tests.forks import type_command
from vitral.cli.main import main
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import build_recipe, load_recipe
from vitral.weights.save import write_weights

COUNTS = {"test/images": 1000, "test/images_of_baselines": 1000}


def test_the_run_folder_is_whole(home: Path) -> None:
    run = home / "runs" / "photos"
    expected = {
        "recipe.toml",
        "run.json",
        "data.json",
        "images",
        "attempt.json",
        "baselines.json",
        "metrics.jsonl",
        "plan.json",
        "tensorboard",
        "checkpoints",
    }
    assert {path.name for path in run.iterdir()} == expected | {"classifier", "evaluation.json", "report.html"}
    assert json.loads((run / "classifier" / "classifier.json").read_text())["class_names"] == ["blue", "green", "red"]


def test_predict_with_nothing_else_said(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "photos/red/0.jpg"]) == 0
    assert capsys.readouterr().out.startswith("photos/red/0.jpg: ")
    assert main(["predict", "photos", "--json", "--top", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 36
    assert len(rows[0]["top"]) == 2
    # Windows' shells leave patterns as they are.
    assert main(["predict", "photos/red/1*.jpg", "photos/blue/[0-2].jpg", "--json"]) == 0
    sources = [row["source"] for row in json.loads(capsys.readouterr().out)]
    assert sources == [f"photos/{name}.jpg" for name in ("red/1", "red/10", "red/11", "blue/0", "blue/1", "blue/2")]


def test_the_run_that_answers_is_named(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["predict", "photos/red/0.jpg"], ["evaluate", "--data", "photos"]):
        assert main(command) == 0
        assert "Answered by runs/photos, the newest run (" in capsys.readouterr().err
        assert main([*command, "--classifier", "runs/photos"]) == 0
        assert "Answered by" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"test/top1": 0.3, "test/top1_low": 0.2, "test/chance": 0.25}, "better than guessing"),
        ({"test/top1": 0.6, "test/baseline_knn": 0.7, **COUNTS}, "simple nearest-neighbour vote"),
        ({"test/top1": 0.6, "test/baseline_linear_probe": 0.61, **COUNTS}, ""),  # ten images of a thousand
        ({"test/top1": 0.6, "test/baseline_knn": 0.7}, ""),  # of an earlier version, which did not count
        (
            {"test/top1": 0.6, "test/baseline_knn": 0.7, "test/baseline_pixel_neighbour": 0.8, **COUNTS},
            "simple nearest neighbour on bare pixels",
        ),
        ({"test/top1": 0.8, "test/top1_low": 0.7, "test/chance": 0.3, "test/baseline_knn": 0.7, **COUNTS}, ""),
    ],
)
def test_a_poor_classifier_is_answered_with_a_warning(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], scores: dict[str, float], said: str
) -> None:
    shutil.copytree("runs/photos/classifier", tmp_path / "poor")
    path = tmp_path / "poor" / "classifier.json"
    description = json.loads(path.read_text())
    description["provenance"]["scores"] = scores
    path.write_text(json.dumps(description))
    assert main(["predict", "photos/red/0.jpg", "--classifier", str(tmp_path / "poor")]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if line and not line.startswith("predict")]
    assert len(warned) == (1 if said else 0)
    assert said in "".join(warned)


def test_a_run_keeps_what_its_baselines_scored(home: Path) -> None:
    scores = json.loads((home / "runs/photos/classifier/classifier.json").read_text())["provenance"]["scores"]
    baselines = json.loads((home / "runs/photos/baselines.json").read_text())
    assert scores["test/baseline_pixel_linear"] == baselines["pixel_linear"]
    assert (scores["test/images"], scores["test/images_of_baselines"]) == (3, baselines["num_test"])
    assert baselines["knn"] is None  # of random weights
    assert "test/baseline_knn" not in scores


def test_predict_takes_what_finetune_takes(
    there: Path, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.csv").write_text(
        "image,label\n" + "".join(f"{there}/photos/red/{n}.jpg,red\n" for n in range(3))
    )
    shutil.make_archive(str(tmp_path / "album"), "zip", there / "photos" / "red")  # images alone, in no class folder
    shutil.make_archive(str(tmp_path / "photos"), "gztar", there / "photos")
    expected = {"album.zip": 12, "photos.tar.gz": 36, "table.csv": 3}
    answers = {}
    for name, count in expected.items():
        assert main(["predict", str(tmp_path / name), "--json", "--classifier", "runs/photos"]) == 0
        answers[name] = json.loads(capsys.readouterr().out)
        assert len(answers[name]) == count, name
    assert main(["predict", "photos/red/0.jpg", "photos/blue", "--json"]) == 0
    single, *blue = json.loads(capsys.readouterr().out)
    assert len(blue) == 12
    assert all(row["source"].startswith("photos/blue/") for row in blue)
    assert answers["album.zip"][0]["source"].endswith("album.zip:0.jpg")
    for answer in (answers["album.zip"][0], answers["table.csv"][0]):  # of another batch: the last bit may differ
        assert answer["label"] == single["label"]
        assert answer["probability"] == pytest.approx(single["probability"], abs=1e-5)
    (tmp_path / "hollow").mkdir()
    assert "holds no images" in refused("predict", str(tmp_path / "hollow"))
    assert "is endless" in refused("predict", "visualatom-mini")


def test_the_most_probable_classes_have_one_shape_in_json(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "photos/red/1.jpg", "--json", "--top", "3"]) == 0
    predicted = json.loads(capsys.readouterr().out)[0]
    assert main(["explain", "photos/red/1.jpg", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    for answer in (predicted, explained):
        assert [set(row) for row in answer["top"]] == [{"label", "probability"}] * 3
        assert answer["top"][0] == {"label": answer["label"], "probability": answer["probability"]}


def test_evaluate_scores_what_training_left_out(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--data", "photos", "--json", "--report", "scores.html"]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    assert evaluation["num_examples"] == 3
    kept = json.loads((there / "runs/photos/evaluation.json").read_text())
    assert isinstance(kept.pop("diagnosis"), list)
    assert kept["split"] == "test"
    assert evaluation == kept
    page = (there / "scores.html").read_text()
    assert page.startswith("<!doctype html>")
    low, chance = evaluation["top1_interval"][0], max(evaluation["support"]) / evaluation["num_examples"]
    assert ("from guessing" in page or "than guessing" in page) == (low <= chance)
    # Of three images nothing else can be told: one right may be two thirds right another time.
    assert ("better than guessing" in page) == (evaluation["top1"] == 0)
    assert main(["evaluate", "--data", "photos", "--split", "train"]) == 0
    assert "30 of 30" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folders", "asked", "split", "images"),
    [
        (("train", "val"), (), "validation", "validation photos"),
        (("train", "test"), ("--split", "train"), "train", "training photos"),
    ],
)
def test_the_split_that_was_scored_is_named_everywhere(
    there: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    folders: tuple[str, ...],
    asked: tuple[str, ...],
    split: str,
    images: str,
) -> None:
    for folder in folders:
        write_images(tmp_path / "data" / folder, {"red": 12, "green": 12, "blue": 12})
    command = ["evaluate", "--data", str(tmp_path / "data"), "--classifier", "runs/photos", *asked]
    assert main([*command, "--report", str(tmp_path / "scores.html")]) == 0
    page, out = (tmp_path / "scores.html").read_text(), capsys.readouterr().out
    count = re.search(rf"Scores on (\d+) {images.replace('images', 'photos')}\n", out)
    assert count is not None
    assert re.search(rf"{count[1]} {images.replace('images', 'photos')}", page)
    assert "test photos" not in page + out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split"] == split


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["vit-b16"]["parameters"] == 86_567_656
    assert rows["vit-b16"]["published"] == ["original", "timm", "transformers"]
    assert rows["vmoe-15b"]["parameters"] == 14_664_784_232
    assert rows["cvt-w24"]["image_size"] == [384, 384]
    assert rows["r50-vit-b16"]["macs"] > rows["vit-b16"]["macs"]
    assert main(["models"]) == 0
    assert "86,567,656" in capsys.readouterr().out


def test_models_are_filtered_by_a_word(refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "DeiT", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert "deit-b16-384" in names
    assert all("deit" in name for name in names)
    assert "Did you mean 'deit-b16'?" in refused("models", "deit-b61")


def test_recipes_are_listed_found_and_printed_whole(refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list_recipes()
    assert all(all(row.values()) for row in rows)
    assert main(["recipes", "CIFAR-100", "--json"]) == 0
    found = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert "finetune-cifar100" in found
    assert main(["recipes", "sam", "--json"]) == 0  # which is in "same", too
    assert json.loads(capsys.readouterr().out)[0]["name"].startswith("sam-")
    assert len(found) < len(rows)
    assert main(["recipes", "cifar10"]) == 0
    listed = capsys.readouterr().out
    assert "Expected  ViT-B/16 from ImageNet-21k: 98.95 % (Table 5)" in listed
    assert "vitral finetune FOLDER --from ViT-B_16.npz --recipe finetune-cifar10" in listed
    assert main(["recipes", "finetune-cifar10"]) == 0
    whole = capsys.readouterr().out
    assert build_recipe(tomllib.loads(whole), "printed").optimizer == load_recipe("finetune-cifar10").optimizer
    assert "Did you mean 'finetune-cifar10'?" in refused("recipes", "finetune-cifra10")


def test_pretrain_then_finetune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: Path) -> None:
    arguments = ["--set", "steps=4", "--set", "batch_size=8", "--set", "workers=0", "--set", "head.representation=true"]
    out = str(tmp_path / "pre")
    assert main(["pretrain", "--data", "visualatom-mini", "--model", "vit-mu4", "--out", out, *arguments]) == 0
    tuned = str(tmp_path / "tuned")
    arguments = [*arguments[:6], "--no-baselines"]
    assert main(["finetune", "--data", "photos", "--from", out, "--out", tuned, "--image-size", "48", *arguments]) == 0
    description = json.loads((tmp_path / "tuned/classifier/classifier.json").read_text())
    assert description["architecture"]["image_size"] == [48, 48]
    assert description["provenance"]["source"] == out


def test_a_run_is_converted_and_converted_back(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, back = str(tmp_path / "theirs"), str(tmp_path / "back")
    assert main(["convert", "runs/photos", theirs, "--format", "transformers"]) == 0
    out = capsys.readouterr().out
    assert f"Wrote {theirs}" in out
    assert "AutoModelForImageClassification.from_pretrained" in out
    assert main(["convert", theirs, back, "--format", "vitral", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == back
    assert main(["predict", "photos/red/1.jpg", "--classifier", back, "--json"]) == 0
    there_and_back = json.loads(capsys.readouterr().out)[0]
    assert main(["predict", "photos/red/1.jpg", "--classifier", "runs/photos", "--json"]) == 0
    direct = json.loads(capsys.readouterr().out)[0]
    assert there_and_back["label"] == direct["label"]
    assert there_and_back["probability"] == pytest.approx(direct["probability"], abs=1e-5)


def test_a_file_of_experts_is_told_how_it_routes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "experts.npz", tmp_path / "experts"
    config = dataclasses.replace(
        variant("vit-mu16"), depth=2, experts=ExpertsConfig(blocks=(1,), num_experts=2), num_classes=3
    )
    write_weights(build(config), PHOTOS, ["a", "b", "c"], source, "original")
    arguments = ["--format", "vitral", "--set", "experts.capacity_factor=4", "--set", "experts.batch_priority=true"]
    assert main(["convert", str(source), str(target), *arguments]) == 0
    experts = json.loads((target / "classifier.json").read_text())["architecture"]["experts"]
    assert (experts["capacity_factor"], experts["batch_priority"], experts["blocks"]) == (4, True, [1])


def test_a_run_of_the_written_recipe_gives_the_same_weights(there: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    arguments = ["--data", "photos", *QUICK[:4], "--recipe", "runs/photos/recipe.toml", "--out", str(again)]
    done = type_command(Path(), "finetune", *arguments)  # as the first: the threads decide the last bits
    assert done.returncode == 0, done.stderr
    one, other = (
        hashlib.sha256((run / "classifier" / "weights.safetensors").read_bytes()).hexdigest()
        for run in (Path("runs/photos"), again)
    )
    assert one == other


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "vitral", "models"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "86,567,656" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("finetune", "--data", "missing"), 1, "There is no folder 'missing'"),
        (("predict", "photo.jpg"), 1, "name one with --classifier"),
        (("predict", "photo.jpg", "--top", "0"), 2, "Must be >= 1"),
        (("predikt",), 2, "Did you mean 'predict'"),
    ],
)
def test_a_mistake_typed_is_one_line_and_a_status(
    tmp_path: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = type_command(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("vitral: ")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bad_data_is_one_line(refused: Refused, tmp_path: Path) -> None:
    assert "There is no folder" in refused("finetune", "--data", str(tmp_path / "missing"))
    (tmp_path / "empty").mkdir()
    assert "no classes" in refused("finetune", "--data", str(tmp_path / "empty"))
    write_images(tmp_path / "one", {"only": 3})
    assert "only one class ('only')" in refused("finetune", "--data", str(tmp_path / "one"))
    assert "is a file" in refused("finetune", "--data", str(tmp_path / "one" / "only" / "0.jpg"))
    assert "Did you mean 'digits'" in refused("finetune", "--data", "digit")


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xd8\xff\xe0\x00\x10JFIF"], ids=["empty", "text", "cut"])
def test_a_bad_image_is_named_or_left_out(refused: Refused, tmp_path: Path, content: bytes) -> None:
    write_images(tmp_path / "photos", {"red": 6, "green": 6})
    bad = tmp_path / "photos" / "red" / "bad.jpg"
    bad.write_bytes(content)
    arguments = ["finetune", "--data", str(tmp_path / "photos"), "--out", str(tmp_path / "run"), *QUICK]
    line = refused(*arguments, "--strict")
    assert str(bad) in line
    assert "--skip-bad-images" in line
    assert main(arguments) == 0
    assert str(bad) in (tmp_path / "run" / "report.html").read_text()
    assert bad.read_bytes() == content


def test_mistakes_are_one_line_with_the_nearest_name(refused: Refused, there: Path, tmp_path: Path) -> None:
    data = ["finetune", "--data", "photos", "--out", str(tmp_path / "x")]
    assert "Did you mean 'vit-b16'" in refused(*data, "--from", "vit-b-16")
    assert "Did you mean 'finetune'" in refused(*data, "--recipe", "finetun")
    assert "Did you mean 'optimizer.weight_decay'" in refused(*data, "--set", "optimizer.weight_decy=1")
    assert "not divided by the patch size 16; use 32 or 48" in refused(*data, *QUICK[:2], "--image-size", "33")
    assert "no duration" in refused(*data, "--time", "soon")
    assert "Name its folder with --out" in refused("finetune", "--data", "photos", "--resume", status=2)
    assert "already holds a run" in refused("finetune", "--data", "photos", "--out", "runs/photos", *QUICK)
    assert "'missing.jpg'" in refused("predict", "missing.jpg")
    assert "no file, no classifier folder" in refused("predict", "photos", "--classifier", "missing")
    assert "Did you mean 'validation'" in refused("evaluate", "--data", "photos", "--split", "validatoin")
    write_images(tmp_path / "other", {"red": 2, "grene": 2})
    assert "Did you mean 'green'" in refused("evaluate", "--data", str(tmp_path / "other"))


def test_a_wrong_command_line_has_status_2(refused: Refused) -> None:
    assert "--help" in refused("finetun", status=2)
    assert "vitral finetune --help" in refused("finetune", "--dta", "x", status=2)
    assert "vitral predict --help" in refused("predict", status=2)


@pytest.mark.requirement(id="R10")
@pytest.mark.parametrize("name", ["my photos", "Föhn 写真", "two\nlines", "-dash", "a'b\"c", "[red]", "{1..2"])
def test_any_name_of_a_folder_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write_images(tmp_path / name / "photos", {"red": 6, "green": 6})
    monkeypatch.chdir(tmp_path)
    run = f"./{name}/not yet/there"
    assert main(["finetune", "--data", f"./{name}/photos", "--out", run, *QUICK]) == 0
    assert main(["predict", f"./{name}/photos/red/0.jpg", "--classifier", run]) == 0
    assert main(["evaluate", "--data", f"./{name}/photos", "--classifier", run]) == 0


@pytest.mark.requirement(id="R10")
def test_a_read_only_folder_is_one_line(refused: Refused, there: Path) -> None:
    if os.geteuid() == 0:
        arguments = ["finetune", "--data", "photos", "--out", "/proc/nothing/run", *QUICK]
        assert "Cannot write" in refused(*arguments)
    else:
        (there / "locked").mkdir(mode=0o555)
        assert "no permission" in refused("finetune", "--data", "photos", "--out", "locked/run", *QUICK)

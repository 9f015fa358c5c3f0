"""One line for every mistake, with the nearest name where there is one, and nothing of the user's changed by it."""

import json
from pathlib import Path
from typing import Any

import pytest

import vitral
from tests.cases import every_case
from tests.cli.conftest import QUICK, Refused, write_images
from vitral.cli.main import main
from vitral.errors import RecipeError

DAMAGES = ("empty", "text", "cut")


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, there: Path, tmp_path: Path) -> Path:
    """An image that cannot be read."""
    whole = (there / "photos" / "red" / "0.jpg").read_bytes()
    content = {"empty": b"", "text": b"hello", "cut": whole[: len(whole) // 2]}[request.param]
    path = tmp_path / "damaged.jpg"
    path.write_bytes(content)
    return path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_predict_names_a_damaged_image_or_goes_on(
    refused: Refused, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"'{damaged}'" in refused("predict", "photos/red/0.jpg", str(damaged), "--strict")
    assert f"'{damaged}'" in refused("predict", str(damaged))
    for flags, status in (((), 1), (("--skip-bad-images",), 0)):
        capsys.readouterr()
        assert main(["predict", str(damaged), "photos/red/0.jpg", "nowhere.jpg", "--json", *flags]) == status
        out, err = capsys.readouterr()
        assert [row["source"] for row in json.loads(out)] == ["photos/red/0.jpg"]
        assert f"Skipped: '{damaged}'" in err.replace("\n", " ")
        assert ("2 of 3 inputs" in err) == (status == 1)


def test_a_damaged_image_in_a_folder_does_not_fail_the_others(
    there: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (damaged.parent / "whole.jpg").write_bytes((there / "photos" / "red" / "0.jpg").read_bytes())
    assert main(["predict", str(damaged.parent), "--json"]) == 0
    out, err = capsys.readouterr()
    assert [Path(row["source"]).name for row in json.loads(out)] == ["whole.jpg"]
    assert damaged.name in err


def test_explain_names_a_damaged_image(refused: Refused, damaged: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "drawing.png"
    assert f"'{damaged}'" in refused("explain", str(damaged), "--out", str(drawing))
    assert not drawing.exists()


def test_evaluate_names_a_damaged_image_or_goes_on(
    refused: Refused, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_images(tmp_path / "more", {"red": 2, "green": 2})
    bad = damaged.rename(tmp_path / "more" / "red" / "bad.jpg")
    line = refused("evaluate", "--data", str(tmp_path / "more"), "--strict")
    assert f"'{bad}'" in line
    assert "1 of 5" in line
    assert "--skip-bad-images" in line
    assert main(["evaluate", "--data", str(tmp_path / "more"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["num_examples"] == 4
    assert str(bad) in err.replace("\n", "")


@pytest.mark.parametrize("command", ["finetune", "evaluate"])
def test_bad_folders(refused: Refused, there: Path, tmp_path: Path, command: str) -> None:
    def line(folder: Path) -> str:
        return refused(
            command, "--data", str(folder), *(("--out", str(tmp_path / "x")) if command == "finetune" else ())
        )

    missing = tmp_path / "missing"
    assert f"no folder '{missing}'" in line(missing)
    assert "is a file; give the folder" in line(there / "photos" / "red" / "0.jpg")
    (tmp_path / "bare").mkdir()
    assert "no classes" in line(tmp_path / "bare") if command == "finetune" else "no images" in line(tmp_path / "bare")
    (tmp_path / "hollow" / "red").mkdir(parents=True)
    (tmp_path / "hollow" / "green").mkdir()
    assert f"'{tmp_path / 'hollow'}'" in line(tmp_path / "hollow")
    assert not (tmp_path / "x").exists()


def test_class_names_that_do_not_match(refused: Refused, there: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "near", {"red": 1, "grene": 1})
    line = refused("evaluate", "--data", str(tmp_path / "near"))
    assert "does not know the class 'grene'" in line
    assert "Did you mean 'green'?" in line
    assert "classes (blue, green, red" in refused("evaluate", "--data", "digits")


@pytest.mark.parametrize("command", ["predict", "explain", "evaluate"])
def test_without_a_classifier(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").touch()
    arguments = ("--data", "digits") if command == "evaluate" else ("photo.jpg",)
    assert "'vitral finetune' first" in refused(command, *arguments)
    assert "no file, no classifier folder" in refused(command, *arguments, "--classifier", "missing")
    assert "Did you mean 'vit-b16'?" in refused(command, *arguments, "--classifier", "vit-b61")
    (tmp_path / "bare").mkdir()
    assert "no classifier folder" in refused(command, *arguments, "--classifier", "bare")
    (tmp_path / "notes.txt").write_text("hello")
    assert "not a weights file" in refused(command, *arguments, "--classifier", "notes.txt")


@every_case(
    ("arguments", "said"),
    [
        (("--from", "vit-mu61"), "Did you mean 'vit-mu16'?"),
        (("--from", "weights.npz"), "'weights.npz' is no file"),
        (("--recipe", "finetune-cifra10"), "Did you mean 'finetune-cifar10'?"),
        (("--set", "optimiser.lr=1"), "unknown key 'optimiser'"),
        (("--set", "schedule.warmup_step=1"), "Did you mean 'schedule.warmup_steps'?"),
        (("--set", "optimizer.lr=-1"), "impossible 'optimizer.lr'"),
        (("--set", "augmentation.crop=circle"), "impossible 'augmentation.crop'"),
        (("--set", "steps"), "write KEY=VALUE"),
        (("--image-size", "33"), "not divided by the patch size 16; use 32 or 48"),
        (("--time", "soon"), "'soon' is no duration; write it like 90s"),
        (("--time", "0s"), "no duration"),
    ],
)
def test_settings_that_cannot_be(
    refused: Refused, there: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    source = () if "--from" in arguments else ("--from", "vit-mu16")
    assert said in refused("finetune", "--data", "photos", *source, "--out", str(tmp_path / "run"), *arguments)
    assert not (tmp_path / "run").exists()


@every_case(
    ("arguments", "said"),
    [
        (("--from", "vit-mu61"), "Did you mean 'vit-mu16'?"),
        (("--from", "weights.npz"), "'weights.npz' is no file"),
        (("--from", "notes.npz"), "'notes.npz'"),
        (("--recipe", "finetune-cifra10"), "Did you mean 'finetune-cifar10'?"),
        (("--set", "lr=1"), "Did you mean 'optimizer.lr'?"),
        (("--from", "vit-mu16", "--set", "optimizer.lr=-1"), "impossible 'optimizer.lr'"),
        (("--from", "vit-mu16", "--image-size", "33"), "use 32 or 48"),
        (("--recipe", "cifar10-ten-minutes", "--image-size", "33"), "33"),
        (("--image-size", "8"), "Image height 8 is"),
        (("--time", "soon"), "no duration"),
        (("--resume",), "Name its folder with --out"),
        (("--out", "photos"), "photos"),
    ],
)
def test_a_slip_is_said_before_an_image_is_read(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", {"red": 2, "green": 2})
    (tmp_path / "photos" / "red" / "broken.jpg").write_bytes(b"no image: to read it is to say so")
    (tmp_path / "notes.npz").write_text("hello")
    commands = ("finetune",) if "--from" in arguments else ("finetune", "pretrain")
    for command in commands:
        assert said in refused(command, "--data", "photos", *arguments, status=2 if arguments == ("--resume",) else 1)
    assert "broken.jpg" in refused("finetune", "--data", "photos", "--strict")


def test_python_is_told_of_a_slip_just_as_early(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"red": 2, "green": 2})
    (tmp_path / "photos" / "red" / "broken.jpg").write_bytes(b"no image")
    wrong: list[dict[str, Any]] = [{"seed": -1}, {"image_size": 0}, {"time": "soon"}, {"time": 0}]
    for slip in wrong:
        for train in (vitral.finetune, vitral.pretrain):
            with pytest.raises(RecipeError, match="seed|image_size|no duration"):
                train(tmp_path / "photos", **slip)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "vit-mu61"), "Did you mean 'vit-mu16'?"),
        (("--model", "bit-r50x1", "--set", "head.representation=true"), "BiT has no setting 'representation_size'."),
        (("--recipe", "pretrian"), "Did you mean 'pretrain'?"),
        (("--data", "visualatm"), "Did you mean 'visualatom'?"),
        (("--model", "vit-mu4", "--image-size", "33"), "use 32 or 36"),
    ],
)
def test_pretraining_that_cannot_be(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    data = () if "--data" in arguments else ("--data", "visualatom-mini")
    assert said in refused("pretrain", *data, *arguments)
    assert list(tmp_path.iterdir()) == []


@every_case(
    ("arguments", "said"),
    [
        (("predikt",), "Did you mean 'predict'?"),
        (("help",), "no command 'help'"),
        (("evaluate",), "Which data?"),
        (("check",), "Which data?"),
        (("finetune", "--dta", "x"), "Did you mean --data?"),
        (("finetune", "--data", "x", "--resum"), "Did you mean --resume?"),
        (("finetune", "--data", "x", "--seed", "-1"), 'Invalid value "-1" for --seed'),
        (("finetune", "--data", "x", "--seed", "one"), "Invalid value for --seed"),
        (("finetune", "--data", "x", "--image-size", "0"), 'Invalid value "0" for --image-size'),
        (("pretrain", "--image-size", "0"), 'Invalid value "0" for --image-size'),
        (("pretrain", "--seed", "-1"), 'Invalid value "-1" for --seed'),
        (("predict", "x.jpg", "--top", "0"), 'Invalid value "0" for --top'),
        (("predict", "x.jpg", "--top", "-1"), 'Invalid value "-1" for --top'),
        (("models", "--jsn"), "Did you mean --json?"),
        (("models", "vit-b16", "vit-l16"), "vit-l16"),
    ],
)
def test_command_lines_that_cannot_be(refused: Refused, arguments: tuple[str, ...], said: str) -> None:
    line = refused(*arguments, status=2)
    assert said in line
    assert "--help' " in line


def test_a_run_is_never_written_over(refused: Refused, there: Path) -> None:
    before = contents(there / "runs" / "photos")
    again = ("finetune", "--data", "photos", "--out", "runs/photos", *QUICK)
    assert "already holds a run; continue it by --resume" in refused(*again, "--seed", "7")
    assert "cannot continue with --seed 7" in refused(*again, "--resume", "--seed", "7")
    line = refused(*again[:5], *QUICK[2:], "--resume", "--from", "vit-nano16")
    assert "--from vit-mu16;" in line
    assert "--from vit-nano16" in line
    assert "is of 'vitral finetune'" in refused("pretrain", "--resume", "--out", "runs/photos")
    pretrain = ("pretrain", "--data", "photos", "--model", "vit-mu16", "--out", "runs/photos")
    assert "already holds a run" in refused(*pretrain)
    assert contents(there / "runs" / "photos") == before


def test_a_typo_next_to_overwrite_costs_no_run(refused: Refused, there: Path) -> None:
    before = contents(there / "runs" / "photos")
    for slip in (
        ("--data", "phtos"),
        ("--data", "photos", "--set", "lr=1"),
        ("--data", "photos", "--from", "vit-mu61"),
    ):
        refused("finetune", *slip, "--out", "runs/photos", "--overwrite")
    refused("pretrain", "--data", "phtos", "--out", "runs/photos", "--overwrite")
    assert contents(there / "runs" / "photos") == before


def test_a_split_that_is_none_is_said_before_an_image_is_read(refused: Refused, there: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"red": 2, "green": 2})
    (tmp_path / "photos" / "red" / "broken.jpg").write_bytes(b"no image")
    line = refused("evaluate", "--data", str(tmp_path / "photos"), "--split", "tset")
    assert "no split 'tset'" in line
    assert "Did you mean 'test'?" in line


def test_a_job_that_torchrun_restarts_does_not_begin_anew_again(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(there / "runs" / "photos" / "checkpoints")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert main(["finetune", "--data", "photos", "--out", "runs/photos", *QUICK, "--overwrite"]) == 0
    assert contents(there / "runs" / "photos" / "checkpoints") == before


def test_training_wants_its_data_and_a_resume_its_folder(refused: Refused, there: Path) -> None:
    for command in (
        "finetune",
        "plan",
        "sweep",
        "evaluate",
        "calibrate",
        "check",
        "distill runs/photos",
        "study position",
    ):
        assert "Which" in refused(*command.split(), status=2), command
    assert "Name its folder with --out" in refused("finetune", "--data", "photos", "--resume", status=2)
    assert "Name its folder with --out" in refused("pretrain", "--data", "photos", "--resume", status=2)


@pytest.mark.parametrize("again", [("--data", "photos", *QUICK), ("--data", "photos")], ids=["all", "the data alone"])
def test_a_finished_run_goes_on_to_the_same_result(
    there: Path, capsys: pytest.CaptureFixture[str], again: tuple[str, ...]
) -> None:
    before = contents(there / "runs" / "photos" / "classifier")
    assert main(["finetune", "--out", "runs/photos", *again, "--resume", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["folder"], result["steps"]) == ("runs/photos", 12)
    after = contents(there / "runs" / "photos" / "classifier")
    weights = there / "runs" / "photos" / "classifier" / "weights.safetensors"
    assert after[weights] == before[weights]
    assert "--from vit-mu16" in (there / "runs" / "photos" / "report.html").read_text()


def test_the_reading_of_nested_folders_is_kept_by_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "food", {"fruit/apple": 6, "fruit/pear": 6, "milk/cream": 6})
    asked = ("finetune", "--data", "food", *QUICK, "--set", "steps=2", "--out", "out")
    assert main([*asked, "--classes", "top", "--json"]) == 0
    names = json.loads((tmp_path / "out/classifier/classifier.json").read_text())["class_names"]
    assert names == ["fruit", "milk"]
    assert main(["finetune", "--out", "out", "--resume", "--json"]) == 0
    assert "--classes top" in (tmp_path / "out/report.html").read_text()
    assert "cannot continue with --classes leaf" in refused("finetune", "--out", "out", "--resume", "--classes", "leaf")
    capsys.readouterr()
    assert main(["evaluate", "--data", "food", "--classifier", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["class_names"] == ["fruit", "milk"]


@pytest.mark.parametrize("command", ["quantize", "tune", "bench", "explain", "convert", "export", "push"])
def test_what_works_in_one_process_refuses_several(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert main([command, "somewhere"]) == 1
    line = capsys.readouterr().err
    assert all(fact in line for fact in ("process 1:", f"'{command}'", "torchrun")), line


def test_a_name_that_was_not_written_to_its_end(refused: Refused) -> None:
    assert "'compare'" in refused("comp", "photos", status=2)


@every_case(
    ("typed", "said"),
    [
        ("--lr 0.001", "--set optimizer.lr=0.001."),
        ("--learning-rate=0.001", "--set optimizer.lr=0.001."),
        ("--weight_decay 0.1", "--set optimizer.weight_decay=0.1."),
        ("--batch-size 16", "--set batch_size=16."),
        ("--per-device-train-batch-size 16", "--set batch_size=16."),
        ("--epochs 5", "--set epochs=5."),
        ("--num-train-epochs 5", "--set epochs=5."),
        ("--warmup-epochs 2", "--set schedule.warmup_epochs=2."),
        ("--steps", "--set steps=VALUE."),
        ("--num-workers 4", "--set workers=4."),
        ("--optimizer adam", "--set optimizer.name=adam."),
        ("--device cpu", "CUDA_VISIBLE_DEVICES"),
        ("--model vit-s16", "--from vit-s16."),
        ("--tiem 3m", "Did you mean --time?"),
        ("--dropuot 0.1", "Unknown option: --dropuot."),
    ],
)
def test_options_of_other_programs(refused: Refused, typed: str, said: str) -> None:
    assert said in refused("finetune", "photos", *typed.split(), status=2)


def test_settings_are_not_proposed_where_there_are_none(refused: Refused) -> None:
    assert "--set" not in refused("evaluate", "photos", "--lr", "0.1", status=2)
    assert "--classifier runs/a." in refused("predict", "a.jpg", "--model", "runs/a", status=2)


def test_a_classifier_in_the_place_of_images(refused: Refused, there: Path) -> None:
    assert "--classifier runs/photos." in refused("predict", "runs/photos", "photos/red/0.jpg", status=2)
    assert "--classifier a.onnx." in refused("predict", "a.onnx", "photos/red/0.jpg", status=2)

"""What is named without a flag: data and classifiers; and what a run, a classifier or a name is said to be."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.cli.conftest import Refused
from vitral.cli.main import app, arranged, main
from vitral.cli.options import ValidationImages, settle
from vitral.errors import StorageError
from vitral.outputs import check_file, locked


def parsed(line: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    function, bound, _ = app.parse_args(arranged(line.split()), exit_on_error=False, print_error=False)
    bound.apply_defaults()
    return function.__name__, bound.args, bound.kwargs


@every_case(
    ("short", "long"),
    [
        ("finetune photos/", "finetune --data photos/"),
        ("train photos/ --time 3m", "finetune --time 3m --data photos/"),
        ("fit photos/", "finetune photos/"),
        ("plan photos/", "plan --data photos/"),
        ("sweep photos/ --from a.npz", "sweep --data photos/ --source a.npz"),
        ("pretrain photos/", "pretrain --data photos/"),
        ("starts photos/ --from a,b", "starts a,b --data photos/"),
        ("evaluate run photos/", "evaluate --data photos/ --classifier run"),
        ("val run photos/", "test run --data=photos/"),
        ("evaluate photos/ --classifier run", "evaluate --classifier=run photos/"),
        ("calibrate run photos/", "calibrate --classifier run --data photos/"),
        ("quantize run photos/", "quantize photos/ --classifier run"),
        ("tune run photos/ --latency 9ms", "tune run --latency 9ms --data photos/"),
        ("aspects run photos/", "aspects --classifier run --data photos/"),
        ("robustness run photos/", "robustness --classifier run --data photos/"),
        ("compare a b photos/", "compare a b --data photos/"),
        ("add more/ --classifier run", "add --data more/ --to run"),
        ("distill run photos/", "distill run --data photos/"),
        ("export run photos/ --layers", "export --data photos/ --classifier run --verbose"),
        ("bench run", "bench --classifier run"),
        ("convert run out --format timm", "convert out --format timm --classifier run"),
        ("push run me/it", "push me/it --classifier run"),
        ("vtab run data/", "vtab --data data/ --classifier run"),
        ("study position photos/", "study position --data photos/"),
    ],
)
def test_what_needs_no_flag_is_what_the_flag_says(short: str, long: str) -> None:
    assert parsed(short) == parsed(long)


def test_a_single_name_is_the_data_unless_it_is_a_classifier(refused: Refused, there: Path) -> None:
    for classifier, images in (("photos", ValidationImages()), (None, ValidationImages(data="photos"))):
        assert settle(classifier, images) == (None, vars(ValidationImages(data="photos")))
    assert settle("runs/photos", ValidationImages(data="photos"))[0] == "runs/photos"
    for name in ("runs/photos", "runs/photos/classifier", "vit.npz"):
        assert "Which data?" in refused("evaluate", name, status=2)
    assert "Which data?" in refused("calibrate", status=2)
    assert "Which data?" in refused("check", status=2)
    assert "'more'" in refused("evaluate", "runs/photos", "photos", "more", status=2)


def test_the_newest_run_is_scored_on_data_alone(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = []
    for words in (["evaluate", "photos"], ["val", "runs/photos", "photos"]):
        assert main([*words, "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0] == scores[1]


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:  # noqa: ANN401  # any JSON value
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def half(run: Path) -> None:
    """Leave of a run what a kill in the middle of its training leaves."""
    for name in ("report.html", "evaluation.json", "attempt.json"):
        (run / name).unlink()
    shutil.rmtree(run / "classifier")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= 6) + '{"step": 7'
    )


def goes_on(run: Path) -> None:
    (run / "metrics.jsonl").touch()


@every_case(
    ("change", "state", "command"),
    [
        (None, "done", "vitral evaluate RUN photos"),
        (half, "stopped", "vitral finetune --resume --out RUN"),
        (goes_on, "stopped", "vitral finetune --resume --out RUN"),
    ],
)
def test_a_run_says_how_it_stands_and_how_to_go_on(
    there: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], None] | None,
    state: str,
    command: str,
) -> None:
    run = tmp_path / "runs" / "photos"
    shutil.copytree(there / "runs" / "photos", run)
    if change is not None:
        change(run)
    found = listed(capsys, "status", str(run))
    assert (found["state"], found["data"], found["planned_steps"]) == (state, "photos", 12)
    assert found["next"] == command.replace("RUN", str(run))
    assert found["validation"] is None
    assert (found["test"] is None) == (not (run / "classifier").exists())
    if change is half:
        assert 0 < found["steps"] <= 6
        assert 0 < found["progress"] < 1
        assert found["seconds_left"] > 0
    assert listed(capsys, "runs", str(tmp_path / "runs")) == [found]
    with locked(run):
        assert listed(capsys, "status", str(run))["state"] == "running"
    assert main(["runs", str(tmp_path / "runs")]) == 0
    assert state in capsys.readouterr().out
    assert main(["status", str(run)]) == 0
    assert found["next"] in capsys.readouterr().out


@pytest.fixture
def runs(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos and two runs that are done, the newer one called "newer"."""
    for name in ("older", "newer"):
        shutil.copytree("runs/photos", tmp_path / "runs" / name)
        (tmp_path / "runs" / name / "evaluation.json").touch()
        os.utime(tmp_path / "runs" / name / "metrics.jsonl", (0, 0))
    (tmp_path / "photos").symlink_to(there / "photos")
    os.utime(tmp_path / "runs/older/evaluation.json", (1_000_000_000, 1_000_000_000))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_the_newest_run_that_is_done_answers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered = {}
    steps: dict[str, Callable[[], object]] = {
        "as they are": lambda: None,
        "the newer stopped": (runs / "newer/evaluation.json").unlink,
        "the newer without a classifier": lambda: shutil.rmtree(runs / "newer/classifier"),
        "the older alone, and stopped": (runs / "older/evaluation.json").unlink,
    }
    for name, step in steps.items():
        step()
        assert main(["predict", "photos/red/0.jpg"]) == 0
        answered[name] = capsys.readouterr().err
    taken = {name: said.split("Answered by ")[1].split(",")[0] for name, said in answered.items()}
    assert list(taken.values()) == ["runs/newer", "runs/older", "runs/older", "runs/older"]
    passed_over = {name for name, said in answered.items() if "runs/newer" in said.split("Answered by ")[0]}
    assert passed_over == {"the newer stopped", "the newer without a classifier"}
    assert "stopped" in answered["the older alone, and stopped"].split("Answered by ")[0].splitlines()[-1]


def test_runs_have_their_validation_and_their_test_scores_apart(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = runs / "older" / "classifier" / "classifier.json"
    described = json.loads(path.read_text())
    described["provenance"]["scores"] = {"validation/top1": 0.75, "test/top1": 0.625}
    path.write_text(json.dumps(described))
    assert main(["runs"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    row = next(row for row in rows if row.startswith("runs/older"))
    assert heading.index("validation") == row.index("75.0%")
    assert heading.index("test") == row.index("62.5%")


def test_where_there_is_no_run_is_said(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no run in 'runs'" in refused("runs")
    assert listed(capsys, "runs") == []
    assert "no run in 'runs'" in refused("status")
    assert "is no run folder" in refused("status", "photos")


@every_case(
    ("name", "what", "facts"),
    [
        ("runs/photos", "run", {"classes": ["blue", "green", "red"], "state": "done"}),
        ("runs/photos/classifier", "classifier", {"classes": ["blue", "green", "red"], "task": "single-label"}),
        ("vit-b16", "model", {"parameters": 86_567_656, "family": "vit"}),
        ("vit-s14@dinov2", "published weights", {"licence": "Apache-2.0"}),
        ("finetune-cifar10", "recipe", {"name": "finetune-cifar10"}),
    ],
)
def test_info_says_what_a_thing_is(
    there: Path, capsys: pytest.CaptureFixture[str], name: str, what: str, facts: dict[str, object]
) -> None:
    found = listed(capsys, "info", name)
    assert found["what"] == what
    assert {key: found[key] for key in facts} == facts
    assert main(["info", name]) == 0
    assert f"{name}: {what}" in capsys.readouterr().out


def test_info_of_nothing_is_said(refused: Refused, there: Path) -> None:
    assert "Did you mean 'vit-b16'?" in refused("info", "vit-b61")
    assert "neither a classifier folder nor a run" in refused("info", "photos")


@every_case(
    ("line", "meant"),
    [
        ("check photo/", "photos/"),
        ("finetune photo", "photos/"),
        ("finetune digit", "digits"),
        ("finetune photos --recipe runs/photos/recip.toml", "runs/photos/recipe.toml"),
        ("predict photo/", "photos/"),
        ("predict photos/red/00.jpg", "photos/red/0.jpg"),
        ("predict photo --out answers.csv", "photos/"),
        ("explain photo", "photos/"),
        ("explain phtos/red/0.jpg", "photos/"),
        ("evaluate runs/photos photo", "photos/"),
        ("evaluate runs/photo photos", "runs/photos/"),
        ("fix photo", "photos/"),
        ("fix photos --apply photos/red/00.jpg", "photos/red/0.jpg"),
        ("status runs/photo", "runs/photos/"),
        ("info runs/photo", "runs/photos/"),
        ("runs run", "runs/"),
    ],
)
def test_the_path_that_was_meant_is_named(there: Path, refused: Refused, line: str, meant: str) -> None:
    assert f"Did you mean '{meant}'?" in refused(*line.split())


@every_case("line", ["status runs", "status runs/photos/classifier"])
def test_what_is_there_is_not_proposed_in_its_own_place(there: Path, refused: Refused, line: str) -> None:
    assert "Did you mean" not in refused(*line.split())


def test_a_tilde_that_no_shell_has_replaced_is_the_home_folder(
    there: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setenv("HOME", str(there))
    image = "~/photos/red/0.jpg"
    assert main(["predict", image, "--classifier=~/runs/photos", "--precision", "fp32", "--out=~/answers.csv"]) == 0
    assert f"{there}/photos/red/0.jpg" in (there / "answers.csv").read_text()
    (there / "answers.csv").unlink()
    assert f"'{there}/nothing'" in refused("predict", image, "--classifier", "~/nothing")
    with pytest.raises(StorageError, match=f"write '{there}/answers.csv'"):
        check_file("~/answers.csv")
    assert not (there / "~").exists()


def test_completion_is_installed_for_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert main(["--install-completion"]) == 0
    (script,) = (path for path in tmp_path.rglob("vitral") if path.is_file())
    for word in ("finetune", "--image-size", "train"):
        assert word in script.read_text()

"""What programs rely on: the form of every --json, exit statuses, and the text that tells them of the commands."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.cases import every_case
from tests.cli.conftest import Refused, write_images
from tests.cli.write_llms import FILE, llms
from tests.regions import DRAWN, finding, scene
from vitral.classifier.folder import save
from vitral.cli.commands import COMMANDS, EXIT_STATUSES
from vitral.cli.main import _failed, main
from vitral.cli.schemas import RESULTS, adapter
from vitral.errors import DataError, ImageError, OutOfMemory, ProcessLost
from vitral.studies import demo

RUN = "runs/photos"
ONE = "photos/red/0.jpg"
PRINTED = [
    ["check", "photos"],
    ["check", "photos", "--classifier", RUN],
    ["select", "photos/red", "--count", "2"],
    ["finetune", "--out", RUN, "--resume"],
    ["plan", "photos", "--from", "vit-mu16", "--image-size", "32"],
    ["runs"],
    ["status"],
    ["recipes", "cifar"],
    ["recipes", "scratch"],
    ["models", "vit"],
    ["models", "--weights"],
    ["evaluate", "photos"],
    ["evaluate", "photos", "--by", "folder"],
    ["evaluate", "photos", "--frozen", "few-shot,knn,linear"],
    ["compare", RUN, RUN, "photos"],
    ["explain", ONE, "--out", "OUT/drawing.png"],
    ["explain", "photos/red", "--report", "OUT/page.html"],
    ["explain", "--network", "--out", "OUT/network"],
    ["aspects", "photos"],
    ["predict", ONE],
    ["predict", "photos", "--out", "OUT/rows.csv"],
    ["predict", "photos/red", "--sort-into", "OUT/sorted"],
    ["info", RUN],
    ["calibrate", "photos"],
    ["convert", RUN, "OUT/theirs", "--format", "transformers"],
    ["study"],
    ["table", RUN],
    ["schema"],
]
SLOW = [
    ["starts", "photos", "--from", RUN],
    ["robustness", "photos", "--images", "2"],
    ["tune", "photos", "--latency", "1s"],
    ["bench", RUN, "--rounds", "1", "--batch-sizes", "1"],
    ["export", RUN, "--format", "torch", "--out", "OUT/exported"],
    ["finetune", "photos", "--quick", "--from", RUN, "--out", "OUT/quick"],
    ["finetune", "digit-scenes-boxes", "--quick", "--from", "vit-nano4", "--image-size", "32", "--out", "OUT/quick"],
    ["study", "position", "photos", "--plan"],
]


def check_printed(words: list[str], out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command with --json and hold what it prints against its schema."""
    capsys.readouterr()
    status = main([*(word.replace("OUT", str(out)) for word in words), "--json"])
    printed, said = capsys.readouterr()
    assert status == 0, said
    if words[0] in RESULTS:
        adapter(words[0]).validate_json(printed, strict=False)
    else:
        json.loads(printed)


@every_case("words", PRINTED, ids=" ".join)
def test_what_is_printed_is_of_its_schema(
    words: list[str], there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_printed(words, tmp_path, capsys)


@pytest.mark.usefixtures("few_scenes")
@every_case("data", list(DRAWN))
def test_what_is_printed_of_regions_is_of_its_schema(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, photo = save(finding(data), tmp_path / "classifier"), tmp_path / "scene.png"
    Image.fromarray(scene()).save(photo)
    given = [str(photo), "--classifier", str(made)]
    for words in (["predict", *given], ["predict", *given, "--out", "OUT/found"], ["evaluate", str(made), data]):
        check_printed(words, tmp_path, capsys)
    if data == "digit-scenes-boxes":
        check_printed(["compare", str(made), str(made), data], tmp_path, capsys)


@pytest.mark.long
def test_the_demo_s_is_of_its_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "TIME", "20s")
    check_printed(["demo", "--out", "OUT/demo"], tmp_path, capsys)


@pytest.mark.long
@pytest.mark.usefixtures("few_scenes")
@every_case("words", SLOW, ids=" ".join)
def test_what_takes_longer_is_of_its_schema_too(
    words: list[str], there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_printed(words, tmp_path, capsys)


def test_every_command_has_a_schema(capsys: pytest.CaptureFixture[str], refused: Refused) -> None:
    assert set(RESULTS) == set(COMMANDS) - {"schema", "serve"}
    for command in RESULTS:
        assert main(["schema", command]) == 0
        made: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert made["$schema"].startswith("https://json-schema.org/")
        assert {"type", "anyOf"} & made.keys()
    assert main(["schema", "test"]) == 0  # another name of 'evaluate'
    assert "Did you mean 'evaluate'?" in refused("schema", "evaluat")


def test_a_field_more_or_less_is_noticed() -> None:
    row = {"name": "vit-b16", "family": "vit", "image_size": [224, 224], "parameters": 1, "macs": 2, "published": []}
    adapter("models").validate_python([row])
    for wrong in (
        row | {"more": 1},
        {key: value for key, value in row.items() if key != "macs"},
        row | {"macs": "many"},
    ):
        with pytest.raises(ValueError, match="validation error"):
            adapter("models").validate_python([wrong])


def test_llms_txt_is_made_from_the_commands() -> None:
    text = llms()
    assert FILE.read_text(encoding="utf-8") == text  # if not: python -m tests.cli.write_llms
    for command in COMMANDS:
        assert f"\n### vitral {command}" in text


@every_case(
    ("words", "status"),
    [
        (["recipes"], 0),
        (["evaluate", "nowhere"], 1),
        (["check", "OUT/bad"], 0),
        (["check", "OUT/bad", "--strict"], 1),
        (["evaluate", "--tiem"], 2),
        (["evaluat"], 2),
        (["models", "nothing-like-it"], 1),
    ],
)
def test_exit_statuses(words: list[str], status: int, there: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "bad", {"red": 2, "green": 2})
    (tmp_path / "bad" / "red" / "broken.jpg").write_bytes(b"no image")
    assert main([word.replace("OUT", str(tmp_path)) for word in words]) == status


def test_without_standard_output_a_command_does_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as of a service, or under pythonw
    assert main(["recipes"]) == 0
    assert main(["recipes", "--json"]) == 0


def too_large() -> ImageError:
    """Return what is said of an image that memory does not hold."""
    error = ImageError("'a.png' needs more memory to decode than there is; make it smaller.")
    error.__cause__ = MemoryError()
    return error


@every_case(
    ("error", "status"),
    [
        (DataError("There is no 'photos'."), 1),
        (too_large(), 1),
        (ProcessLost("Process 0 of 2 lost another process of the job."), 75),
        (OutOfMemory("There is not enough memory to read 'x.npz'."), 75),
        (MemoryError(), 75),
        (torch.OutOfMemoryError("CUDA out of memory."), 75),
        (torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"), 75),
        (torch.AcceleratorError("CUDA error: all CUDA-capable devices are busy or unavailable"), 75),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_scheduler_tells_the_machines_faults_from_the_datas(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _failed(error, ["finetune"]) == status
    assert status in EXIT_STATUSES
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_fault_of_our_own_is_not_hidden() -> None:
    with pytest.raises(RuntimeError):
        _failed(RuntimeError("CUDA error: device-side assert triggered"), [])

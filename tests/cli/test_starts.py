"""`vitral starts` as a user types it."""

import json
from functools import partial
from pathlib import Path

import pytest

import vitral
from tests.cli.conftest import Refused
from tests.weights.client import type_command
from tests.weights.hub_server import hub
from vitral.cli.main import main
from vitral.report.written import write_result
from vitral.weights.named.table import rows

PUBLISHED, MISSING = "vit-ti16@augreg-in21k-ft-in1k", "vit-s16@augreg-in21k-ft-in1k"  # rows without a published hash
COMPARE = ("starts", "photos", "--from")


def test_the_table_ends_with_the_command_to_type_next(among_starts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "poor,good,damaged", "--seed", "3", "--image-size", "16"]) == 0
    out, err = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "Starts compared on photos"
    assert lines[2].split() == ["start", "accuracy", "95%", "ms/image", "seconds", "parameters", "MB", "licence"]
    assert [line.split("  ")[0] for line in lines[3:7]] == ["* good", "poor", "pixels alone", "damaged"]
    assert "good is the best start for these photos." in lines
    assert any(line.startswith("Not compared: 'damaged/") for line in lines)
    assert lines[-2:] == ["Next:", "  vitral finetune photos --from good --image-size 16 --seed 3"]
    assert max(map(len, lines[2:7])) <= 100
    assert "Start 1 of 3: poor: " in err
    assert not (among_starts / "runs").exists()


def test_json_screen_and_files_say_the_same(
    among_starts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMPARE, "good,damaged", "--json", "--out", str(tmp_path / "out")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "out" / "starts.json").read_text())
    assert said["next"] == "vitral finetune photos --from good"
    assert said["next"] in (tmp_path / "out" / "starts.md").read_text()
    assert [row["name"] for row in said["rows"]] == ["good", "pixels alone", "damaged"]
    assert said["best"] == "good"


def test_the_table_is_printed_though_it_can_no_longer_be_written(
    among_starts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(values: dict[str, object], markdown: str, folder: Path, **files: str) -> None:
        folder.write_text("made meanwhile")
        write_result(values, markdown, folder, **files)

    monkeypatch.setattr("vitral.studies.compare_starts.write_result", write)
    assert main([*COMPARE, "good", "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "  vitral finetune photos --from good"
    assert err.splitlines()[-1].startswith(f"vitral: Cannot write '{tmp_path}/out/starts.json'")


def test_offline_is_said_with_its_flag(among_starts: Path, refused: Refused) -> None:
    said = refused(*COMPARE, "auto", "--offline")
    assert "switched off (by --offline or HF_HUB_OFFLINE)" in said


def test_mistakes_are_one_line(among_starts: Path, refused: Refused) -> None:
    assert "Of vit-s14 there are: vit-s14@dinov2" in refused(*COMPARE, "good,vit-s14@dino2")
    assert "Which data? Name a folder" in refused("starts", "--from", "good", status=2)
    assert "No start is named" in refused(*COMPARE, ",")
    assert "No start could be compared. Not compared: 'damaged" in refused(*COMPARE, "damaged")
    assert "There is no folder 'photoz'" in refused("starts", "photoz", "--from", "good")
    assert "is no duration" in refused(*COMPARE, "good", "--time", "soon")


def test_published_weights_are_fetched_and_those_that_cannot_be_are_rows(among_starts: Path, tmp_path: Path) -> None:
    """Against a mirror that has weights of our own in the place of the one, and nothing in that of the other."""
    file = vitral.convert("good", tmp_path / "model.safetensors", format="timm").path
    with hub() as server:
        server.repositories[rows()[PUBLISHED].repository] = {"model.safetensors": file.read_bytes()}
        names = f"poor,{MISSING},{PUBLISHED}"
        typed = partial(type_command, server.address, tmp_path, folder=among_starts)
        first_time = typed(*COMPARE, names, "--time", "1h", "--json")
        sent = server.sent
        assert sent >= len(file.read_bytes())
        second_time = typed(*COMPARE, "auto", "--json", offline=True)
        assert server.sent == sent
    assert (first_time.returncode, second_time.returncode) == (0, 0), (first_time.stderr, second_time.stderr)
    table = json.loads(first_time.stdout)
    assert [row["name"] for row in table["rows"]] == [PUBLISHED, "poor", "pixels alone", MISSING]
    assert (table["best"], table["train_images"]) == (PUBLISHED, 160)
    first, *_, last = table["rows"]
    assert (first["licence"], first["megabytes"]) == ("Apache-2.0", pytest.approx(len(file.read_bytes()) / 1e6))
    assert (last["licence"], last["megabytes"]) == ("Apache-2.0", rows()[MISSING].megabytes)
    assert f"{MISSING} cannot be fetched: " in last["problem"]
    assert first_time.stderr.count(f"Fetching {PUBLISHED} from 127.0.0.1") == 1
    assert [row["name"] for row in json.loads(second_time.stdout)["rows"]] == [PUBLISHED, "pixels alone"]

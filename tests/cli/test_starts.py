"""`vitral finetune --starts` as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vitral
from tests.cli.conftest import Refused
from tests.studies.made_starts import make_starts
from tests.weights.hub_server import hub
from vitral.cli.main import main
from vitral.report.starts import StartTable, write_starts
from vitral.weights.named.row import rows

PUBLISHED, MISSING = "vit-ti16@augreg-in21k-ft-in1k", "vit-s16@augreg-in21k-ft-in1k"  # rows without a published hash
COMPARE = ("finetune", "--data", "photos", "--starts")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ and starts for them."""
    folder = tmp_path_factory.mktemp("starts")
    make_starts(folder)
    return folder


@pytest.fixture
def there(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the current folder."""
    monkeypatch.chdir(made)
    return made


def test_the_table_ends_with_the_command_to_type_next(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "poor,good,damaged", "--seed", "3", "--image-size", "16"]) == 0
    out, err = capsys.readouterr()
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "Starts compared on photos"
    assert lines[2].split() == ["start", "accuracy", "95", "%", "ms/image", "seconds", "parameters", "MB", "licence"]
    assert [line.split("  ")[0] for line in lines[3:7]] == ["* good", "poor", "pixels alone", "damaged"]
    assert "good is the best start for these images." in lines
    assert any(line.startswith("Not compared: 'damaged/") for line in lines)
    assert lines[-2:] == ["Next:", "  vitral finetune --data photos --from good --image-size 16 --seed 3"]
    assert max(map(len, lines[2:7])) <= 100
    assert "Start 1 of 3: poor: " in err
    assert not (there / "runs").exists()


def test_json_screen_and_files_say_the_same(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "good,damaged", "--json", "--out", str(tmp_path / "out")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "out" / "starts.json").read_text())
    assert said["next"] == "vitral finetune --data photos --from good"
    assert said["next"] in (tmp_path / "out" / "starts.md").read_text()
    assert [row["name"] for row in said["rows"]] == ["good", "pixels alone", "damaged"]
    assert said["best"] == "good"


@pytest.mark.parametrize(
    ("other", "flag"),
    [
        (("--from", "good"), "--from"),
        (("--resume",), "--resume"),
        (("--plan",), "--plan"),
        (("--recipe", "scratch"), "--recipe"),
        (("--set", "steps=3"), "--set"),
        (("--sweep",), "--sweep"),
        (("--quick",), "--quick"),
        (("--no-baselines",), "--no-baselines"),
        (("--data-changed",), "--data-changed"),
    ],
)
def test_what_is_about_training_cannot_go_with_it(
    there: Path, refused: Refused, other: tuple[str, ...], flag: str
) -> None:
    assert f"--starts compares and trains nothing, so {flag} cannot go with it." in refused(*COMPARE, "good", *other)


def test_the_table_is_printed_though_it_can_no_longer_be_written(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(table: StartTable, folder: Path) -> None:
        folder.write_text("made meanwhile")
        write_starts(table, folder)

    monkeypatch.setattr("vitral.studies.starts.write_starts", write)
    assert main([*COMPARE, "good", "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "  vitral finetune --data photos --from good"
    assert err.splitlines()[-1].startswith(f"vitral: Cannot write '{tmp_path}/out/starts.json'")


def test_offline_is_said_with_its_flag(there: Path, refused: Refused) -> None:
    said = refused(*COMPARE, "auto", "--offline")
    assert "fetching is switched off (by --offline or HF_HUB_OFFLINE); name files or folders." in said


def test_mistakes_are_one_line(there: Path, refused: Refused) -> None:
    assert "Of vit-s14 there are: vit-s14@dinov2" in refused(*COMPARE, "good,vit-s14@dino2")
    assert "Which data? Name a folder" in refused("finetune", "--starts", "good")
    assert "--starts names no start" in refused(*COMPARE, ",")
    assert "No start could be compared. Not compared: 'damaged" in refused(*COMPARE, "damaged")
    assert "There is no folder 'photoz'" in refused("finetune", "--data", "photoz", "--starts", "good")
    assert "is no duration" in refused(*COMPARE, "good", "--time", "soon")


def type_there(folder: Path, home: Path, address: str, *arguments: str, **changes: str) -> tuple[str, str]:
    """Type a command against a mirror of the Hub, whose address the client reads when it is imported."""
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home / "hf"), "XDG_CACHE_HOME": str(home)}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        environment.pop(name, None)
    line = [sys.executable, "-m", "vitral", *arguments]
    done = subprocess.run(line, env=environment | changes, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_published_weights_are_fetched_and_those_that_cannot_be_are_rows(there: Path, tmp_path: Path) -> None:
    """Against a mirror that has weights of our own in the place of the one, and nothing in that of the other."""
    file = vitral.convert("good", tmp_path / "model.safetensors", format="timm").path
    with hub() as server:
        server.repositories[rows()[PUBLISHED].repository] = {"model.safetensors": file.read_bytes()}
        names = f"poor,{MISSING},{PUBLISHED}"
        out, err = type_there(there, tmp_path, server.address, *COMPARE, names, "--time", "1h", "--json")
        sent = server.sent
        again, _ = type_there(there, tmp_path, server.address, *COMPARE, "auto", "--json", HF_HUB_OFFLINE="1")
        assert server.sent == sent
    table = json.loads(out)
    assert [row["name"] for row in table["rows"]] == [PUBLISHED, "poor", "pixels alone", MISSING]
    assert (table["best"], table["train_images"]) == (PUBLISHED, 160)
    first, *_, last = table["rows"]
    assert (first["licence"], first["megabytes"]) == ("Apache-2.0", pytest.approx(len(file.read_bytes()) / 1e6))
    assert (last["licence"], last["megabytes"]) == ("Apache-2.0", rows()[MISSING].megabytes)
    assert f"{MISSING} cannot be fetched: " in last["problem"]
    assert err.count(f"Fetching {PUBLISHED} from 127.0.0.1") == 1
    assert [row["name"] for row in json.loads(again)["rows"]] == [PUBLISHED, "pixels alone"]

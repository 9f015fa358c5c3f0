"""Push to a Hub and load from it, through the official client and a Hub on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import vitral
from tests.weights.client import type_command
from tests.weights.hub_server import HubServer, hub
from vitral.classifier.folder import read, save
from vitral.classifier.metadata import Calibration
from vitral.models.families import create_model


@pytest.fixture
def server() -> Iterator[HubServer]:
    with hub() as running:
        yield running


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    written = vitral.convert("vit-mu16", tmp_path / "mine", format="vitral", image_size=32)
    return written.path


def test_push_and_load_again(server: HubServer, classifier: Path, tmp_path: Path) -> None:
    pushed = type_command(server.address, tmp_path, "push", "mine", "me/flowers")
    assert (pushed.returncode, pushed.stderr) == (0, ""), pushed.stderr
    assert "vitral.load('hf:me/flowers')" in pushed.stdout
    assert set(server.repositories["me/flowers"]) == {"weights.safetensors", "classifier.json", "README.md"}
    assert server.repositories["me/flowers"]["weights.safetensors"] == (classifier / "weights.safetensors").read_bytes()
    for spelling, name in (("hf:me/flowers", "one.npz"), ("me/flowers", "other.npz")):
        fetched = type_command(server.address, tmp_path, "convert", spelling, name, "--format", "original")
        assert fetched.returncode == 0, fetched.stderr
    assert server.unknown == []


def test_the_card_and_the_folder_are_pushed_whole_or_as_transformers_has_them(
    server: HubServer, classifier: Path, tmp_path: Path
) -> None:
    arguments = ("--format", "transformers", "--private", "--json")
    pushed = type_command(server.address, tmp_path, "push", "mine", "hf:me/theirs", *arguments)
    assert pushed.returncode == 0, pushed.stderr
    said = json.loads(pushed.stdout)
    assert said["address"].endswith("me/theirs")
    assert said["open"] == "vitral.load('hf:me/theirs')"
    assert set(server.repositories["me/theirs"]) == {"model.safetensors", "config.json", "preprocessor_config.json"}
    again = type_command(server.address, tmp_path, "convert", "hf:me/theirs", "again", "--format", "vitral")
    assert again.returncode == 0, again.stderr
    assert vitral.load(tmp_path / "again").model.image_size == (32, 32)


def test_a_space_serves_the_classifier(server: HubServer, classifier: Path, tmp_path: Path) -> None:
    pushed = type_command(server.address, tmp_path, "push", "mine", "me/flowers", "--space", "--json")
    assert (pushed.returncode, pushed.stderr) == (0, ""), pushed.stderr
    said = json.loads(pushed.stdout)
    assert said["open"] == said["address"]
    files = server.repositories["me/flowers"]
    assert server.kinds["me/flowers"] == ("space", "docker")
    assert {path for path in files if path.startswith("flowers/")} == {
        *("flowers/weights.safetensors", "flowers/classifier.json", "flowers/README.md")
    }
    assert files["flowers/weights.safetensors"] == (classifier / "weights.safetensors").read_bytes()
    _, heading, card = files["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(heading) | {"title": "flowers", "sdk": "docker", "app_port": 7860} == yaml.safe_load(heading)
    assert "# flowers" in card
    assert f"=={vitral.__version__}" in files["Dockerfile"].decode()
    assert "COPY flowers /mnt/models/flowers\n" in files["Dockerfile"].decode()
    assert files["Dockerfile"].decode().endswith('"--port", "7860", "--open"]\n')
    assert server.unknown == []


def test_a_classifier_is_pushed_as_it_is(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, dict[str, bytes]] = {}

    def send(folder: Path, name: str, *, private: bool, kind: str) -> str:
        sent[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
        return name

    monkeypatch.setattr("vitral.classifier.convert.upload", send)
    assert vitral.push(vitral.load(classifier), "me/itself") == "me/itself"
    assert vitral.push(classifier, "me/named") == "me/named"
    assert sent["me/itself"]["weights.safetensors"] == sent["me/named"]["weights.safetensors"]


def test_a_calibration_that_transformers_cannot_hold_is_said_to_be_lost(
    server: HubServer, classifier: Path, tmp_path: Path
) -> None:
    calibrated = read(classifier)
    calibrated.calibration = Calibration(1.5, 0.8, 0.95, "photos", 100)
    save(calibrated, classifier)
    pushed = type_command(server.address, tmp_path, "push", "mine", "me/theirs", "--format", "transformers")
    assert pushed.returncode == 0, pushed.stderr
    (said,) = [line for line in pushed.stderr.splitlines() if "calibration" in line]
    assert said.startswith("The format cannot hold the calibration, which is left out: ")
    assert "1.5" in said
    whole = type_command(server.address, tmp_path, "push", "mine", "me/ours")
    assert (whole.returncode, whole.stderr) == (0, "")  # its own form keeps it
    assert b"calibration" in server.repositories["me/ours"]["classifier.json"]


def test_a_single_file_is_fetched(server: HubServer, tmp_path: Path) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "weights.npz", format="original")
    server.repositories["lab/vit"] = {"ViT.npz": written.path.read_bytes(), "README.md": b"# ViT"}
    fetched = type_command(server.address, tmp_path, "convert", "hf:lab/vit", "here", "--format", "vitral")
    assert fetched.returncode == 0, fetched.stderr
    assert vitral.load(tmp_path / "here").model.num_classes == create_model("vit-mu16").num_classes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("push", "mine", "me/flowers", "--format", "timm"), "The Hub takes the formats vitral and transformers"),
        (("push", "mine", "me/flowers", "--format", "transformers", "--space"), "transformers"),
        (("push", "nothing", "me/flowers"), "'nothing' is no file"),
        (("push", "mine", "not a name"), "cannot be written to the Hub"),
        (("convert", "hf:me/nowhere", "x", "--format", "vitral"), "'me/nowhere' cannot be fetched from the Hub"),
        (("convert", "hf:lab/empty", "x", "--format", "vitral"), "holds no classifier.json and no single weights file"),
    ],
)
def test_what_cannot_be_is_one_line(
    server: HubServer, classifier: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    server.repositories["lab/empty"] = {"README.md": b"# nothing"}
    done = type_command(server.address, tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "me/flowers" not in server.repositories
    assert not (tmp_path / "x").exists()


def test_without_the_right_to_write_nothing_is_pushed(server: HubServer, classifier: Path, tmp_path: Path) -> None:
    done = type_command(server.address, tmp_path, "push", "mine", "me/flowers", token="hf_wrong")
    assert done.returncode == 1
    assert "'me/flowers' cannot be written to the Hub" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert server.repositories == {}


def test_an_unreachable_hub_is_reported(classifier: Path, tmp_path: Path) -> None:
    with hub() as server:
        pass
    done = type_command(server.address, tmp_path, "push", "mine", "me/flowers")
    assert done.returncode == 1
    assert "cannot be written to the Hub" in done.stderr
    assert "Traceback" not in done.stderr

"""A Hub that does not answer, and names that never go there."""

from pathlib import Path

import pytest

import vitral
from tests.cases import every_case
from tests.weights.client import type_command
from tests.weights.hub_server import hub
from vitral.errors import WeightsError


@pytest.mark.parametrize(
    "arguments", [("predict", "x.jpg", "--classifier", "hf:me/flowers"), ("check", "hf:me/photos")]
)
def test_a_hub_out_of_reach_is_one_line_without_retries(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = type_command("http://127.0.0.1:9", tmp_path, *arguments)
    assert done.returncode == 1
    assert "Retrying" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert arguments[-1].removeprefix("hf:") in done.stderr


def test_earlier_downloads_are_used_when_the_hub_is_out_of_reach(tmp_path: Path) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "weights.npz", format="original")
    with hub() as server:
        server.repositories["lab/vit"] = {"ViT.npz": written.path.read_bytes()}
        first = type_command(server.address, tmp_path, "convert", "hf:lab/vit", "one", "--format", "vitral")
        assert first.returncode == 0, first.stderr
    second = type_command(server.address, tmp_path, "convert", "hf:lab/vit", "two", "--format", "vitral")
    assert second.returncode == 0, second.stderr
    assert vitral.load(tmp_path / "two").model.num_classes == vitral.load(tmp_path / "one").model.num_classes


@every_case("name", ["runs/photoz", "./photoz", "made/photoz", "/nowhere/photoz", "~/photoz", "runs/"])
def test_a_name_like_a_path_never_goes_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def download(name: str) -> Path:
        raise AssertionError(name)

    monkeypatch.setattr("vitral.classifier.load.download", download)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made" / "photos").mkdir(parents=True)
    with pytest.raises(WeightsError, match=f"no file or folder '{name}'") as refused:
        vitral.load(name)
    assert ("Did you mean 'made/photos/'?" in str(refused.value)) == name.startswith("made")


def test_names_that_no_system_takes_are_one_line(tmp_path: Path) -> None:
    for name in ("x" * 300, "a/" * 3000, "zero\0byte", ""):
        with pytest.raises(WeightsError):
            vitral.load(name)

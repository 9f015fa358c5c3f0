"""`vitral explain` as a user types it: drawings, pages, the network, and what cannot be explained."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Refused
from vitral.cli.main import main


def test_explain_draws(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "photos/red/1.jpg", "--json"]) == 0
    assert np.array(json.loads(capsys.readouterr().out)["relevance"]).shape == (2, 2)
    with Image.open(there / "1-explained.jpg") as drawing:
        assert drawing.format == "JPEG"
        assert drawing.size[0] > 2 * 48
    assert main(["explain", "photos/red/1.jpg", "--style", "heat", "--out", "heat.png"]) == 0
    assert "class-specific relevance" in capsys.readouterr().out
    with Image.open(there / "heat.png") as drawing:
        assert drawing.format == "PNG"


def test_explain_shows_what_is_asked_for_and_how_faithful_it_is(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["explain", "photos/red/1.jpg", "--out", "asked.png", "--faithful"]
    assert main([*command, "--label", "blue", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["label"], told["method"]) == ("blue", "class-specific relevance")
    assert told["probability"] == {row["label"]: row["probability"] for row in told["top"]}["blue"]
    assert len(told["deletion_curve"]) == len(told["insertion_curve"]) == 17
    assert main([*command, "--layer", "1", "--head", "2"]) == 0
    line = " ".join(capsys.readouterr().out.split())
    assert "; attention of layer 1 of 1, head 2 of 2, deletion 0." in line
    assert line.endswith("in asked.png")
    assert main([*command, "--method", "relevance", "--label", "red"]) == 0
    assert "class-specific relevance, deletion 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--label", "gren"), "no class 'gren'. Did you mean 'green'?"),
        (("--layer", "7"), "there is no layer 7"),
        (("--head", "3"), "there is no head 3"),
        (("--method", "rollout", "--head", "1"), "--layer and --head belong to --method attention"),
        (("--method", "rollout", "--label", "red"), "take --method relevance or --method grad-cam"),
    ],
)
def test_what_cannot_be_explained_is_one_line_and_no_drawing(
    there: Path, refused: Refused, asked: tuple[str, ...], said: str
) -> None:
    assert said in refused("explain", "photos/red/1.jpg", "--out", "never.png", *asked)
    assert not (there / "never.png").exists()


def test_explain_makes_a_page_of_a_folder(there: Path, refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "photos", "--worst-first", "--data", "photos"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert all(fact in out for fact in ("photos: 36 of 36 photos", "relevance", "photos-explained.html")), out
    assert "deletion" not in out  # which takes 33 passes an image, and is measured where --faithful asks for it
    page = (there / "photos-explained.html").read_text()
    assert page.count("<figure") == 36
    assert page.count('class="neighbours"') == 36
    assert main(["explain", "photos/red", "--out", "red.html", "--json", "--faithful"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["truth"] for row in told["images"]] == ["red"] * 12
    assert all(0 <= row["deletion"] <= 1 for row in told["images"])
    assert np.array(told["images"][0]["relevance"]).shape == (2, 2)
    assert "--style says nothing" in refused("explain", "photos", "--style", "heat", status=2)
    assert "--faithful says nothing of the network" in refused("explain", "--network", "--faithful", status=2)
    assert "--worst-first says nothing" in refused("explain", "photos/red/1.jpg", "--worst-first", status=2)
    assert "let it end in .html" in refused("explain", "photos", "--out", "page.jpg")


def test_a_page_of_this_folder_is_called_as_the_folder_is(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(there / "photos" / "blue")
    for _ in range(2):  # its own page is replaced, and is no image of the folder
        assert main(["explain", ".", "--classifier", str(there / "runs" / "photos")]) == 0
    page = there / "photos" / "blue" / "blue-explained.html"
    assert page.read_text().count("<figure") == 12
    page.unlink()


def test_explain_names_the_training_images_most_like_an_image(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "photos/red/1.jpg", "--data", "photos", "--out", "near.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if " alike: " in line]) == 5
    assert lines[0] == "Nearest training photos:"
    assert "photos/" in lines[1]
    assert not any("red/1.jpg" in line for line in lines[1:6])


def test_explain_shows_the_network(there: Path, refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--network"]) == 0
    assert "name some by --data" in capsys.readouterr().out
    assert main(["explain", "--network", "--data", "photos", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["folder"], told["num_images"], told["missing"]) == ("photos-network", 36, [])
    with np.load(there / "photos-network" / "network.npz") as arrays:
        assert arrays["attention_distance"].shape == (1, 2)
    assert "one of the two" in refused("explain", status=2)
    assert "one of the two" in refused("explain", "photos/red/1.jpg", "--network", status=2)
    assert "--head says nothing of the network" in refused("explain", "--network", "--label", "red", status=2)
    (there / "full").mkdir()
    (there / "full" / "mine.txt").write_text("mine")
    assert "holds something else" in refused("explain", "--network", "--out", "full")
    (there / "full" / "mine.txt").rename(there / "full" / "index.html")
    assert "or add --overwrite" in refused("explain", "--network", "--out", "full")
    assert (there / "full" / "index.html").read_text() == "mine"
    assert "neither patches nor" in refused("explain", "--network", "--classifier", "resnet-18", "--out", "none")
    assert not (there / "none").exists()


def test_an_unknown_method_is_a_wrong_command_line(there: Path, refused: Refused) -> None:
    line = refused("explain", "photos/red/1.jpg", "--method", "gradcam", status=2)
    assert "gradcam" in line
    assert "grad-cam" in line


def test_explain_refuses_a_name_that_says_no_format(there: Path, refused: Refused) -> None:
    assert "'drawing.pdf' does not say which image format" in refused(
        "explain", "photos/red/1.jpg", "--out", "drawing.pdf"
    )
    assert not (there / "drawing.pdf").exists()


@pytest.mark.parametrize("out", ["page.html", "drawing.jpg"])
def test_an_image_that_is_not_there_is_what_is_said(there: Path, refused: Refused, out: str) -> None:
    assert "There is no image 'nothere'" in refused("explain", "nothere", "--out", out)
    assert not (there / out).exists()


def test_explain_says_when_the_network_is_at_chance(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "photos/red/1.jpg", "--classifier", "vit-mu16", "--out", "chance.png"]) == 0
    assert "weights are random" in " ".join(capsys.readouterr().err.split())

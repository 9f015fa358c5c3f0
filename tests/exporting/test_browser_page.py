"""The page of a classifier in a real browser: a dropped image is answered as by the classifier; a bad file gets a line."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitral
from tests.chromium import BROWSER, Chromium
from vitral.errors import ModelError, StorageError
from vitral.events import ignore
from vitral.report.browser_page import FILES, MODEL, write_browser_page

DIGITS = Path(__file__).parent / "digits"  # a network that reads handwritten digits, and digits that are new to it
LINES = "[...document.querySelectorAll('.answer-line')].filter((line) => !line.textContent.endsWith('…'))"
CARDS = """[...document.querySelectorAll(".result")].map((card) => ({
  name: card.querySelector(".file").textContent,
  failed: card.classList.contains("failed"),
  line: card.querySelector(".answer-line").textContent,
  labels: [...card.querySelectorAll(".bars bdi")].map((it) => it.textContent),
  shares: [...card.querySelectorAll(".bars .value")].map((it) => it.textContent),
}))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if BROWSER is None or shutil.which("npm") is None:
        pytest.skip("needs Chromium and npm")
    folder = tmp_path_factory.mktemp("site") / "browser"
    try:
        write_browser_page(DIGITS / "model.onnx", folder, title="<b>digits</b>", listener=ignore)
    except ModelError as error:
        pytest.skip(str(error))
    # The file is of a version that took all 16-bit images to use all bits; now each uses its own, where none were learned from.
    model = folder / MODEL
    model.write_text(model.read_text().replace('"bits": 16', '"bits": null'))
    return folder


@pytest.fixture(scope="module")
def answered(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page says of files, opened from its folder, without a server."""
    home = tmp_path_factory.mktemp("given")
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (37, 51, 4), dtype=np.uint8)).save(home / "transparent.png")
    (home / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    for bits in (12, 16):
        values = rng.integers(0, 1 << bits, (30, 40)).astype(np.uint16)
        Image.fromarray(values).save(home / f"{bits} bits.png")
    deep = [home / "12 bits.png", home / "16 bits.png"]
    given = [*sorted(DIGITS.glob("sample-*.png")), *deep, home / "transparent.png", home / "broken.png"]
    with Chromium(home / "profile") as browser:
        browser.open((site / "index.html").as_uri())
        browser.give("drop", given[:-1])
        browser.choose("#file", given[-1:])
        browser.wait(f"{LINES}.length === {len(given)}")
        cards = browser.run(CARDS)
        return {
            "model": browser.run("document.getElementById('model').textContent"),
            "cards": {card["name"]: card for card in cards},
            "violations": browser.violations(),
        }


def test_the_page_answers_as_the_classifier_does(answered: dict[str, Any]) -> None:
    samples = sorted(DIGITS.glob("sample-*.png"))
    own = vitral.load(DIGITS / "model.onnx").predict(samples, top=5, listener=ignore)
    assert "10 classes" in answered["model"]
    for sample, prediction in zip(samples, own, strict=True):
        card = answered["cards"][sample.name]
        assert prediction.label == sample.stem.partition("-")[2]  # and rightly
        shown = [float(share.removesuffix("%")) / 100 for share in card["shares"]]
        assert card["labels"] == [label for label, _ in prediction.top]
        assert shown == pytest.approx([share for _, share in prediction.top], abs=0.001)


def test_axe_finds_nothing(answered: dict[str, Any]) -> None:
    assert answered["violations"] == []


def test_a_bad_file_is_said_and_others_are_answered(answered: dict[str, Any]) -> None:
    failed = {name for name, card in answered["cards"].items() if card["failed"]}
    assert failed == {"broken.png", "12 bits.png"}  # which would be almost black
    assert "save it as JPEG or PNG" in answered["cards"]["broken.png"]["line"]
    assert "save it with 8 bits a value" in answered["cards"]["12 bits.png"]["line"]


def test_names_are_text_and_only_the_page_itself_is_replaced(site: Path, tmp_path: Path) -> None:
    page = (site / "index.html").read_text()
    assert "&lt;b&gt;digits" in page
    assert "<b>digits" not in page
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "letter.txt").write_text("x")
    with pytest.raises(StorageError, match="letter"):
        write_browser_page(DIGITS / "model.onnx", tmp_path / "web", listener=ignore)
    (tmp_path / "web" / "letter.txt").rename(tmp_path / "letter.txt")
    for _ in range(2):
        write_browser_page(DIGITS / "model.onnx", tmp_path / "web", listener=ignore)
    assert {path.name for path in (tmp_path / "web").iterdir()} == set(FILES)

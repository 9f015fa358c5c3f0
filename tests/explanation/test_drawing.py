"""The drawing that is shown to others: the photo's own size, everything that must be said, nothing that was not seen."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.errors import ImageError
from vitral.explanation.drawing import INK, WARNING, Style
from vitral.explanation.explain import MARK, Explanation
from vitral.images.decode import Pixels
from vitral.images.drawing import shorten


def photo(height: int, width: int) -> Pixels:
    """Make an image of stripes."""
    pixels = np.full((height, width, 3), (30, 160, 60), dtype=np.uint8)
    pixels[:, ::7] = (240, 240, 0)
    return pixels


def explanation(height: int = 300, width: int = 400, label: str = "a cat", warning: str = "") -> Explanation:
    """Explain an image by a made-up grid that is brightest on the left."""
    grid = np.tile(np.linspace(1, 0, 6, dtype=np.float32), (4, 1))
    top = ((label, 0.873), ("a dog", 0.1))
    box = (0, 0, height, width)
    return Explanation(photo(height, width), box, label, 0.873, top, grid, "attention rollout", warning)


def holds(drawing: Pixels, colour: tuple[int, int, int]) -> int:
    """Count the pixels of exactly one colour."""
    return int((drawing == np.array(colour, dtype=np.uint8)).all(axis=2).sum())


@every_case(("style", "panels"), [("side", 2), ("overlay", 1), ("heat", 1)])
def test_the_photo_keeps_its_own_size(style: Style, panels: int) -> None:
    for height, width in ((300, 400), (1500, 2000)):
        drawing = explanation(height, width).draw(style=style)
        text = next(row for row in range(200) if not (drawing[row] == 255).all())
        assert drawing.shape[1] == panels * width + (panels + 1) * text
        assert drawing.shape[0] < height * 1.5
        left = drawing[text : text + height, text : text + width]
        assert np.array_equal(left, photo(height, width)) == (style == "side")


def test_label_and_legend_are_written() -> None:
    drawing = explanation().draw()
    foot = drawing[320:]
    assert holds(foot, INK) > 100
    assert holds(foot, (18, 22, 64)) or len(np.unique(foot.reshape(-1, 3), axis=0)) > 200  # the scale's own colours


@every_case(
    "label",
    ["", "x" * 500, "קוד " * 40, "קטה", "猫", "\x1b[31m\n\x00", "<script>alert(1)</script>", "👩‍👩‍👧 \U0010fffe"],
)
@every_case("width", [1, 90, 2000])
def test_any_right_label_can_be_drawn_in_any_width(label: str, width: int) -> None:
    drawing = explanation(120, width, label).draw()
    assert holds(drawing[:, -1:], INK) == 0
    assert holds(drawing, INK) > 30


def test_a_warning_is_drawn_whole_in_lines() -> None:
    said = "Not clearly better than guessing: 106 of 999 validation photos right (guessing gets 100)."
    for width in (60, 2000):
        with_it, without = explanation(200, width, warning=said).draw(), explanation(200, width).draw()
        assert holds(without, WARNING) == 0
        assert holds(with_it, WARNING) > 300
        assert with_it.shape[0] > without.shape[0]
        assert holds(with_it[-3:], WARNING) == 0


@every_case("width", [60, 400, 2000])
def test_the_map_of_a_class_that_was_asked_for_names_the_answer_too(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def spy(line: str, font: Any, *, width: float) -> str:  # noqa: ANN401
        written.append(shorten(line, font, width=width))
        return written[-1]

    monkeypatch.setattr("vitral.explanation.drawing.shorten", spy)
    answered = explanation(200, width, label="3")
    asked = dataclasses.replace(answered, label="0", probability=0.02, method="class-specific relevance")
    drawn = asked.draw()
    assert written[:6] == ["map of", "0", "2.0%", "answer", "3", "87.3%"]
    assert [line for line in written if line.startswith("method: class-specific")]
    assert asked.headline == "map of 0 2.0%, answer 3 87.3%"
    assert "map of 0 2.0%, answer 3 87.3%" in repr(asked)
    assert drawn.shape[0] > answered.draw().shape[0]
    assert answered.headline == "3 87.3%"


def test_what_the_network_did_not_see_is_faded() -> None:
    seen = explanation()
    cropped = Explanation(seen.photo, (50, 100, 200, 200), "x", 0.5, (("x", 0.5),), seen.relevance, "Grad-CAM")
    np.testing.assert_array_equal(cropped.image, seen.photo[50:250, 100:300])
    text = (cropped.draw(style="overlay").shape[1] - 400) // 2
    drawing = cropped.draw(style="overlay")[text : text + 300, text : text + 400].astype(int)
    outside, inside = drawing[:40].reshape(-1, 3), drawing[60:240, 110:290].reshape(-1, 3)
    assert outside.min() > 180
    assert inside.mean() < 170
    np.testing.assert_allclose(outside.mean(axis=0), 0.25 * seen.photo[:40].mean(axis=(0, 1)) + 0.75 * 255, atol=1.5)


@every_case(("name", "kind"), [("x.png", "PNG"), ("x.JPG", "JPEG"), ("x.jpeg", "JPEG"), ("x.webp", "WEBP")])
def test_the_suffix_decides_the_format(tmp_path: Path, name: str, kind: str) -> None:
    explanation().save(tmp_path / name)
    with Image.open(tmp_path / name) as image:
        assert image.format == kind
        assert image.size == explanation().draw().shape[1::-1]
    assert MARK in (tmp_path / name).read_bytes()


@every_case("name", ["x", "x.pdf", "x.png.txt", ".png"])
def test_an_unknown_suffix_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError, match=r"image format.*\.png, \.jpg"):
        explanation().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_drawing_too_large_for_its_format_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"write a \.png"):
        explanation(2, 33_000).save(tmp_path / "x.jpg")

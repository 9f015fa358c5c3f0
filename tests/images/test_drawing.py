"""Names in drawings: in any script, and never too wide."""

import numpy as np
import pytest
from PIL import ImageFont

from tests.cases import every_case
from vitral.images import drawing as module
from vitral.images.drawing import contact_sheet, lettering, shorten, wrap


def test_plain_names_are_drawn_in_the_built_in_font() -> None:
    line, font = lettering("Tiger 1", 20)
    assert line == "Tiger 1"
    assert font.getname() == ImageFont.load_default(20).getname()  # type: ignore[union-attr]


def test_letters_that_no_font_has_become_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FONTS", ())
    assert lettering("a 猫 b", 20)[0] == "a ? b"


def test_control_characters_become_spaces() -> None:
    assert lettering("a\x1b[31m\n\tb\u202e", 20)[0] == "a [31m b"


@every_case("width", [1, 40, 100, 10_000])
def test_a_long_name_is_cut(width: int) -> None:
    line, font = lettering("a rather long name of a class", 15)
    cut = shorten(line, font, width=width)
    assert font.getlength(cut) <= max(width, font.getlength("a…"))
    assert (cut == line) == (width == 10_000)
    assert cut == line or cut.endswith("…")


def test_lines_are_broken_between_words() -> None:
    lines = wrap("one two three four five", 15, width=90)
    assert " ".join(lines) == "one two three four five"
    assert len(lines) > 1


def test_a_contact_sheet_takes_any_names() -> None:
    cells = [np.zeros((9, 9, 3), dtype=np.uint8)] * 4
    assert contact_sheet(cells, ["", "猫" * 50, "x" * 500, "\n"]).startswith(b"\x89PNG")

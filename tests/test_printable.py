"""Text of unknown origin, made safe to show."""

from tests.cases import every_case
from vitral.advice import in_markdown


@every_case("text", ["<script>", "a|b", "[a](b)", "**a** _b_ `c` ~~d~~", "# a", "&lt;", "\\<b>"])
def test_markdown_shows_a_text_as_it_is(text: str) -> None:
    escaped = in_markdown(text)
    letters = iter(escaped)
    shown = [next(letters) if letter == "\\" else letter for letter in letters]
    assert "".join(shown) == text
    unescaped = [
        letter for index, letter in enumerate(escaped) if letter in "\\`*_[]<>#|~&" and escaped[index - 1] != "\\"
    ]
    assert set(unescaped) <= {"\\"}


def test_markdown_has_a_text_in_one_line() -> None:
    assert in_markdown("a\n# b") == "a \\# b"

"""The README and the site: their commands can be typed, their links lead somewhere, what no test runs says why."""

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.docs.pages import ROOT, blocks, commands, inline_commands, pages
from vitral.cli.commands import MAX_PIXELS, PLUGIN
from vitral.cli.main import app

LONGEST_README = 90  # lines
REFUSED = 2  # the exit status of a command line that is wrong
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
GENERATED = "docs/reference/"  # by docs/reference.py, while the site is built
# What a block may need that tests do not have. A new reason is a decision.
REASONS = {
    "a cluster",
    "a container engine",
    "a package registry",
    "a running server",
    "an account on the Hugging Face Hub",
    "CIFAR-10",
    "corrections by hand",
    "days of training",
    "files of other libraries",
    "ImageNet",
    "npm",
    "published files",
    "several GPUs",
    "the datasets of VTAB",
    "the Oxford pets",
}


OTHERS = ("pip", "docker", "kubectl")  # commands in which the package is named


def typed() -> list[tuple[str, list[str]]]:
    """Return every command line of Vitral in the pages, with its place."""
    found: list[tuple[str, list[str]]] = []
    for page in pages():
        found += inline_commands(page)
        for block in blocks(page):
            if block.language == "sh" and block.exits != REFUSED:
                found += [(block.place, words) for words in commands(block.text)]
    return [
        (place, words[words.index("vitral") + 1 :])
        for place, words in found
        if "vitral" in words and words[0] not in OTHERS
    ]


@every_case(("place", "words"), typed(), ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_every_command_can_be_typed(place: str, words: list[str]) -> None:
    for flag in (PLUGIN, MAX_PIXELS):  # of any command, taken off before the command is looked for
        if flag in words:
            place_of = words.index(flag)
            words = words[:place_of] + words[place_of + 2 :]
    function, _, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert callable(function), place


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


@every_case("page", pages())
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = [one or other for one, other in LINK.findall(page.read_text())]
    for target in targets:
        path, _, anchor = target.partition("#")
        if path.startswith(("http://", "https://", "mailto:")) or not path:
            continue
        file = (page.parent / path).resolve()
        if file.relative_to(ROOT).as_posix().startswith(GENERATED):
            continue
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@every_case("page", pages())
def test_commands_are_fenced_so_that_they_are_run(page: Path) -> None:
    lines = page.read_text().splitlines()
    loose = [
        line for before, line in zip(["", *lines], lines, strict=False) if not before and re.match(r"    vitral ", line)
    ]
    assert not loose, "an indented block is not run; fence it with ```sh"


def test_what_no_test_runs_says_why() -> None:
    found = [block for page in pages() for block in blocks(page) if block.language in ("sh", "python")]
    reasons = Counter(block.needs for block in found)
    run = reasons.pop(None, 0)
    assert set(reasons) <= REASONS
    assert run > sum(reasons.values()), f"{run} blocks are run, others need {dict(reasons)}"


def test_a_block_is_found_with_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text('# `No folder`\n\n```sh needs="a network" exits="1"\nvitral check a/ \\\n    --json  # why\n```\n')
    (block,) = blocks(page)
    assert (block.place, block.needs, block.exits, block.heading) == ("page.md:3", "a network", 1, "`No folder`")
    assert list(commands(block.text)) == [["vitral", "check", "a/", "--json"]]


def test_the_site_shows_every_block_as_code() -> None:
    shown = runpy.run_path(str(ROOT / "docs" / "fences.py"))["on_page_markdown"]
    for page in pages():
        opened = False
        for line in shown(page.read_text(encoding="utf-8")).splitlines():
            fence = re.match(r" *```(.*)$", line)
            if fence is not None:
                # What stands behind the language is no fence to the site, and the rest of the page is its text.
                assert fence[1] == "" if opened else re.fullmatch(r"\w*", fence[1]), f"{page.name}: {line}"
                opened = not opened
        assert not opened, f"{page.name} has an open block"

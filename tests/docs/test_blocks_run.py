"""Every command line and program of the README and the site runs, on small data, one folder for each page."""

import glob
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, commands, pages
from tests.docs.world import make_world, program_shortened, shortened
from tests.forks import Fork, script, type_command

pytestmark = pytest.mark.long

RUN = {
    page.relative_to(ROOT).as_posix(): runnable
    for page in pages()
    if (runnable := [block for block in blocks(page) if block.needs is None and block.language in ("sh", "python")])
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the pages name; not to be changed."""
    folder = tmp_path_factory.mktemp("docs")
    make_world(folder)
    return folder


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_in_their_order(page: str, world: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(world, tmp_path / "here")
    make_room(RUN[page], folder)
    for block in RUN[page]:
        status, said = run(block, folder)
        assert status == block.exits, f"{block.place} ended with {status}:\n{said}"
        if block.heading.startswith("`"):
            assert_said(block.heading.strip("`"), said, block.place)


def make_room(found: list[Block], folder: Path) -> None:
    """Remove the runs that the page makes itself, and does not go on with."""
    lines = [words for block in found if block.language == "sh" for words in commands(block.text)]
    for words in lines:
        if "--out" in words and "--resume" not in words:
            shutil.rmtree(folder / words[words.index("--out") + 1], ignore_errors=True)


def run(block: Block, folder: Path) -> tuple[int, str]:
    """Run a block; return the exit status of the command that ended it, and what all of it printed."""
    if block.language == "python":
        done = Fork(script, program_shortened(block.text), folder=folder).ended()
        return done.returncode, done.stdout + done.stderr
    said = ""
    for words in commands(block.text):
        assert words[0] == "vitral", (
            f"{block.place}: only commands of Vitral are run, not {words[0]}; say what it needs"
        )
        _, *arguments = shortened(words)
        done = type_command(folder, *(name for word in arguments for name in found(word, folder)))
        said += f"$ {' '.join(words)}\n{done.stdout}{done.stderr}"
        if done.returncode:
            return done.returncode, said
    return 0, said


def found(word: str, folder: Path) -> list[str]:
    """Return what a shell makes of a word with a star."""
    names = sorted(glob.glob(word, root_dir=folder)) if "*" in word else []
    return names or [word]


def assert_said(message: str, said: str, place: str) -> None:
    """Check that a message was printed; … stands for what differs."""
    rest = " ".join(said.split())
    for part in filter(None, map(str.strip, message.split("…"))):
        assert part in rest, f"{place}: '{part}' was not said:\n{said}"
        _, _, rest = rest.partition(part)

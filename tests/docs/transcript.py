"""The first hour of somebody with photos, as a page: `python -m tests.docs.transcript PHOTOS [PAGE]`.

It runs the commands in a messy folder made of the photos, and writes what was said. A test replays the same commands on small
generated photos.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.docs.messy import Messy, make_messy
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "first-hour.md"
# In this order, as the README says; TIME is replaced.
COMMANDS = (
    "vitral check photos/",
    "vitral finetune photos/ --time TIME",
    "vitral predict holiday/ --sort-into sorted/",
    "vitral explain photos/ --worst-first",
    "vitral fix photos/",
)
TIME = "5m"

Run = Callable[[list[str], Path], subprocess.CompletedProcess[str]]


def replay(folder: Path, run: Run, *, time: str) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Run the commands in a messy folder; return each with what came of it."""
    lines = [command.replace("TIME", time) for command in COMMANDS]
    return [(line, run(line.split(), folder)) for line in lines]


def typed(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, its two streams in the order in which they came."""
    began = time.monotonic()
    line = [sys.executable, "-m", *words]
    done = subprocess.run(line, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    done.args = time.monotonic() - began
    return done


def page(messy: Messy, said: Sequence[tuple[str, subprocess.CompletedProcess[str]]]) -> str:
    """Return the page."""
    parts = [
        "# The first hour",
        f"{messy.learned} photos in class folders and {messy.loose} loose ones, as a phone leaves them: {messy.heic} HEIC "
        f"files, files that were cut short, {len(messy.misplaced)} photos in the wrong folder, photos on their side, a video. "
        "What was typed, and all that was said.",
    ]
    for line, done in said:
        parts.append(f"```console\n$ {line}\n{done.stdout.strip()}\n```")
        parts.append(f"*Exit status {done.returncode}, {done.args:.0f} s.*")
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Run the hour on the photos that the command line names, and write its page."""
    source, target = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else PAGE
    with tempfile.TemporaryDirectory() as temporary:
        messy = make_messy(source, Path(temporary))
        target.write_text(page(messy, replay(Path(temporary), typed, time=TIME)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

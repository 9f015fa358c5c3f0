"""What the tests of the command line share: images, one finished run, and a way to run what must be refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.forks import type_command
from vitral.cli.main import main

QUICK = ("--from", "vit-mu16", "--image-size", "32", "--set", "steps=12", "--set", "batch_size=8", "--set", "workers=0")

Refused = Callable[..., str]


def write_images(root: Path, classes: dict[str, int]) -> None:
    """Write small images of noise, each class tinted."""
    rng = np.random.default_rng(0)
    for place, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 80, (40, 48, 3), dtype=np.uint8)
            pixels[:, :, place % 3] += 120
            Image.fromarray(pixels).save(root / name / f"{number}.jpg")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images and a finished run, as a newcomer would have it."""
    folder = tmp_path_factory.mktemp("home")
    write_images(folder / "photos", {"red": 12, "green": 12, "blue": 12})
    # A recipe is named so that what it trains is delivered, at chance as it is after a few steps.
    done = type_command(folder, "finetune", "--data", "photos", "--recipe", "scratch", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "vitral predict photos/" in done.stdout
    assert all(fact in done.stderr for fact in ("3 classes", "30 photos for training", "runs/photos")), done.stderr
    return folder


@pytest.fixture
def there(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the current folder."""
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must fail, and return its one line: the last of standard error; standard output stays empty."""

    def run(*arguments: str, status: int = 1) -> str:
        capsys.readouterr()
        assert main(arguments) == status
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        lines = err.splitlines()
        assert [line for line in lines if line.startswith("vitral: ")] == lines[-1:]
        return lines[-1]

    return run

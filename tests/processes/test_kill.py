"""A real run, killed at random instants and resumed, ends in the bits of an uninterrupted one (R1, R5)."""

import hashlib
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Record
from tests.forks import Fork
from tests.processes import short_run

SEED = 20201022


def start(folder: Path) -> Fork:
    return Fork(short_run.main, folder)


def finish(folder: Path) -> float:
    began = time.monotonic()
    done = start(folder).ended()
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def digest(folder: Path) -> dict[str, str]:
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    assert newest.name == "step-00000200"
    files = {"tensors": newest / "tensors-00000-00000.safetensors", "log": folder / "metrics.jsonl"}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def kill(folder: Path, after: float) -> None:
    process = start(folder)
    time.sleep(after)
    process.kill()


@dataclass(frozen=True)
class Whole:
    """What a run that nothing interrupted took, in seconds, and ended in."""

    seconds: float
    digest: dict[str, str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole") / "run"
    return Whole(finish(folder), digest(folder))


def check_kills(whole: Whole, tmp_path: Path, kills: int, chain: int) -> None:
    """Kill `kills` times in all, `chain` times one after another before a run may end."""
    rng = np.random.default_rng(SEED)
    for number in range(0, kills, chain):
        folder = tmp_path / f"killed-{number}"
        for _ in range(min(chain, kills - number)):
            kill(folder, rng.uniform(0, whole.seconds))
        finish(folder)
        assert digest(folder) == whole.digest
        assert list(folder.glob("checkpoints/.vitral-partial-*")) == []


@pytest.mark.requirement(id="R1")
def test_three_kills(whole: Whole, tmp_path: Path) -> None:
    check_kills(whole, tmp_path, kills=3, chain=3)


@pytest.mark.requirement(id="R1")
@pytest.mark.slow
def test_fifty_kills(whole: Whole, tmp_path: Path, record_counts: Record) -> None:
    check_kills(whole, tmp_path, kills=50, chain=2)
    record_counts("R1", {"kills": 50, "equal": 50, "seed": SEED})


@pytest.mark.requirement(id="R5")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
        pytest.param(signal.SIGUSR1, 138, marks=pytest.mark.long),
    ],
)
def test_a_signal_saves_and_the_run_goes_on(whole: Whole, tmp_path: Path, number: signal.Signals, code: int) -> None:
    folder = tmp_path / "stopped"
    process = start(folder)
    log = folder / "checkpoints"
    while process.poll() is None and not list(log.glob("step-*")):
        time.sleep(0.02)
    process.send_signal(number)  # to the workers too, as a terminal sends it
    done = process.ended()
    assert done.returncode == code
    assert "`resume=True`" in done.stderr
    assert "Traceback" not in done.stderr
    finish(folder)
    assert digest(folder) == whole.digest

"""A run killed at random instants and then used otherwise than before: the same bits, or one line that says why not (R1)."""

import hashlib
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import write_images
from tests.conftest import Record
from tests.forks import Fork, command

pytestmark = pytest.mark.long

SEED = 20201022
SETTINGS = ("steps=60", "batch_size=8", "workers=1", "checkpoint.every_steps=5", "evaluation.every_steps=20")
BEGIN = ("--data", "photos", "--from", "vit-mu16", "--image-size", "32", "--out", "run", "--no-baselines")


def start(home: Path, *arguments: str, threads: int = 1) -> Fork:
    return Fork(command, ("finetune", *arguments), threads, folder=home)


def begin(home: Path) -> Fork:
    return start(home, *BEGIN, *(part for setting in SETTINGS for part in ("--set", setting)))


def go_on(home: Path, *arguments: str, threads: int = 1) -> Fork:
    return start(home, "--resume", "--out", "run", *arguments, threads=threads)


def ended(process: Fork) -> tuple[int, str]:
    done = process.ended()
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def kill(process: Fork, home: Path, saved: int) -> None:
    """Kill a run and its workers as soon as it has a checkpoint of so many steps, or at its end if that comes first."""
    while process.poll() is None and not (home / "run" / "checkpoints" / f"step-{saved:08d}").is_dir():
        time.sleep(0.01)
    process.kill()


def digest(home: Path) -> dict[str, str]:
    names = ("metrics.jsonl", "evaluation.json", "classifier/weights.safetensors")
    return {name: hashlib.sha256((home / "run" / name).read_bytes()).hexdigest() for name in names}


def check_uses(tmp_path: Path, rounds: int) -> int:
    whole, home = tmp_path / "whole", tmp_path / "killed"
    write_images(whole / "photos", {"red": 20, "green": 20})
    assert ended(begin(whole))[0] == 0
    expected, uses = digest(whole), 0
    rng = np.random.default_rng(SEED)
    for _ in range(rounds):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(whole / "photos", home / "photos")
        kill(begin(home), home, 5 * int(rng.integers(1, 4)))
        added = home / "photos" / "red" / "new.jpg"
        shutil.copy(home / "photos" / "green" / "0.jpg", added)
        others = {
            ("--data", "photos"): "The data changed",
            ("--seed", "9"): "began with",
            ("--data", "digits"): "classes",
        }
        for arguments, said in others.items():
            code, errors = ended(go_on(home, *arguments))
            assert code == 1
            assert said in errors.splitlines()[-1]
            added.unlink(missing_ok=True)
            uses += 1
        kill(go_on(home), home, 5 * int(rng.integers(5, 9)))  # a resume, resumed below
        together = [go_on(home), go_on(home)]
        codes, errors_of = zip(*map(ended, together), strict=True)
        assert sorted(codes) in ([0, 0], [0, 1])
        assert all("is working in 'run'" in text for code, text in zip(codes, errors_of, strict=True) if code)
        assert digest(home) == expected
        code, errors = ended(go_on(home, threads=2))
        assert code == 0
        assert "threads 1, now 2" in " ".join(errors.split())
        assert list((home / "run").rglob(".vitral-*")) == []
        uses += 4
    return uses


@pytest.mark.requirement(id="R1")
def test_a_killed_run_used_otherwise(tmp_path: Path) -> None:
    check_uses(tmp_path, rounds=1)


@pytest.mark.requirement(id="R1")
@pytest.mark.slow
def test_ten_killed_runs_used_otherwise(tmp_path: Path, record_counts: Record) -> None:
    record_counts("R1-uses", {"uses": check_uses(tmp_path, rounds=10), "seed": SEED})

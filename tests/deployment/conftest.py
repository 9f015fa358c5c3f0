"""The run on which the deployment's tests measure, calibrate and speed up."""

import shutil
from pathlib import Path

import pytest

import vitral
from vitral.events import ignore


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the digits, long enough to be right most of the time."""
    out = tmp_path_factory.mktemp("run") / "run"
    network = ["model=vit-mu4", "depth=3"]
    steps = ["steps=150", "batch_size=64", "optimizer.lr=0.006", "workers=0", "evaluation.every_steps=150"]
    vitral.finetune("digits", recipe="scratch", out=out, overrides=[*network, *steps], baselines=False, listener=ignore)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")

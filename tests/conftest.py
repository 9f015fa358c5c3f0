"""What every test shares: one thread, so that results do not hang on the machine, and a tiny network."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vitral.models.vit_config import ViTConfig

LONGEST = ("tests/processes/", "tests/recipes/", "tests/fuzz/", "tests/studies/", "tests/test_plugins.py")

# Processes that the tests start keep to one thread, too: of two workers on two cores more would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Record = Callable[[str, dict[str, int]], None]

TINY = ViTConfig(image_size=(16, 16), patch_size=(4, 4), dim=16, depth=2, mlp_dim=32, num_heads=2, num_classes=3)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take longest, so that none of them is left over for one process at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def tiny_config() -> ViTConfig:
    """A ViT of two blocks for images of 16 pixels and 3 classes."""
    return dataclasses.replace(TINY)


@pytest.fixture
def record_counts() -> Record:
    """Write a test's counts and seed as JSON into the folder named by VITRAL_RELIABILITY_OUT, if it is set."""

    def record(name: str, counts: dict[str, int]) -> None:
        if folder := os.environ.get("VITRAL_RELIABILITY_OUT"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.json").write_text(json.dumps(counts))

    return record

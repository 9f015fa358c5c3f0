"""What every test shares: no network, empty caches, one thread, so that results do not hang on the machine; a tiny network."""

import atexit
import dataclasses
import functools
import gc
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

# Before anything reads them, and for the commands that tests type, too: no weights but those that a test puts there itself.
CACHES = Path(tempfile.mkdtemp(prefix="vitral-tests-"))
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(CACHES / "hf"), "XDG_CACHE_HOME": str(CACHES)}
os.environ.setdefault(
    "MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib")
)  # to look for fonts anew takes seconds
atexit.register(shutil.rmtree, CACHES, ignore_errors=True)

import tests.unflushed  # noqa: E402, F401  # for what it does to os.fsync
from vitral.models.vit_config import ViTConfig  # noqa: E402  # see above
from vitral.training import facts  # noqa: E402

# To export a network makes millions of objects, and to look for garbage among all of them, that often, takes a tenth of it.
gc.set_threshold(50_000, 20, 100)

LONGEST = ("tests/processes/", "tests/recipes/", "tests/fuzz/", "tests/studies/", "tests/test_plugins.py")

# Processes that the tests start keep to one thread, too: of two workers on two cores more would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Record = Callable[[str, dict[str, int]], None]

TINY = ViTConfig(image_size=(16, 16), patch_size=(4, 4), dim=16, depth=2, mlp_dim=32, num_heads=2, num_classes=3)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take longest, so that none of them is left over for one process at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST) and not item.get_closest_marker("long"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _one_measurement() -> Iterator[None]:
    """Measure the machine's speed once: hundreds of runs would take a second each for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "training_speed", functools.cache(facts.training_speed))
        yield


@pytest.fixture
def tiny_config() -> ViTConfig:
    """A ViT of two blocks for images of 16 pixels and 3 classes."""
    return dataclasses.replace(TINY)


@pytest.fixture(scope="session")
def starts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ and starts for them."""
    from tests.studies.made_starts import make_starts  # which takes the tiny network from here

    folder = tmp_path_factory.mktemp("starts")
    make_starts(folder)
    return folder


@pytest.fixture
def among_starts(starts_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the current folder."""
    monkeypatch.chdir(starts_folder)
    return starts_folder


@pytest.fixture
def few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the built-in scenes of digits be few: where as many as there are would only take longer."""
    from tests.regions import FEW
    from vitral.data.digit_scenes import COUNTS

    for split, count in FEW.items():
        monkeypatch.setitem(COUNTS, split, count)


@pytest.fixture
def record_counts() -> Record:
    """Write a test's counts and seed as JSON into the folder named by VITRAL_RELIABILITY_OUT, if it is set."""

    def record(name: str, counts: dict[str, int]) -> None:
        if folder := os.environ.get("VITRAL_RELIABILITY_OUT"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.json").write_text(json.dumps(counts))

    return record

"""What the tests of several ways to learn share: images, a start, and one run that nothing interrupted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.training.candidates.attempts_run import make_short, tune
from tests.training.candidates.material import a_start, stripes
from vitral.data.loader import TrainingBatches
from vitral.events import Event, Message
from vitral.models.model import Model
from vitral.training import loop
from vitral.training.candidates import trained as made
from vitral.training.candidates.result import RunResult
from vitral.training.loop import TrainingResult
from vitral.training.settings.recipe import Recipe


class Learned(NamedTuple):
    """What an attempt learned by: its stochastic depth, its images, its recipe."""

    stochastic_depth: float
    batches: TrainingBatches
    recipe: Recipe


@pytest.fixture
def short() -> Iterator[None]:
    """Few updates in every attempt."""
    with make_short():
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that no linear model on pixels tells apart."""
    photos = tmp_path_factory.mktemp("data") / "photos"
    for seed, (split, count) in enumerate({"train": 64, "val": 15, "test": 15}.items()):  # few, as a batch is a share
        stripes(photos / split, count, seed=seed)
    return photos


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with blocks enough for the last of them to learn alone."""
    return a_start(tmp_path_factory.mktemp("start"), depth=3)


@pytest.fixture(scope="session")
def learned() -> dict[str, Learned]:
    """What each attempt of `whole` learned by, by its folder's name; filled as that runs."""
    return {}


@pytest.fixture(scope="session")
def whole(
    tmp_path_factory: pytest.TempPathFactory, data: Path, start: Path, learned: dict[str, Learned]
) -> tuple[RunResult, list[str]]:
    """A run that nothing interrupted, and what it said."""

    def noted(model: Model, batches: TrainingBatches, **given: Any) -> TrainingResult:  # noqa: ANN401
        learned[given["folder"].name] = Learned(model.config.stochastic_depth, batches, given["recipe"])
        return loop.train(model, batches, **given)

    with make_short(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "train", noted)
        said: list[Event] = []
        result = tune(data, tmp_path_factory.mktemp("whole") / "run", start, listener=said.append)
    return result, [event.text for event in said if isinstance(event, Message)]

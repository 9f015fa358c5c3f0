"""Larger images as one of several ways to learn: planned by itself, trained at its own size, resumed, and delivered so."""

import json
from pathlib import Path

import numpy as np
import pytest

import vitral
from tests.training.candidates.attempts_run import SETTINGS, attempts_of, contents, go_on, in_attempt, tune
from tests.training.candidates.material import SIZE, Killed, a_start, killed_when, write
from vitral.events import ignore
from vitral.training.candidates.result import RunResult, choose
from vitral.training.choose import attempts
from vitral.training.facts import WeightsFacts
from vitral.training.plan import ALL, ANEW, FINER, LAST, LORA
from vitral.training.settings.recipe import load_recipe

FINE = 24  # half as much again
OWN = {"image_size": None, "overrides": SETTINGS}  # who says a size gets no other

pytestmark = [pytest.mark.usefixtures("short"), pytest.mark.long]


def photos(folder: Path, count: int = 150) -> Path:
    """Rows and columns of stripes in images of twice the network's size."""
    random = np.random.default_rng(0)
    for name in ("columns", "rows"):
        for index in range(count):
            wave = np.sin(2 * np.pi * (np.arange(2 * SIZE) / 8 + random.random()))
            plane = np.broadcast_to(wave, (2 * SIZE, 2 * SIZE))
            plane = plane if name == "columns" else plane.T
            noise = random.normal(0, 8, (2 * SIZE, 2 * SIZE, 3))
            write(folder / name / f"{index}.png", np.clip(128 + 80 * plane[:, :, None] + noise, 0, 255))
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos(tmp_path_factory.mktemp("large") / "photos")


@pytest.fixture
def run(tmp_path: Path, large: Path) -> RunResult:
    return tune(large, tmp_path / "run", a_start(tmp_path / "start", depth=3), **OWN)


def test_images_that_show_more_are_tried_larger(run: RunResult, large: Path) -> None:
    assert run.choice is not None
    assert [one.name for one in run.choice.candidates[1:]] == [LAST, LORA, ALL, ANEW, FINER]
    sizes = {folder.name: vitral.load(folder).model.image_size for folder in attempts_of(run.run.folder)}
    own = (SIZE, SIZE)
    assert sizes == {
        "last-blocks": own,
        "lora": own,
        "all-weights": own,
        "as-from-scratch": own,
        "larger-images": (FINE, FINE),
    }
    finer = run.run.folder / "attempts" / "larger-images"
    assert load_recipe(finer / "recipe.toml").image_size == FINE
    said = json.loads((finer / "attempt.json").read_text())["figure"]
    scores = vitral.evaluate(finer, large, split="validation", listener=ignore)
    assert scores.headline() == pytest.approx(said)  # prepared at the size that it learned at


def test_the_larger_size_is_delivered_where_it_is_best(
    tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = attempts.changes_of

    def hardly(way: str, weights: WeightsFacts, finer: int | None = None) -> tuple[dict[str, object], str]:
        changes, reason = own(way, weights, finer)
        return changes | ({} if way == FINER else {"optimizer.lr": 1e-9}), reason

    monkeypatch.setattr(attempts, "changes_of", hardly)  # so that the others learn nothing
    result = tune(large, tmp_path / "run", a_start(tmp_path / "start", depth=3), **OWN)
    assert result.choice is not None
    assert result.choice.best == FINER
    delivered = vitral.load(tmp_path / "run")
    assert delivered.model.image_size == delivered.preprocessing.image_size == (FINE, FINE)
    assert load_recipe(tmp_path / "run" / "recipe.toml").image_size == FINE
    assert vitral.evaluate(delivered, large, listener=ignore).headline() == result.evaluation.headline()
    figure = choose(result.choice.candidates, delivered.task.headline)
    assert figure.best == FINER


@pytest.mark.parametrize("step", [3, 14])
def test_it_goes_on_after_a_kill_to_the_same_bits(run: RunResult, tmp_path: Path, large: Path, step: int) -> None:
    killed = tmp_path / "killed"
    with pytest.raises(Killed):
        tune(large, killed, tmp_path / "start", **(OWN | {"listener": killed_when(in_attempt(4, step)())}))
    assert go_on(killed).choice == run.choice
    assert contents(killed) == contents(run.run.folder)


def test_a_network_of_one_size_alone_learns_at_its_own(tmp_path: Path, large: Path) -> None:
    start = a_start(tmp_path / "start", depth=3, position="relative")
    result = tune(large, tmp_path / "run", start, **OWN)
    assert result.choice is not None
    assert [one.name for one in result.choice.candidates[1:]] == [LAST, LORA, ALL, ANEW]
    assert not (tmp_path / "run" / "attempts" / "larger-images").exists()  # nor was it tried and given up
    assert result.classifier.model.image_size == (SIZE, SIZE)


def test_who_says_a_size_gets_that_size(tmp_path: Path, large: Path) -> None:
    result = tune(large, tmp_path / "run", a_start(tmp_path / "start", depth=3))
    assert FINER not in {one.name for one in result.choice.candidates} if result.choice else False

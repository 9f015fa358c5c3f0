"""A run that learns objects, killed at random instants and resumed, ends in the bits of an uninterrupted one (R1).

With the head that photos of objects get, and with EoMT's queries. VITRAL_OBJECTS names photos of your own in place of
drawn ones.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Record
from tests.discs import Discs
from tests.forks import Fork
from tests.processes import region_run
from vitral.checks.check_resume import _compare
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.dense.rims import RimHeadConfig

FEW, KILLS = 4, 20  # in all,
CHAIN = 2  # and one after another before a run may end
PHOTOS = 20
SEED = 20201022
HEADS = (RimHeadConfig.kind, QueryHeadConfig.kind)


@pytest.fixture
def photos(tmp_path: Path) -> str:
    """Photos of discs, each with a folder of masks beside it."""
    drawn, folder = Discs(PHOTOS, objects=True, colours=1), tmp_path / "photos"
    for number in range(PHOTOS):
        label, own = drawn.label(number), folder / str(number)
        for kind in ("images", "masks"):
            (own / kind).mkdir(parents=True)
        Image.fromarray(drawn.image(number)).save(own / "images" / f"{number}.png")
        for row, mask in enumerate(label.bitmaps()):
            Image.fromarray(mask.astype(np.uint8) * 255).save(own / "masks" / f"{row}.png")
    return os.environ.get("VITRAL_OBJECTS", str(folder))


def finish(folder: Path, photos: str, head: str) -> float:
    began = time.monotonic()
    done = Fork(region_run.main, folder, photos, head).ended(timeout=1200)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def killed(folder: Path, photos: str, head: str, after: float) -> float | None:
    """Kill a run after so many seconds; return in how many it was done, where that was before."""
    began, process = time.monotonic(), Fork(region_run.main, folder, photos, head)
    process.process.join(after)
    took = None if process.poll() is None else time.monotonic() - began
    process.kill()
    return took


def check_kills(tmp_path: Path, photos: str, head: str, count: int) -> dict[str, int]:
    whole, rng, kills, runs = tmp_path / "whole", np.random.default_rng(SEED), 0, 0
    seconds = finish(whole, photos, head)
    while kills < count:
        folder, runs = tmp_path / f"killed-{runs}", runs + 1
        for link in range(CHAIN):
            took = killed(folder, photos, head, rng.uniform(0, seconds))
            kills += took is None
            if took is not None and link == 0:
                seconds = took  # the first run was slower: it had to import
        finish(folder, photos, head)
        assert set(_compare(whole, folder).values()) == {True}
        assert list(folder.rglob(".vitral-partial-*")) == []
    return {"kills": kills, "runs": runs, "equal": runs, "seed": SEED}


@pytest.mark.requirement(id="R1")
@pytest.mark.long
@pytest.mark.parametrize("head", HEADS)
def test_kills_of_a_run_that_learns_objects(tmp_path: Path, photos: str, head: str) -> None:
    check_kills(tmp_path, photos, head, FEW)


@pytest.mark.requirement(id="R1")
@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_twenty_kills_of_a_run_that_learns_objects(
    tmp_path: Path, photos: str, record_counts: Record, head: str
) -> None:
    record_counts(f"R1-objects-{head}", check_kills(tmp_path, photos, head, KILLS))

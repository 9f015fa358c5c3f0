"""Hostile files, folders, names and command lines: the corpus of all that broke, and scenes that are drawn (see `rule`)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.rule import Runner, play, running
from tests.fuzz.scene import Scene, read_scene
from tests.fuzz.strategies import scenes

pytestmark = [pytest.mark.requirement(id="R16"), pytest.mark.long]
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.toml"))
ALONE = ("pipe-t-csv", pytest.param("link-broken", marks=pytest.mark.slow))
DRAWN = 24  # scenes in the suite; `make fuzz` draws for an hour


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with running() as started:
        yield started


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_what_once_broke_holds(path: Path, runner: Runner) -> None:
    broken, _ = play(read_scene(path), runner)
    assert not broken


@pytest.mark.parametrize("name", ALONE)
def test_the_same_in_a_process_of_its_own(name: str, runner: Runner) -> None:
    broken, _ = play(read_scene(Path(__file__).parent / "corpus" / f"{name}.toml"), runner, alone=True)
    assert not broken


@settings(
    max_examples=DRAWN,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
@given(scene=scenes())
def test_drawn_scenes(scene: Scene, runner: Runner) -> None:
    broken, _ = play(scene, runner)
    assert not broken, scene.to_toml()


def test_the_rule_sees_what_it_forbids(runner: Runner) -> None:
    """A rule that nothing can break would prove nothing."""
    from tests.fuzz.rule import Ended, compare, judge
    from tests.fuzz.scene import Step

    step = Step(("check", "data"))
    fine = Ended(1, False, 0, "", "vitral: no.\n")
    assert not list(judge(step, fine, 0))
    for ended in (
        Ended(1, False, 0, "", "Traceback (most recent call last)\n"),
        Ended(1, False, 0, "", ""),
        Ended(1, False, 0, "", "vitral: one.\nvitral: two.\n"),
        Ended(-9, True, 0, "", ""),
        Ended(-11, False, 0, "", "vitral: no.\n"),
        Ended(0, False, 2 << 30, "", ""),
        Ended(0, False, 0, "", "\x1b[31m"),
    ):
        assert list(judge(step, ended, 0))
    before = {"data": (1, 2, None), "data/0.png": (1, 2, "x")}
    assert not list(compare(step, ("check", "data"), before, before))
    assert list(compare(step, ("check", "data"), before, {"data": (1, 2, None)}))
    assert list(compare(step, ("check", "data"), before, before | {"data/0.png": (1, 2, "y")}))
    assert list(compare(step, ("check", "data"), before, before | {"new": (1, 2, "")}))
    assert not list(compare(step, ("x", "--out", "new"), before, before | {"new": (1, 2, "")}))

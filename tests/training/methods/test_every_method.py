"""Every method that comes with Vitral, killed and resumed, ends in the same bits, alone and in two processes."""

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.forks import job
from tests.processes import ranks_run
from tests.processes.test_ranks import TIGHT, close, history, same_bits
from tests.training.methods.test_distillation import saved
from vitral.training.settings import methods

pytestmark = pytest.mark.long

PLAIN = {"augmentation": {"crop": "none", "shift": 0.2}}
METHODS: dict[str, dict[str, Any]] = {
    "masked-patches": {},
    "procedural": {"kinds": 4},
    "distillation": {"answers": "soft", "temperature": 2.0},
    "feature-distillation": {},
    "noisy-student": {"unlabelled": "digits", "ratio": 0.5, "confidence": 0.0},
    "meta-pseudo-labels": {"unlabelled": "digits", "ratio": 1.0, "student_wait": 3, "uda_steps": 4, "magnitude": 5.0},
    "semantic-softmax": {},
    "masked-autoencoder": {"decoder_depth": 1, "decoder_width": 16, "decoder_heads": 2},
    "lejepa": {"views": 3, "hidden": 32, "dimensions": 8, "directions": 16},
}
BY_IMAGE = ("masked-patches", "masked-autoencoder")  # what is hidden is drawn for each process's own images
TAUGHT = ("distillation", "feature-distillation", "noisy-student")


def changes(name: str, tmp_path: Path) -> dict[str, Any]:
    more = {"teacher": str(saved(tmp_path / "teacher"))} if name in TAUGHT else {}
    if name == "semantic-softmax":
        (tmp_path / "tree.tsv").write_text("".join(f"{digit}\t{('low', 'high')[digit // 5]}\n" for digit in range(10)))
        more = {"tree": str(tmp_path / "tree.tsv")}
    if name == "meta-pseudo-labels":  # images of both kinds go through together, in another order in several processes
        return {"method": {"name": name, **METHODS[name]}, "regularization": {"stochastic_depth": 0.0}, **PLAIN}
    return {"method": {"name": name, **METHODS[name], **more}, **PLAIN}


def train(folder: Path, ranks: int, settings: dict[str, Any]) -> int:
    ended = job(ranks, ranks_run.main, folder, settings)
    if "kill" not in settings:  # else the others may end as it pleases them, without the one that they wait for
        assert not any(done.returncode for done in ended), [done.stderr[-3000:] for done in ended]
    return min(done.returncode for done in ended)


def test_no_method_is_left_out() -> None:
    named = {name: get_args(methods.section_of(name).model_fields["name"].annotation) for name in methods.METHODS}
    assert all(literal == (name,) for name, literal in named.items()), named
    learn_regions = {"mask-queries"}  # of which these data have none
    assert named.keys() == METHODS.keys() | {"supervised"} | learn_regions


Whole = Callable[[str, int], tuple[dict[str, Any], Path]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The settings of a method, and the folder of a run by so many processes that nothing disturbed."""
    base = tmp_path_factory.mktemp("whole")

    @functools.cache
    def run(name: str, ranks: int) -> tuple[dict[str, Any], Path]:
        (base / name).mkdir(exist_ok=True)
        settings = changes(name, base / name)
        assert train(base / name / str(ranks), ranks, dict(settings)) == 0
        return settings, base / name / str(ranks)

    return run


@pytest.mark.parametrize(("ranks", "kills"), [(1, (8, 13)), (2, (13,))], ids=["alone-twice", "two-processes-once"])
@pytest.mark.parametrize("name", METHODS)
def test_killed_and_resumed_it_ends_in_the_same_bits(
    tmp_path: Path, whole: Whole, name: str, ranks: int, kills: tuple[int, ...]
) -> None:
    settings, undisturbed = whole(name, ranks)
    killed = tmp_path / "killed"
    for kill in kills:  # of two, the second is of a resume
        assert train(killed, ranks, settings | {"kill": kill}) == -signal.SIGKILL
        (tmp_path / "killed-killed").unlink()
    assert train(killed, ranks, dict(settings)) == 0
    assert same_bits(undisturbed, killed)


@pytest.mark.parametrize("name", METHODS)
def test_two_processes_learn_what_one_learns(whole: Whole, name: str) -> None:
    one, two = (history(whole(name, ranks)[1]) for ranks in (1, 2))
    if name in BY_IMAGE:
        for row in (*one.values(), *two.values()):
            row.pop("gradient_norm", None)
    assert close(one, two, 0.2 if name in BY_IMAGE else TIGHT)

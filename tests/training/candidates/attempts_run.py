"""A run that tries several ways to learn, for few updates each, also as one process of a job."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vitral
from vitral import distributed
from vitral.events import ignore
from vitral.training.candidates import first
from vitral.training.planning import attempts, automatic

SETTINGS = ("workers=0", "checkpoint.every_steps=5", "precision=fp32")
STEPS = 24


@contextmanager
def make_short() -> Iterator[None]:
    """Let every attempt make a few updates that learn something, and the probe, of few images, less than they."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automatic, "LEAST_STEPS", STEPS)  # to say so in the recipe would mean one way to learn
        patch.setattr(automatic, "CPU_PASSES", 1)
        patch.setattr(attempts, "LORA_LR", 1e-2)
        patch.setattr(attempts, "FULL_LR", 1e-2)
        patch.setattr(first, "MOST_IMAGES", 4)
        yield


def main(run: Path, data: Path, start: Path) -> int:
    """Carry the run out, and write what this process ended with beside it."""
    with make_short():
        result = vitral.finetune(data, source=start, out=run, image_size=16, overrides=SETTINGS, listener=ignore)
    assert result.choice is not None
    figures = [f"{one.name} {one.figure:.6f}" for one in result.choice.candidates]
    told = [result.choice.kept, *figures, f"{result.evaluation.headline():.6f}"]
    (run.parent / f"{run.name}-{distributed.rank()}.txt").write_text("\n".join(told))
    distributed.leave()
    return 0

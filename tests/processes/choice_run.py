"""Which runtime the processes of a job take, where each would measure other speeds."""

import os
from pathlib import Path

import pytest

from tests.models.test_contract import make
from vitral import distributed
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.inference import choice
from vitral.inference.engines import Computation
from vitral.models.model import Model


def main(folder: Path) -> int:
    """Write what this process computes by, and what it is told where no way can compute."""
    distributed.join()
    rank, patch = distributed.rank(), pytest.MonkeyPatch()
    os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{rank}")
    fastest = (Computation("packed", "bf16"), Computation("torch", "fp32"))[rank]

    def speed(model: Model, way: Computation) -> float:
        return 10.0 if way == fastest else 1.0

    def broken(model: Model, way: Computation) -> float:
        raise ModelError(f"process {rank} cannot")

    patch.setattr(choice, "has_native_bf16", lambda device: rank == 0)
    patch.setattr(choice, "measured", speed)
    lines = [choice.predictor_of(make("deit"), None, "auto", ignore).computed_by]
    patch.setattr(choice, "measured", broken)
    try:
        choice.predictor_of(make("deit"), "packed", "auto", ignore)
    except ModelError as error:
        lines.append(str(error))
    (folder / f"{rank}.txt").write_text("\n".join(lines))
    distributed.leave()
    return 0

"""Saves checkpoints forever, slowly: `slow_save.py FOLDER`; each write is cut into steps, so that a kill falls inside one."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from vitral import files
from vitral.training.optimization.state import Piece
from vitral.training.records import checkpoints as state
from vitral.training.records.checkpoints import State, load_newest, save_checkpoint


def slow(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that takes its time before and after."""

    def slowed(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # whatever the call takes and gives
        time.sleep(0.002)
        result = call(*arguments, **options)
        time.sleep(0.002)
        return result

    return slowed


def main(folder: Path) -> int:
    """Go on from the newest checkpoint, and save one after another."""
    newest = load_newest(folder, lambda event: None)
    step = 0 if newest is None else newest.state.step
    for module, name in (
        (state, "write_safetensors"),
        (state, "sync_file"),
        (state, "write_through"),
        (files, "sync_folder"),
    ):
        setattr(module, name, slow(getattr(module, name)))
    print("ready", flush=True)
    while True:
        step += 1
        tensors = {f"t{number}": Piece(torch.full((500,), float(step))) for number in range(3)}
        save_checkpoint(folder, State(step=step, total_steps=10**6), tensors, keep=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

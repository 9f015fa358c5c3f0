"""In which precision a step computes."""

import contextlib

import torch

from vitral.machine import has_native_bf16
from vitral.training.settings.sections import Precision


def training_device() -> torch.device:
    """Return where runs train: the GPU that torch calls current, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """Return the context in which a forward pass runs; weights stay float32, and so does everything around it.

    "auto" is bfloat16 where the hardware has it and float32 elsewhere. Float16 is not offered: its range makes the loss
    overflow, which bfloat16's does not.
    """
    if computes_in_bf16(device, precision):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def computes_in_bf16(device: torch.device, precision: Precision) -> bool:
    """Tell whether a precision means bfloat16 on a device."""
    return precision == "bf16" or (precision == "auto" and has_native_bf16(device))

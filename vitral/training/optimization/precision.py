"""The device and the precision of a training step."""

import contextlib

import torch

from vitral.machine import has_native_bf16
from vitral.training.settings.sections import Precision


def training_device() -> torch.device:
    """Return the device on which runs train: torch's current GPU, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """Return the context of a forward pass; weights stay float32, and so does everything outside of the context.

    "auto" is bfloat16 where the hardware has it, and float32 elsewhere. Float16 is not offered, because the loss overflows its
    range.
    """
    if computes_in_bf16(device, precision):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def autocast_here() -> contextlib.AbstractContextManager[object]:
    """Return the context of a forward pass on the training device, in bfloat16 where the hardware has it."""
    return autocast(training_device(), "auto")


def computes_in_bf16(device: torch.device, precision: Precision) -> bool:
    """Tell whether a precision means bfloat16 on a device."""
    return precision == "bf16" or (precision == "auto" and has_native_bf16(device))

"""In which precision a step computes."""

import contextlib

import torch

from vitral.training.settings.sections import Precision


def training_device() -> torch.device:
    """Return where runs train: the GPU that torch calls current, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def has_native_bf16(device: torch.device) -> bool:
    """Tell whether the hardware multiplies bfloat16 faster than float32: a GPU since Ampere, a CPU with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


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

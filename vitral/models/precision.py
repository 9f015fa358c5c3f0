"""Where a network computes in float32 whatever the precision around it."""

import contextlib
from typing import Any

import torch


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which autocast rounds nothing, for what decides in float32."""
    # The meta device, on which networks are counted, knows no autocast.
    return contextlib.nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)

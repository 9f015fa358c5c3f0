"""How fast the machine trains, by a convolution of a usual size: before any network is chosen."""

import time

import torch
from torch import Tensor
from torch.nn import functional

from vitral.training.optimization.precision import autocast

IMAGES, CHANNELS, SIDE = 64, 256, 8
ROUNDS = 4  # of which the fastest counts: the first one allocates
NETWORK_SHARE = 0.8  # of that speed, which a whole network reaches


def training_speed(device: torch.device) -> float:
    """Return the multiply-accumulates of forward passes that training goes through in a second, backward passes included."""
    weight = torch.zeros(CHANNELS, CHANNELS, 3, 3, device=device).to(memory_format=torch.channels_last)
    maps = torch.zeros(IMAGES, CHANNELS, SIDE, SIDE, device=device).to(memory_format=torch.channels_last)
    seconds = min(_timed(maps.requires_grad_(), weight.requires_grad_()) for _ in range(ROUNDS))
    return NETWORK_SHARE * IMAGES * SIDE**2 * CHANNELS**2 * 9 / seconds


def _timed(maps: Tensor, weight: Tensor) -> float:
    start = time.perf_counter()
    with autocast(maps.device, "auto"):
        result = functional.conv2d(maps, weight, padding=1)
    result.float().sum().backward()  # type: ignore[no-untyped-call]
    if maps.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start

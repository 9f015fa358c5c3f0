"""What a network costs: parameters and multiply-accumulates."""

import functools

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitral.models.families import build
from vitral.models.model import ModelConfig
from vitral.models.vit import build_stem
from vitral.models.vit_config import ViTConfig


def count_parameters(model: nn.Module) -> int:
    """Return the number of learned values; works on the `meta` device too."""
    return sum(parameter.numel() for parameter in model.parameters())


@functools.lru_cache(maxsize=256)  # a large network is built to be counted
def count_macs(config: ModelConfig) -> int:
    """Return the multiply-accumulates of one image's forward pass.

    Counted are convolutions, dense layers and the two products of attention; not norms, softmax and activations, as is the
    field's convention. A Vision Transformer's last block counts in full, though pooling by class token needs less of it;
    of experts those count that a token goes to.
    """
    known = config.known_macs
    if known is not None:
        return known
    if isinstance(config, ViTConfig) and config.stem:
        with torch.device("meta"):
            return config.macs_behind_stem + _counted(build_stem(config.stem), config.image_size)
    return _counted(build(config, seed=None), config.image_size)


def _counted(model: nn.Module, image_size: tuple[int, int]) -> int:
    """Run a network on the `meta` device, without memory, and count what it multiplies."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, *image_size, device="meta"))
    return counter.get_total_flops() // 2

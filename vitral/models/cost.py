"""What a network costs: parameters and multiply-accumulates."""

import functools
import math

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
    if isinstance(config, ViTConfig):
        return _vit_macs(config)
    return _counted(build(config, seed=None), config.image_size)


def _vit_macs(config: ViTConfig) -> int:
    patches = math.prod(config.grid)
    tokens = patches + config.num_prefix_tokens
    dim = config.dim
    channels = config.stem.channels if config.stem else 3
    embedding = patches * channels * math.prod(config.patch_size) * dim
    attention = 4 * tokens * dim**2 + 2 * tokens**2 * dim
    mlp = (2 if config.mlp == "plain" else 3) * tokens * dim * config.mlp_dim
    attention += tokens * (2 * tokens - 1) * dim if config.position == "relative" else 0
    total = embedding + config.depth * (attention + mlp)
    if config.experts:
        router = tokens * dim * config.experts.num_experts
        total += len(config.experts.blocks) * (router + (config.experts.num_selected - 1) * mlp)
    if config.stem:
        with torch.device("meta"):
            total += _counted(build_stem(config.stem), config.image_size)
    features = config.representation_size or config.num_features
    heads = 2 if config.distilled else 1
    total += heads * features * config.num_classes + (
        config.num_features * features if config.representation_size else 0
    )
    pooling = 2 * patches * dim**2 + 2 * dim**2 + 2 * dim * config.mlp_dim + 2 * patches * dim
    return total + (pooling if config.pooling == "map" else 0)


def _counted(model: nn.Module, image_size: tuple[int, int]) -> int:
    """Run a network on the `meta` device, without memory, and count what it multiplies."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, *image_size, device="meta"))
    return counter.get_total_flops() // 2

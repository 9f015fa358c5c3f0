"""The distributions that weights are drawn from, by what the sources call them."""

import math

import torch
from torch import Tensor, nn

# A normal distribution cut at two standard deviations has this much of the standard deviation left.
TRUNCATED_STD = 0.87962566103423978


@torch.no_grad()
def lecun_normal_(weight: Tensor, generator: torch.Generator) -> None:
    """Fill `weight` from a normal distribution of variance 1/fan_in, truncated at two standard deviations."""
    std = math.sqrt(1.0 / weight[0].numel()) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)


@torch.no_grad()
def init_linear(layer: nn.Linear, generator: torch.Generator, *, bias_std: float = 0.0) -> None:
    """Xavier-uniform weights; biases normal with `bias_std`, or zero."""
    limit = math.sqrt(6.0 / (layer.in_features + layer.out_features))
    layer.weight.uniform_(-limit, limit, generator=generator)
    layer.bias.normal_(std=bias_std, generator=generator) if bias_std else layer.bias.zero_()


@torch.no_grad()
def init_linear_deit(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """Weights normal with standard deviation 0.02, truncated at +-2; bias zero: what DeiT, T2T-ViT and CvT do."""
    nn.init.trunc_normal_(layer.weight, std=0.02, a=-2.0, b=2.0, generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()


@torch.no_grad()
def init_torch_default(layer: nn.Linear | nn.Conv2d, generator: torch.Generator, *, bias: float = 0.0) -> None:
    """Weights, and biases around `bias`, uniform within 1/sqrt(fan_in): what torch does unless a network says otherwise."""
    limit = layer.weight[0].numel() ** -0.5
    layer.weight.uniform_(-limit, limit, generator=generator)
    if layer.bias is not None:
        layer.bias.uniform_(-limit, limit, generator=generator).add_(bias)


def init_norms(network: nn.Module) -> None:
    """Set the scale of every norm in a network to 1, its bias to 0, and statistics to those of standardised maps."""
    for module in network.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()


def seeded(model: nn.Module, seed: int) -> torch.Generator:
    """Return the generator of a network's weights, on the network's device."""
    return torch.Generator(device=next(model.parameters()).device).manual_seed(seed)

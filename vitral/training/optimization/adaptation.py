"""Which weights learn: all, only the head, all but the first blocks, or low-rank changes of the blocks' linear layers."""

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from vitral.errors import RecipeError
from vitral.models.model import HEADS, Model
from vitral.models.position import RotaryPosition
from vitral.models.staged import StagedModel
from vitral.training.optimization.optimizers import layer_depths
from vitral.training.settings.sections import AdaptationSettings


class LowRank(nn.Module):
    """A weight plus the product of two thin matrices, of which one starts at zero (LoRA, arXiv 2106.09685).

    Args:
        weight: The weight that is changed, (out, in).
        rank: The rank of the change.
        alpha: The scale of the change, times the rank.
        generator: The generator of the matrix that starts at random.
    """

    def __init__(self, weight: Tensor, *, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        out, into = weight.shape
        limit = 1 / math.sqrt(into)
        down = torch.empty(rank, into, device=weight.device).uniform_(-limit, limit, generator=generator)
        self.down = nn.Parameter(down)
        self.up = nn.Parameter(torch.zeros(out, rank, device=weight.device))
        self.scale = alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        """Return the changed weight."""
        return weight + self.scale * (self.up @ self.down)


def adapt(network: Model, settings: AdaptationSettings, *, seed: int) -> Collection[str]:
    """Freeze the weights that a recipe freezes, and add its low-rank changes.

    Weights that did not learn before, such as those that a head has in closed form, learn in no case.

    Returns:
        The names of the weights that learned before, which `settle` takes.

    Raises:
        RecipeError: The network has fewer blocks, or no linear layer to change.
    """
    learning = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    if settings.method == "full":
        _freeze_blocks(network, settings.frozen_blocks)
        return learning
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in learning and name.startswith(HEADS))
    if settings.method == "lora":
        layers = linear_layers(network)
        if not layers:
            raise RecipeError(
                "LoRA changes linear layers, and the blocks of this network have none; use 'probe' or 'full'."
            )
        generator = torch.Generator(device=layers[0].weight.device).manual_seed(seed)
        for layer in layers:
            rank = min(settings.lora_rank, *layer.weight.shape)
            change = LowRank(layer.weight, rank=rank, alpha=settings.lora_alpha, generator=generator)
            parametrize.register_parametrization(layer, "weight", change)
    return learning


def training_mode(network: Model, settings: AdaptationSettings) -> None:
    """Put an adapted network into training mode, except its frozen batch norms, or all of them where the settings say so.

    In training mode they would normalise by the batch and move their running statistics, so frozen layers would change. A
    frozen backbone's rotary positions stay in place, too.
    """
    network.train()
    for name, module in network.named_modules():
        of_head = name.startswith(HEADS)  # a new head has no statistics of its own yet
        if isinstance(module, _BatchNorm):
            learns = any(parameter.requires_grad for parameter in module.parameters())
            module.train(learns and (of_head or not settings.frozen_statistics))
        elif isinstance(module, RotaryPosition):
            module.train(of_head or settings.method != "probe")


def batch_norms(network: Model) -> list[_BatchNorm]:
    """Return a network's batch norms."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]


def linear_layers(network: Model) -> list[nn.Linear]:
    """Return the linear layers of a network's blocks, to which low-rank changes are added."""
    return [layer for block in network.blocks() for layer in block.modules() if isinstance(layer, nn.Linear)]


def _freeze_blocks(network: Model, count: int) -> None:
    blocks = len(network.blocks())
    if count > blocks:
        raise RecipeError(f"adaptation.frozen_blocks is {count}, but the network has only {blocks} blocks.")
    if count:
        depths = layer_depths(network)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and depths[name] > count)


def settle(network: Model, learning: Collection[str]) -> None:
    """Undo `adapt`: merge low-rank changes into the weights, and let those learn that `adapt` says learned before.

    What was kept of frozen blocks is dropped.
    """
    for layer in list(network.modules()):
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in learning)
    if isinstance(network, StagedModel):
        network.frozen_front = None

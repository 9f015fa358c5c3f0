"""Optimizers as the paper uses them, and clipping by the global norm."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from vitral.models.model import Model
from vitral.training.recipe import OptimizerSettings


def build_optimizer(model: Model, settings: OptimizerSettings) -> Optimizer:
    """Return the optimizer of a recipe over a network's parameters.

    Weight decay spares what `model.no_weight_decay()` names. "adam" and "adamw" are one: flax's Adam of 2020, which the
    paper used, already took weight decay apart from the gradient and scaled it by the learning rate. "sgd" has no Nesterov
    momentum; its decay, 0 in the paper, is added to the gradient.
    """
    spared = model.no_weight_decay()
    named = list(model.named_parameters())
    groups = [
        {
            "params": [parameter for name, parameter in named if name not in spared],
            "weight_decay": settings.weight_decay,
        },
        {"params": [parameter for name, parameter in named if name in spared], "weight_decay": 0.0},
    ]
    if settings.name == "sgd":
        return SGD(groups, lr=settings.lr, momentum=settings.momentum, fused=True)
    return AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate


@torch.no_grad()
def clip_by_global_norm(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """Scale all gradients so that their joint norm is at most `limit`, and return the norm that they had.

    A norm below the limit changes nothing, and no epsilon is added, as in optax (torch's own adds 1e-6). None only measures.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if limit is not None:
        torch._foreach_mul_(gradients, torch.clamp(limit / norm, max=1.0))
    return norm

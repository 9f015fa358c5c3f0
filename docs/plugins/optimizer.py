"""Lion (arXiv 2302.06675, algorithm 2) as an optimizer of recipes: --plugin optimizer.py --set optimizer.name=lion."""

from typing import Any

import torch
from torch.optim import Optimizer

import vitral


class Lion(Optimizer):
    """The sign of an interpolated momentum, and decoupled weight decay."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                direction = torch.lerp(parameter.grad, momentum, beta1).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                momentum.lerp_(parameter.grad, 1 - beta2)


def lion(groups: Any, settings: Any) -> Optimizer:
    """Return the optimizer over the recipe's parameter groups, which must be kept as they are given."""
    return Lion(groups, {"lr": settings.lr, "betas": settings.betas})


vitral.register("optimizer", "lion", lion)

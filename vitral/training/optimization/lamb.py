"""LAMB, layer-wise adaptive rates over Adam (arXiv 1904.00962), the optimizer of DeiT III."""

from typing import Any

import torch
from torch import Tensor

from vitral.training.optimization.per_parameter import PerParameterOptimizer


class Lamb(PerParameterOptimizer):
    """LAMB, with bias correction and decoupled weight decay inside the adapted update, as in the implementation DeiT III used.

    Args:
        params: The parameters, or groups of them.
        lr: The learning rate.
        betas: The decays of the first and second moment.
        eps: The number added to the root of the second moment.
        weight_decay: The weight decay of groups without their own. A group without decay takes plain Adam steps.
    """

    def __init__(
        self,
        params: Any,  # noqa: ANN401  # torch's own type is as wide
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        step = state["step"].item()
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_().add_(group["eps"])
        update = (state["exp_avg"] / (1 - beta1**step)).div_(root)
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
            update.mul_(_trust(torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)))
        parameter.add_(update, alpha=-group["lr"])


def _trust(weight: Tensor, update: Tensor) -> Tensor:
    """Return the weight's norm over the update's; 1 if either is 0."""
    ratio = weight / update
    return torch.where((weight > 0) & (update > 0), ratio, torch.ones_like(ratio))

"""LAMB, layer-wise adaptive rates over Adam (arXiv 1904.00962), the optimizer of DeiT III."""

from typing import Any

import torch
from torch import Tensor

from vitral.training.optimization.per_parameter import AdamLike


class Lamb(AdamLike):
    """LAMB, with bias correction and decoupled weight decay inside the adapted update, as in the implementation DeiT III used.

    A group without decay takes plain Adam steps.
    """

    usual_eps = 1e-6

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        step, (beta1, beta2) = self._counted(parameter, state), group["betas"]
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_().add_(group["eps"])
        update = (state["exp_avg"] / (1 - beta1**step)).div_(root)
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
            weight, moved = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)
            trust = weight / moved
            update.mul_(torch.where((weight > 0) & (moved > 0), trust, torch.ones_like(trust)))  # 1 if either is 0
        parameter.add_(update, alpha=-group["lr"])

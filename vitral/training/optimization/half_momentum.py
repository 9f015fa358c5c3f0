"""SGD and AdamW with a first moment in bfloat16, as in vision_transformer and big_vision.

Only the stored moment is rounded; an update uses the moment before rounding (optax, `trace` and `scale_by_adam`).
"""

from typing import Any

import torch
from torch import Tensor

from vitral.training.optimization.per_parameter import AdamLike, PerParameterOptimizer
from vitral.training.optimization.state import local_parts


class HalfMomentumSGD(PerParameterOptimizer):
    """SGD with momentum, m = g + beta * m; the weight decay is added to the gradient.

    Args:
        params: The parameters, or groups of them.
        lr: The learning rate.
        momentum: The factor beta.
        nesterov: Whether a step is g + beta * m.
        weight_decay: The weight decay of groups without their own.
    """

    def __init__(
        self,
        params: Any,  # noqa: ANN401  # torch's own type is as wide
        lr: float,
        momentum: float,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay})

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        weight, gradient, stored = local_parts([parameter, gradient, state["momentum_buffer"]])
        if group["weight_decay"]:
            gradient = gradient.add(weight, alpha=group["weight_decay"])
        moment = stored.float().mul_(group["momentum"]).add_(gradient)
        stored.copy_(moment)
        change = gradient.add(moment, alpha=group["momentum"]) if group["nesterov"] else moment
        weight.add_(change, alpha=-group["lr"])


class HalfMomentumAdamW(AdamLike):
    """AdamW with bias correction, decay apart from the gradient, and its second moment in float32."""

    first_moment = torch.bfloat16

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        step, (beta1, beta2) = self._counted(parameter, state), group["betas"]
        weight, gradient, first, second = local_parts([parameter, gradient, state["exp_avg"], state["exp_avg_sq"]])
        moment = first.float().lerp_(gradient, 1 - beta1)
        first.copy_(moment)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (second / (1 - beta2**step)).sqrt_().add_(group["eps"])
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.addcdiv_(moment, root, value=-group["lr"] / (1 - beta1**step))

"""Optimizers that update each parameter by itself: their bases, SGD and AdamW with a first moment in bfloat16, LAMB.

The moment in bfloat16 is vision_transformer's and big_vision's: only the stored one is rounded, and an update uses the moment
before rounding (optax, `trace` and `scale_by_adam`). optax multiplies the stored moment in bfloat16, where a decay of 0.9 is
0.8984375; here it is 0.9, so that along a steady gradient steps are 1.6 % longer. LAMB is Adam with layer-wise adaptive rates
(arXiv 1904.00962), the optimizer of DeiT III.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from vitral.training.optimization.state import local_parts


class PerParameterOptimizer(Optimizer):
    """An optimizer that updates a parameter from its gradient, state and group only."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no loss is returned
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, self.state[parameter], group)

    @abstractmethod
    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Change a parameter and its state in place; the state is empty at the first update."""


class AdamLike(PerParameterOptimizer):
    """An optimizer with the two moments of Adam.

    Args:
        params: The parameters, or groups of them.
        lr: The learning rate.
        betas: The decays of the first and second moment.
        eps: The number added to the root of the second moment; None for the optimizer's own.
        weight_decay: The weight decay of groups without their own; it is multiplied by the learning rate.
    """

    first_moment: ClassVar[torch.dtype | None] = None  # the type in which it is stored; None for the parameter's
    usual_eps: ClassVar[float] = 1e-8

    def __init__(
        self,
        params: Any,  # noqa: ANN401  # torch's own type is as wide
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        least = self.usual_eps if eps is None else eps
        super().__init__(params, {"lr": lr, "betas": betas, "eps": least, "weight_decay": weight_decay})

    def _counted(self, parameter: Tensor, state: dict[str, Any]) -> float:
        """Return the number of this update; make the moments before the first."""
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter, dtype=self.first_moment)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state["step"].item()


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

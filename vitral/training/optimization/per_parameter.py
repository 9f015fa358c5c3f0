"""The bases of optimizers that update each parameter by itself."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer


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

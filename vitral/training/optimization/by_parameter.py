"""Optimizers that update one parameter after another, each by a rule of its own."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class ByParameter(Optimizer):
    """An optimizer whose update of a parameter depends on that parameter's gradient, state and group alone."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no loss is returned
        """Make one update of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, self.state[parameter], group)

    @abstractmethod
    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Change a parameter and its state, which is empty at its first update, in place."""

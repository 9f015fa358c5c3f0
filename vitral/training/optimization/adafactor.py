"""The memory-saving Adafactor of Scaling Vision Transformers (arXiv 2106.04560, section 3.2; big_vision's optax.py)."""

from typing import Any

import torch
from torch import Tensor

from vitral.training.optimization.per_parameter import PerParameterOptimizer
from vitral.training.settings.sections import FACTORED_FROM

DECAY_EXPONENT = 0.8
EPS = 1e-30


class Adafactor(PerParameterOptimizer):
    """Adafactor without its scaling by the parameters and without its update clipping, with a first moment in bfloat16.

    The second moment of a matrix is stored as the means of its rows and of its columns. Its decay at update t is 1 - t^-0.8,
    at most `largest_beta2`. Weight decay is decoupled and multiplied by the learning rate. A parameter costs 2 bytes of state
    instead of Adam's 8.

    Args:
        params: The parameters, or groups of them.
        lr: The learning rate.
        beta1: The decay of the first moment.
        largest_beta2: The limit of the second moment's decay, which grows.
        weight_decay: The weight decay of groups without their own.
        factored_from: The least size of an axis that is factored; see `factored_axes`.
    """

    def __init__(
        self,
        params: Any,  # noqa: ANN401  # torch's own type is as wide
        lr: float,
        beta1: float = 0.9,
        largest_beta2: float = 0.999,
        weight_decay: float = 0.0,
        factored_from: int = FACTORED_FROM,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "beta1": beta1, "largest_beta2": largest_beta2, "weight_decay": weight_decay}
        )
        self.factored_from = factored_from

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        axes = factored_axes(tuple(parameter.shape), self.factored_from)
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter, dtype=torch.bfloat16)
            if axes is None:
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            else:
                state["rows"], state["columns"] = (gradient.mean(dim=axis).zero_() for axis in reversed(axes))
        state["step"] += 1
        decay = min(1 - state["step"].item() ** -DECAY_EXPONENT, group["largest_beta2"])
        squared = gradient.square().add_(EPS)
        if axes is None:
            state["exp_avg_sq"].lerp_(squared, 1 - decay)
            update = gradient * state["exp_avg_sq"].rsqrt()
        else:
            update = self._factored(state, gradient, squared, axes, decay)
        # Only the stored moment is rounded; this update uses the exact moment (big_vision does the same).
        moment = state["exp_avg"].float().lerp_(update, 1 - group["beta1"])
        state["exp_avg"].copy_(moment)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(moment, alpha=-group["lr"])

    def _factored(
        self, state: dict[str, Tensor], gradient: Tensor, squared: Tensor, axes: tuple[int, int], decay: float
    ) -> Tensor:
        row_axis, column_axis = axes
        state["rows"].lerp_(squared.mean(dim=column_axis), 1 - decay)
        state["columns"].lerp_(squared.mean(dim=row_axis), 1 - decay)
        rows = state["rows"].unsqueeze(column_axis)
        rows = (rows / rows.mean(dim=row_axis, keepdim=True)).rsqrt()
        return gradient * rows * state["columns"].unsqueeze(row_axis).rsqrt()


def factored_axes(shape: tuple[int, ...], factored_from: int = FACTORED_FROM) -> tuple[int, int] | None:
    """Return the two largest axes of a tensor, ascending by size; None if the smaller of them is below `factored_from`."""
    if len(shape) < 2:
        return None
    smaller, larger = sorted(range(len(shape)), key=lambda axis: shape[axis])[-2:]
    return (smaller, larger) if shape[smaller] >= factored_from else None

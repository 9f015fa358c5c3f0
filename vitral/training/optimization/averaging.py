"""The paper's Polyak averaging: a second set of weights that follows the first slowly (section 4.1)."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vitral.models.experts import shared_rows
from vitral.training.optimization.state import Held, Stateful, local_parts


class Average(Stateful):
    """An exponential moving average of the parameters that learn.

    Buffers have no average of their own, because a batch norm's statistics are averages already.

    Args:
        model: The module whose parameters are averaged; the average starts as a copy of them.
        decay: The share of the average that stays at each update; 0.9999 in the paper. It is at most (1 + t) / (10 + t) at
            update t, so that a short run's average is not mostly its beginning.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._rows = shared_rows(model)
        self._followed = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.tensors: dict[str, Tensor] = {name: tensor.detach().clone() for name, tensor in self._followed.items()}
        self.decay = decay

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the weights after update `step`, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(local_parts(self.tensors.values()), local_parts(self._followed.values()), 1 - decay)

    def state_dict(self) -> dict[str, Held]:
        """Return the averaged parameters by name."""
        return {
            name: Held(tensor, self._followed[name], self._rows.get(self._followed[name]))
            for name, tensor in self.tensors.items()
        }

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averaged weights into the network for a while."""
        current = [part.detach().clone() for part in local_parts(self._followed.values())]
        self.put()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(local_parts(self._followed.values()), current)

    @torch.no_grad()
    def put(self) -> None:
        """Put the averaged weights into the network for good."""
        torch._foreach_copy_(local_parts(self._followed.values()), local_parts(self.tensors.values()))

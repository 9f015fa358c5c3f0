"""The paper's Polyak averaging: a second set of weights that follows the first slowly (section 4.1)."""

import copy

import torch

from vitral.models.model import Model


class Average:
    """An exponential moving average of a network's parameters.

    Args:
        model: the network to follow; the average starts as a copy of it.
        decay: how much of the average stays at each update; 0.9999 in the paper. It is held below (1 + t) / (10 + t) at
            update t, so that a short run's average is not mostly its beginning.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: Model, step: int) -> None:
        """Move the average towards the weights after update `step`, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - decay)
        for mine, theirs in zip(self.model.buffers(), model.buffers(), strict=True):
            mine.copy_(theirs)  # a batch norm's statistics are an average already

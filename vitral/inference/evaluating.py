"""Evaluation mode for the duration of a block."""

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards, even after an error, restore the mode of every module.

    Modules are restored one by one: a norm that a user keeps in evaluation mode while the rest trains stays in it.
    """
    training = [module for module in network.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True

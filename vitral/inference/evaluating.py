"""A network in evaluation mode for as long as it answers."""

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards, also after an error, every part has the mode that it had.

    Each part on its own: a norm that a user holds in evaluation mode while the rest trains stays so.
    """
    training = [part for part in network.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True

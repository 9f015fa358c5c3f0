"""A network's copy in another precision, for inference alone: the network itself stays as it is."""

import copy
import itertools
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitral.models.model import Model
from vitral.models.rotary import RotaryPosition


def copy_in(network: Model, dtype: torch.dtype) -> Model:
    """Return a copy that computes in another precision, in evaluation mode and without gradients.

    What is of that precision already is shared with the network, not copied. Batch norms and the angles of rotary positions
    stay in float32, in which these layers compute: a batch norm divides by a deviation that bfloat16 has three digits of.
    """
    exact = [module for module in network.modules() if isinstance(module, _BatchNorm | RotaryPosition)]
    unchanged = {id(value) for module in exact for value in itertools.chain(module.parameters(), module.buffers())}
    taken: dict[int, Any] = {}
    for value in itertools.chain(network.parameters(), network.buffers()):
        same = id(value) in unchanged or not value.is_floating_point()
        cast = value.detach() if same else value.detach().to(dtype)
        taken[id(value)] = nn.Parameter(cast, requires_grad=False) if isinstance(value, nn.Parameter) else cast
    return copy.deepcopy(network, taken).eval()


def state_of(network: Model) -> tuple[Any, ...]:
    """Return what changes with the network: its config, and of each tensor where it is and how often it was written."""
    values = itertools.chain(network.parameters(), network.buffers())
    written = ((value.data_ptr(), 0 if value.is_inference() else value._version) for value in values)
    return network.config, *written

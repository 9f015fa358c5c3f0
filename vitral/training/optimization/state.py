"""The state of a run's parts between updates: each part owns its tensors, names them, and restores them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vitral import distributed, torchrun
from vitral.models.experts import Rows, shared_rows


class Held(NamedTuple):
    """This process's part of a tensor.

    Attributes:
        tensor: The tensor, or this process's share of it.
        like: The parameter that it belongs to; it is sharded in the same way.
        rows: The rows of that parameter that expert parallelism left here; None for all.
    """

    tensor: Tensor
    like: Tensor
    rows: Rows | None = None


class Piece(NamedTuple):
    """The part of a tensor that a process writes: all of it, or some of its rows.

    Attributes:
        tensor: The rows.
        first: The number of the first row.
        rows: The number of rows of the whole tensor; None if this is the whole tensor.
    """

    tensor: Tensor
    first: int = 0
    rows: int | None = None


class Stateful(ABC):
    """A part of a run that a checkpoint holds, as tensors that do not depend on the number of processes."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Held]:
        """Return everything that an uninterrupted run would continue with."""

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned, each tensor whole, in place.

        Raises:
            ValueError: The state is of another network or method.
        """
        fill(self.state_dict(), saved)


class Weights(Stateful):
    """The parameters and buffers of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def state_dict(self) -> dict[str, Held]:
        """Return every parameter and buffer, by its name in the module."""
        rows = shared_rows(self.module)
        return {
            name: Held(tensor, tensor, rows.get(tensor))
            for name, tensor in self.module.state_dict(keep_vars=True).items()
        }


class OptimizerState(Stateful):
    """The optimizers' state of each parameter, by the parameter's name in a module.

    Args:
        module: The module of the parameters.
        optimizers: The optimizers; no parameter is in two of them.
    """

    def __init__(self, module: nn.Module, optimizers: list[Optimizer]) -> None:
        self.module, self.optimizers = module, optimizers

    def state_dict(self) -> dict[str, Held]:
        """Return the tensors as PARAMETER/KEY; none before the first update."""
        rows = shared_rows(self.module)
        return {
            f"{name}/{key}": Held(value, parameter, rows.get(parameter))
            for name, parameter in self.module.named_parameters()
            for optimizer in self.optimizers
            if parameter in optimizer.state
            for key, value in optimizer.state[parameter].items()
            if isinstance(value, Tensor)
        }

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Restore the tensors.

        Raises:
            ValueError: The tensors are of another network.
        """
        parameters, rows = dict(self.module.named_parameters()), shared_rows(self.module)
        states = {
            parameter: optimizer.state
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for path in saved:
            name, _, key = path.rpartition("/")
            if name not in parameters or parameters[name] not in states:
                raise ValueError(f"'{path}' is in only one of the two")
            parameter = parameters[name]
            states[parameter][parameter][key] = _own_part(saved[path], parameter, rows.get(parameter))


def local_parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return this process's part of each tensor: the tensor itself unless it is sharded. No part is copied."""
    return [tensor.to_local() if distributed.is_sharded(tensor) else tensor for tensor in tensors]


def held(tensors: Mapping[str, Tensor]) -> dict[str, Held]:
    """Return tensors as a part of a run holds them, if each is a parameter or the same in every process."""
    return {name: Held(tensor, tensor) for name, tensor in tensors.items()}


@torch.no_grad()
def fill(own: Mapping[str, Held], saved: Mapping[str, Tensor]) -> None:
    """Copy this process's part of saved tensors into its own tensors, in place.

    Raises:
        ValueError: The names or a shape differ.
    """
    if own.keys() != saved.keys():
        raise ValueError(f"'{min(own.keys() ^ saved.keys())}' is in only one of the two")
    for name, (tensor, like, shared) in own.items():
        whole = saved[name]
        rows = _rows_held(like, whole.shape, shared)
        target = tensor.to_local() if distributed.is_sharded(tensor) else tensor
        source = whole if rows is None else whole[rows[0] : rows[1]]
        if target.shape != source.shape:
            raise ValueError(f"'{name}' has the shape {tuple(whole.shape)} there; resume with the run's own recipe")
        target.copy_(source)


def pieces(states: Mapping[str, Held]) -> Iterator[tuple[str, Piece]]:
    """Yield copies of the parts that this process writes; tensors that another process writes are left out."""
    for name, state in states.items():
        piece = _piece(*state)
        if piece is not None:
            yield name, piece


def _piece(tensor: Tensor, like: Tensor, shared: Rows | None) -> Piece | None:
    if distributed.is_sharded(tensor):
        rows = _rows_held(like, tensor.shape, shared)
        mesh = tensor.device_mesh
        copies = [axis for axis, placed in enumerate(tensor.placements) if not placed.is_shard()]
        local = tensor.to_local()
        if any(mesh.get_local_rank(axis) for axis in copies) or (rows is not None and rows[0] == rows[1]):
            return None
        first, whole = (rows[0], tensor.shape[0]) if rows is not None else (0, None)
    elif shared is not None and tensor.ndim and tensor.shape[0] == shared.end - shared.first:
        local, first, whole = tensor, shared.first, shared.total
    elif torchrun.is_main():
        local, first, whole = tensor, 0, None
    else:
        return None
    return Piece(local.detach().cpu().contiguous().clone(), first, whole)


def _rows_held(like: Tensor, shape: torch.Size, shared: Rows | None) -> tuple[int, int] | None:
    """Return the range (first, end) of the rows that this process holds of a whole tensor of `shape`; None for all."""
    if distributed.is_sharded(like) and shape == like.shape:
        sharded = next((axis for axis, placed in enumerate(like.placements) if placed.is_shard()), None)
        if sharded is None:
            return None
        each = -(-shape[0] // like.device_mesh.size(sharded))
        first = min(like.device_mesh.get_local_rank(sharded) * each, shape[0])
        return first, min(first + each, shape[0])
    if shared is None or not shape or shape[0] != shared.total:
        return None
    return shared.first, shared.end


def _own_part(saved: Tensor, parameter: Tensor, shared: Rows | None) -> Tensor:
    """Return this process's part of an optimizer's saved tensor for a parameter."""
    rows = _rows_held(parameter, saved.shape, shared)
    if rows is not None:
        saved = saved[rows[0] : rows[1]]
    saved = saved.to(parameter.device)
    if distributed.is_sharded(parameter) and (rows is not None or saved.shape == parameter.shape):
        from torch.distributed.tensor import DTensor  # as of `is_sharded`

        return DTensor.from_local(
            saved, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
        )
    return saved

"""The processes of a job: their ranks, and their exchange of values. Everything here works in a single process, too.

torchrun starts them and describes them in the environment (RANK, WORLD_SIZE, LOCAL_RANK); `join` connects them.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from vitral import torchrun
from vitral.advice import argument
from vitral.errors import ProcessLost, TrainingError, VitralError, one_line

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Value = TypeVar("Value")
PATIENCE = timedelta(minutes=10)  # after which the others count a silent process as lost


def join() -> None:
    """Connect this process to the others that torchrun started; do nothing in a single process, or if connected already.

    Raises:
        TrainingError: The environment describes no process of a job, or the others cannot be reached.
    """
    if torchrun.world() < 2 or dist.is_initialized():
        return
    address = f"{os.environ['MASTER_ADDR']}:{torchrun.number('MASTER_PORT', 0)}"
    try:
        _connect(torchrun.number("MASTER_PORT", 0))
    except (RuntimeError, ValueError, OSError) as error:
        raise TrainingError(
            f"Process {torchrun.rank()} of {torchrun.world()} cannot join its job at {address} ({one_line(error)[:120]}); "
            "start the processes by torchrun, which sets the address."
        ) from error


def _connect(port: int) -> None:
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(torchrun.number("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if attempt is None or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=PATIENCE)
        return
    # torchrun's store survives a restart, and with it the addresses of processes that are gone; torch itself (2.15)
    # does not keep the attempts apart, so a restarted job would wait for them.
    store = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"], port, is_master=False, timeout=PATIENCE
    )
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(f"vitral/attempt-{attempt}", store),  # type: ignore[attr-defined]
        rank=torchrun.rank(),
        world_size=torchrun.world(),
        timeout=PATIENCE,
    )


def leave() -> None:
    """Disconnect, so that the process may end."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_sharded(tensor: Tensor) -> TypeGuard["DTensor"]:
    """Tell whether a tensor is shared out to the processes of a job.

    None is where torch's module of such tensors was not imported, which takes half a second of start-up.
    """
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(tensor, tensors.DTensor)


def barrier() -> None:
    """Wait until every process has reached this call."""
    if dist.is_initialized():
        dist.barrier()


def broadcast(value: Value) -> Value:
    """Return the main process's value in every process."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def by_main(work: Callable[[], Value]) -> Value:
    """Return what the main process makes, in every process, or raise its error."""
    outcome: tuple[Any, VitralError | None] = (None, None)
    if rank() == 0:
        try:
            outcome = (work(), None)
        except VitralError as error:
            outcome = (None, error)
    value, refusal = broadcast(outcome)
    if refusal is not None:
        raise refusal
    return value


def gather(value: Value, group: dist.ProcessGroup | None = None) -> list[Value]:
    """Return every process's value, by rank, in every process."""
    if not dist.is_initialized():
        return [value]
    boxes: list[Value] = [value] * dist.get_world_size(group)
    dist.all_gather_object(boxes, value, group=group)
    return boxes


def total(values: Tensor) -> Tensor:
    """Return the sum of the processes' tensors."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values


def any_of(flag: bool) -> bool:
    """Tell whether the flag is true in any process."""
    return flag if not dist.is_initialized() else bool(total(torch.tensor(int(flag))))


@contextlib.contextmanager
def losing_a_process() -> Iterator[None]:
    """Turn torch's errors about a lost process of the job into a single line.

    Raises:
        ProcessLost: Another process of the job is lost.
    """
    try:
        yield
    except (RuntimeError, ConnectionError) as error:
        text = " ".join(str(error).split())
        lost = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "NCCL")
        if dist.is_initialized() and any(phrase in text for phrase in lost):
            raise ProcessLost(
                f"Process {rank()} of {world()} lost another process of the job ({text[:120]}). Start the job again with "
                f"{argument('resume', True)}, or let torchrun do it (--max-restarts)."
            ) from error
        raise

"""Processes forked off a server that has imported everything: as separate as those started anew, without seconds of importing.

What is about the start itself is started anew: imports, Ctrl-C in their midst, torchrun, settings that libraries read once.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from vitral.cli.commands import COMMANDS
from vitral.cli.main import main
from vitral.cli.process import end_at_once

CONTEXT = multiprocessing.get_context("forkserver")
# What libraries import as they first compute, which most commands come to: else every process takes seconds for it anew.
AS_IT_RUNS = (
    "torch._dynamo",  # to make an optimizer, and to count
    "torch.distributed.fsdp",
    "torch.fx.experimental.symbolic_shapes",  # to build a network
    "torch.utils.flop_counter",
    "torch.utils.tensorboard",
    "torchvision.transforms.v2",
    "scipy.ndimage",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.metrics",
)
CONTEXT.set_forkserver_preload(
    [
        "tests.unflushed",
        *AS_IT_RUNS,
        *(f"vitral.cli.{command}" for command in COMMANDS),
        # What they import as they run.
        *(
            "vitral.cli.schemas",
            "vitral.cli.training",
            "vitral.cli.chosen",
            "vitral.studies.finetune",
            "vitral.studies.run_report",
        ),
        "vitral.serving.server",
        *("vitral.training.preview", "vitral.training.run", "vitral.report.page", "vitral.report.pages"),
        "tests.processes.agent",
        "tests.processes.ranks_run",
        "tests.processes.region_run",
        "tests.processes.short_run",
        "tests.processes.slow_save",
        "tests.studies.shared_study",
    ]
)
LONGEST = 240.0  # seconds that a process may take


class Fork:
    """A process that runs a function, the leader of its own group; what it prints is kept.

    Args:
        target: a module's function, whose result is the exit status.
        arguments: for it.
        folder: where it runs; None for here.
        environment: variables that it gets besides those of the tests.
    """

    def __init__(
        self,
        target: Callable[..., int],
        *arguments: Any,  # noqa: ANN401  # the function's own
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.printed = tempfile.TemporaryDirectory(prefix="vitral-fork-")
        self.out, self.err = (Path(self.printed.name) / name for name in ("out", "err"))
        method = multiprocessing.get_start_method()
        given = (target, arguments, str(folder or Path.cwd()), self.printed.name, dict(environment or {}), method)
        self.process = CONTEXT.Process(target=_be, args=given)
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, and to those that it started, as a terminal does."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it is no leader yet, or no more
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and those that it started at once; what it printed is lost."""
        self.send_signal(signal.SIGKILL)
        self.process.join()
        self.printed.cleanup()

    def ended(self, timeout: float = LONGEST) -> subprocess.CompletedProcess[str]:
        """Wait for its end, and return what came of it."""
        self.process.join(timeout)
        status = self.process.exitcode
        texts = [path.read_text() if path.exists() else "" for path in (self.out, self.err)]
        self.printed.cleanup()
        if status is None:
            self.kill()
            raise TimeoutError(f"no end after {timeout} s:\n{texts[1]}")
        return subprocess.CompletedProcess([], status, *texts)


def _be(
    target: Callable[..., int], arguments: tuple[Any, ...], folder: str, printed: str, more: dict[str, str], method: str
) -> None:
    """Be the process."""
    os.setsid()
    multiprocessing.set_start_method(method, force=True)  # for its own: otherwise they would come of a server, too
    os.chdir(folder)
    os.environ.update(more)
    for number, path in ((0, os.devnull), (1, f"{printed}/out"), (2, f"{printed}/err")):
        os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.exit(target(*arguments))


def command(arguments: tuple[str, ...], threads: int | None = None) -> int:
    """Be the command line, with so many threads."""
    if threads is not None:
        torch.set_num_threads(threads)
    return main(arguments)


def program(arguments: tuple[str, ...]) -> int:
    """Be the program as a shell starts it: what stops it before it has begun ends it at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_at_once()
    sys.argv = ["vitral", *arguments]
    return main()


def script(text: str) -> int:
    """Be a script."""
    exec(text, {"__name__": "script"})
    return 0


def type_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return Fork(command, arguments, folder=folder).ended()


def job(ranks: int, target: Callable[..., int], *arguments: Any) -> list[subprocess.CompletedProcess[str]]:  # noqa: ANN401
    """Run a function in several processes of one job, as torchrun describes them to it; return what came of each."""
    if ranks == 1:
        return [Fork(target, *arguments).ended()]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    described = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        Fork(target, *arguments, environment=described | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    while all(process.poll() in (None, 0) for process in processes) and any(
        process.poll() is None for process in processes
    ):
        time.sleep(0.01)
    if any(process.poll() for process in processes):  # the others would wait for one that is gone
        for process in processes:
            process.send_signal(signal.SIGKILL)
    return [process.ended() for process in processes]

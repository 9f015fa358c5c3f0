"""A process that has imported everything once and forks for every command: as sure as one of its own, in a tenth of the time.

Run as `python -m tests.fuzz.server`; it reads a JSON line a command and answers with one.
"""

import builtins
import errno
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from tests.forks import AS_IT_RUNS
from vitral import transfers
from vitral.cli import process
from vitral.cli.commands import COMMANDS
from vitral.cli.main import main

MEMORY = 4 << 30  # bytes of address space that a command may take on top of what the imports took
FIRST_SIGNAL = 128


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a command in a child, and tell how it ended: status, whether it took too long, seconds, and bytes of memory."""
    start = time.monotonic()
    child = os.fork()
    if not child:
        _become(asked)
    ended, late = None, False
    while ended is None:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            ended = status
        elif not late and time.monotonic() - start > asked["seconds"]:
            late = True
            os.kill(child, signal.SIGKILL)
        else:
            time.sleep(0.005)
    code = os.waitstatus_to_exitcode(ended)
    late = late or code == -signal.SIGXCPU
    return {"status": code, "late": late, "seconds": time.monotonic() - start, "memory": used.ru_maxrss << 10}


def _become(asked: dict[str, Any]) -> None:
    """Be the command; never returns."""
    code = FIRST_SIGNAL
    try:
        os.setsid()
        # A shell ignores the one in what it runs in the background, nohup the other.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(asked["home"])
        for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o600), number)
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        memory = asked["memory"] << 20 or MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
        resource.setrlimit(resource.RLIMIT_CPU, (int(asked["cpu"]), int(asked["cpu"]) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _surround(asked)
        process.end_at_once()
        code = main(asked["command"])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _surround(asked: dict[str, Any]) -> None:
    """Give the command its environment, the Hub's answers in a test's time, and its accident."""
    os.environ.update(asked["environment"])
    if "HF_ENDPOINT" in asked["environment"]:
        importlib.reload(constants)  # which reads the environment only once
        transfers.ANSWER_SECONDS, transfers.WINDOW_SECONDS = 2.0, 1.0
    if accident := asked["accident"]:
        _befall(accident["kind"], int(accident["call"]), asked["home"])


def _befall(kind: str, number: int, home: str) -> None:
    """Let the disk be full, or a signal come, before one of the calls that write in the command's folder."""
    calls = 0

    def counted(call: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the call's own
            nonlocal calls
            place = os.path.abspath(os.fspath(arguments[0])) if isinstance(arguments[0], str | Path) else ""
            if place.startswith(home) and writes(*arguments, **options):
                calls += 1
                if calls == number and kind != "ENOSPC":
                    os.kill(os.getpid(), getattr(signal, kind))
                elif calls == number:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place)
            return call(*arguments, **options)

        return changed

    for name in ("replace", "rename", "mkdir", "rmdir", "unlink"):
        setattr(os, name, counted(getattr(os, name), lambda *_, **__: True))
    os.open = counted(os.open, lambda path, flags, *_, **__: bool(flags & (os.O_WRONLY | os.O_RDWR)))
    builtins.open = counted(open, lambda path, mode="r", *_, **__: bool(set(mode) & set("wax+")))


def serve() -> None:
    """Answer line after line until there are no more."""
    for command in (*COMMANDS, "schemas", "training"):  # and with the last two what they import as they run
        importlib.import_module(f"vitral.cli.{command}")
    for library in AS_IT_RUNS:
        importlib.import_module(library)
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()

"""A process that has imported everything once and forks for every command: as sure as one of its own, in a tenth of the time.

Run as `python -m tests.fuzz.server`; it reads a JSON line a command and answers with one.
"""

import importlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any

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
        os.chdir(asked["home"])
        for number, name in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o600), number)
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(asked["cpu"]), int(asked["cpu"]) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
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


def serve() -> None:
    """Answer line after line until there are no more."""
    for command in COMMANDS:
        importlib.import_module(f"vitral.cli.{command}")
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve()

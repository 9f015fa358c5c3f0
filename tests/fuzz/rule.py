"""The rule of the fuzzer: a command ends in time and memory, in one line at most, and changes nothing of the user's."""

import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.scene import Scene, Step, set_up, spell
from tests.http_servers import in_thread
from tests.weights.hostile_server import HUBS, Server
from tests.weights.hub_server import hub
from vitral.errors import TRY_AGAIN

SECONDS, CPU_SECONDS = 90, 30  # that a command may take: on the clock of a busy machine, and of a processor
SLOW, SLOWER = ("tune", "export", "study", "distill"), 6  # commands that may take so many times as long
MEMORY = 1 << 30  # bytes on top of what the imports take
STATUSES = (0, 1, 2)
HIDDEN = "torchvision::nms does not exist"  # as torchvision says that its own library found no memory
ONLINE = {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "", "HF_TOKEN": "hf_right", "HF_HUB_DISABLE_XET": "1"}
ABORTED = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
WRITTEN = ("--out", "--report")  # flags whose value a command may make
RUNS = "runs"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")

State = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    late: bool
    memory: int
    out: str
    err: str


class Runner:
    """Runs commands in forks of one process."""

    def __init__(self) -> None:
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "COLUMNS": "200",
            "PYTHONWARNINGS": "ignore",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
            text=True,
        )
        assert json.loads(self._line()) == {"ready": True}
        with tempfile.TemporaryDirectory() as home:
            self.idle = self.run(("models", "vit-mu16"), Path(home)).memory

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def run(self, command: Sequence[str], home: Path, step: Step | None = None) -> Ended:
        """Run a command in a folder, with what the step says of its surroundings."""
        step = step or Step(tuple(command))
        with _endpoint(step.hub) as environment:
            return self._run(command, home, step, {**environment, **step.environment})

    def _run(self, command: Sequence[str], home: Path, step: Step, environment: dict[str, str]) -> Ended:
        assert self.process.stdin is not None
        with tempfile.TemporaryDirectory() as outside:
            out, err = Path(outside) / "out", Path(outside) / "err"
            asked: dict[str, Any] = {"command": list(command), "home": str(home), "out": str(out), "err": str(err)}
            times = SLOWER if command[:1] and command[0] in SLOW else 1
            asked |= {"seconds": times * SECONDS, "cpu": times * CPU_SECONDS, "memory": step.memory}
            asked |= {"environment": environment, "accident": dict(step.accident)}
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self._line())
            texts = [path.read_text(errors="surrogateescape") if path.exists() else "" for path in (out, err)]
        return Ended(answer["status"], answer["late"], answer["memory"], *texts)

    def run_alone(self, command: Sequence[str], home: Path) -> Ended:
        """Run a command as a user does, in a process of its own."""
        line = [sys.executable, "-m", "vitral", *command]
        environment = {**self.environment, "PYTHONPATH": os.getcwd()}
        try:
            done = subprocess.run(
                line,
                cwd=home,
                env=environment,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ended(-9, True, 0, "", "")
        texts = [text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr)]
        return Ended(done.returncode, False, 0, *texts)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def _endpoint(answers: str) -> Iterator[dict[str, str]]:
    """Give the environment in which a Hub answers so."""
    if not answers:
        yield {}
    elif answers == "sound":
        with hub() as server:
            yield {**ONLINE, "HF_ENDPOINT": server.address}
    else:
        with in_thread(Server(HUBS[answers])) as hostile:
            yield {**ONLINE, "HF_ENDPOINT": f"http://127.0.0.1:{hostile.server_address[1]}"}


@contextmanager
def running() -> Iterator[Runner]:
    """Give a runner for a while."""
    runner = Runner()
    try:
        yield runner
    finally:
        runner.close()


def play(scene: Scene, runner: Runner, *, alone: bool = False) -> tuple[list[str], list[Ended]]:
    """Play a scene in a folder of its own, and return how the rule was broken, with how each command ended."""
    broken: list[str] = []
    ends: list[Ended] = []
    with tempfile.TemporaryDirectory(prefix="vitral-fuzz-") as folder:
        home = Path(folder, "far", "below", "what", "links", "reach")
        home.mkdir(parents=True)
        for number, step in enumerate(scene.steps):
            set_up(step, home, strict=bool(scene.name))
            command = [spell(word) for word in step.command]
            befallen = step.environment or step.accident or step.memory or step.hub
            if any("\0" in word for word in command) and alone:
                break  # no system takes it as an argument
            before = look(home)
            ended = runner.run_alone(command, home) if alone and not befallen else runner.run(command, home, step)
            ends.append(ended)
            found = [*judge(step, ended, runner.idle), *compare(step, command, before, look(home))]
            broken += [f"step {number}, vitral {' '.join(step.command)}: {what}" for what in found]
    return broken, ends


def judge(step: Step, ended: Ended, idle: int) -> Iterator[str]:
    """Give what is wrong with how a command ended."""
    if ended.late:
        yield "took too long"
        return
    if step.memory and HIDDEN in ended.err:
        return
    if "Traceback (most recent call last)" in ended.out + ended.err:
        yield f"ended in a traceback: {ended.err[-1500:]}"
        return
    if step.memory and ended.status in ABORTED:
        return  # a library in C++ ended the process: nothing of ours was asked
    stop = 128 + getattr(signal, step.accident["kind"]) if step.accident.get("kind", "ENOSPC") != "ENOSPC" else None
    short = TRY_AGAIN if step.memory else None
    if ended.status not in (*STATUSES, stop, short):
        yield f"ended with status {ended.status}: {ended.err[-300:]}"
    if step.memory and re.search("damaged|fetch it again|not a weights file", ended.err):
        yield f"blamed a sound file: {ended.err[-300:]}"
    if step.status is not None and ended.status != step.status:
        yield f"ended with status {ended.status}, not {step.status}: {ended.err[-300:]}"
    if ended.status > 0:
        lines = ended.err.splitlines()
        said = [line for line in lines if line.startswith("vitral: ")]
        if len(said) != 1 or lines[-1:] != said:
            yield f"did not end in one line: {ended.err[-500:]}"
    if step.says and step.says not in ended.out + ended.err:
        yield f"did not say '{step.says}': {ended.err[-300:]}"
    if ended.memory - idle > MEMORY:
        yield f"took {(ended.memory - idle) >> 20} MiB"
    if found := CONTROL.search(ended.err):
        yield f"wrote the control character {found[0]!r}"


def look(home: Path) -> State:
    """Return all that lies in a folder: kinds, links, and hashes."""
    found: State = {}
    for parent, folders, files in os.walk(home):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            status = os.lstat(path)
            what: Any = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    what = hashlib.file_digest(file, "sha256").hexdigest()
            found[os.path.relpath(path, home)] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), what)
    return found


def compare(step: Step, command: Sequence[str], before: State, after: State) -> Iterator[str]:
    """Give what a command changed that it may not."""
    free = [spell(path) for path in step.writes]
    for path, state in before.items():
        if after.get(path) != state and not _below(path, free):
            yield f"changed '{path}'" if path in after else f"deleted '{path}'"
    mine = [*free, RUNS, *_targets(command)]
    for path in after.keys() - before.keys():
        if not _below(path, mine) and not path.endswith("-attention.png"):
            yield f"left '{path}'"
        if os.path.basename(path).startswith(".vitral-partial-"):
            yield f"left '{path}'"


def _targets(command: Sequence[str]) -> Iterator[str]:
    for word, value in zip(command, command[1:], strict=False):
        if word in WRITTEN:
            yield value
    if command[:1] == ["convert"]:
        yield from command[2:3]


def _below(path: str, tops: Sequence[str]) -> bool:
    normal = [os.path.normpath(top) for top in tops if top]
    return any(path == top or path.startswith(top + os.sep) or top.startswith(path + os.sep) for top in normal)

"""The proof, on the user's own machine and data, that a killed run ends as one that was not: in the same bits.

`python -m vitral.checks.check_resume OPTIONS` is one of its runs, a process of its own, which may be killed. The options are
the fields of a `Request`, as JSON.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitral.data.open import open_data
from vitral.errors import TrainingError, VitralError
from vitral.events import Listener, Message, ignore
from vitral.files import sha256
from vitral.paths import CHECKPOINTS, EVALUATION_FILE, METRICS_FILE
from vitral.seeds import generator
from vitral.tasks.shown import Presentable
from vitral.training.records.checkpoints import PATTERN
from vitral.training.records.run_folder import holds_run

MODULE = "vitral.checks.check_resume"  # `__name__` is another where a process runs it
STEPS = 24
EVERY = 4  # steps between two checkpoints
KILLS = 3
TRIES = 6  # to kill a run that may be done before
PATIENCE = 600.0  # seconds for one run
# The proof is of the loop, the data and the disk, whatever the network; it has as many blocks as queries go through.
SMALL_NETWORK = "vit-nano4"
SMALL_SIZE = 32


@dataclass(frozen=True)
class ResumeCheck(Presentable):
    """What came of the proof.

    Attributes:
        kills: The seconds after which each process was killed, in turn.
        files: The parts that were compared, and whether they are equal.
        steps: The number of updates of each run.
        folder: The folder of the runs, which stays if they differ.
    """

    equal: bool
    kills: tuple[float, ...]
    files: dict[str, bool]
    steps: int
    seconds: float
    folder: str | None

    def lines(self) -> tuple[str, ...]:
        """Return each part with whether it is equal, and what the proof took."""
        parts = (f"{'equal ' if equal else 'DIFFERENT'}  {name}" for name, equal in self.files.items())
        return *parts, f"{len(self.kills)} kills in a run of {self.steps} steps, {self.seconds:.0f} s in all"


def check_resume(data: str = "digits", *, source: str | None = None, listener: Listener = ignore) -> ResumeCheck:
    """Train a short run twice, once unbroken and once killed without warning, and compare every bit.

    Each run is a process of its own that trains as `vitral.finetune` does, with dropout, averaging, workers and, where images
    can be mixed, MixUp.

    Without a network or weights to start from it takes a small network.

    Raises:
        TrainingError: A run failed by itself.
    """
    began = time.monotonic()
    mixed = open_data(data, verify=False, near=False, listener=ignore).task.mixable
    folder = Path(tempfile.mkdtemp(prefix="vitral-check-resume-"))
    whole, broken = folder / "unbroken", folder / "killed"
    run = partial(_command, data=data, source=source, mixed=mixed)
    listener(Message(f"An unbroken run of {STEPS} steps …"))
    seconds = _finish(run(whole))
    rng = generator(0, "kills")
    kills: list[float] = []
    for _ in range(TRIES):
        if len(kills) == KILLS:
            break
        moment = float(rng.uniform(0.3, 0.9)) * seconds
        if _killed(run(broken), moment):
            kills.append(round(moment, 2))
            saved = len(list((broken / CHECKPOINTS).glob(PATTERN)))
            listener(Message(f"Killed a second run after {moment:.1f} s, with {saved} checkpoints; going on with it …"))
        elif kills:
            break
        else:  # it was faster than the first, and done before
            seconds = moment
            shutil.rmtree(broken)
    _finish(run(broken))
    files = _compare(whole, broken)
    equal = all(files.values())
    if equal:
        shutil.rmtree(folder, ignore_errors=True)
    return ResumeCheck(equal, tuple(kills), files, STEPS, time.monotonic() - began, None if equal else str(folder))


def _command(folder: Path, *, data: str, source: str | None, mixed: bool) -> list[str]:
    settings = [
        f"steps={STEPS}",
        f"checkpoint.every_steps={EVERY}",
        f"evaluation.every_steps={2 * EVERY}",
        "batch_size=16",
        "workers=2",
        *(["mixing.mixup=0.2"] if mixed else []),
        "regularization.dropout=0.1",
        "averaging.decay=0.9",
    ]
    options = {
        "data": data,
        "source": source or SMALL_NETWORK,
        "image_size": None if source else SMALL_SIZE,
        "out": str(folder),
        "overrides": settings,
        "baselines": False,  # how many images those look at depends on the time
        "resume": holds_run(folder),
    }
    return [sys.executable, "-m", MODULE, json.dumps(options)]


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def _finish(command: list[str]) -> float:
    began = time.monotonic()
    process = _start(command)
    _, errors = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        line = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise TrainingError(f"A run of the proof failed by itself: {line[0]}")
    return time.monotonic() - began


def _killed(command: list[str], moment: float) -> bool:
    process = _start(command)
    try:
        process.communicate(timeout=moment)
        return False  # it was done before
    except subprocess.TimeoutExpired:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)  # with its workers
        else:  # on Windows, where workers end when they find nobody at the other end
            process.kill()
        process.communicate()
        return True


def _compare(first: Path, second: Path) -> dict[str, bool]:
    last = [sorted((folder / CHECKPOINTS).glob(PATTERN))[-1] for folder in (first, second)]
    return {
        "weights": _same(first / "classifier" / "weights.safetensors", second / "classifier" / "weights.safetensors"),
        "weights, average and optimizer at the end": _tensors(last[0]) == _tensors(last[1]),
        "metrics log": _same(first / METRICS_FILE, second / METRICS_FILE),
        "scores": _same(first / EVALUATION_FILE, second / EVALUATION_FILE),
    }


def _same(first: Path, second: Path) -> bool:
    return sha256(first) == sha256(second)


def _tensors(checkpoint: Path) -> str:
    state = json.loads((checkpoint / "state.json").read_text())
    return hashlib.sha256(json.dumps(state["files"], sort_keys=True).encode()).hexdigest()


def main(options: str) -> int:
    """Train as JSON options say, and return the process's exit status; an error of the user's is one line and status 1."""
    from vitral.training.request import Request  # seconds of start-up for a check of data
    from vitral.training.run import run_request

    try:
        run_request(Request("fine-tune", **json.loads(options)), listener=ignore)
    except VitralError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""`vitral finetune` as a user runs it: a process of its own, timed from its start to its end, and what it delivered."""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import vitral

TOLERANCE_SHARE, TOLERANCE_SECONDS = 0.05, 3.0
ONE_SIDED = 1.645  # standard deviations that a chance result exceeds in one of twenty runs
SAID = ("Network: ", "Recipe: ", "Length: ", "Images at ", "kept")  # lines that tell what was chosen
HANGS = 2.0  # times its budget, and
HANGS_SECONDS = 120.0  # so many seconds more, after which a command is ended


def finetune(data: str, seconds: float | None, seed: int, more: list[str]) -> dict[str, Any]:
    """Run the command with a budget, and score the classifier that it delivers on all of the images to score on.

    Args:
        data: what --data takes.
        seconds: the budget, --time; None for none.
        seed: --seed.
        more: further options.

    Returns:
        accuracy: of the test images, or the validation images where there is no test split; 0 of a command that failed.
        seconds: from the start of the command's process to its end; the scoring here is not in it.
        images, macs: training images seen, and multiply-accumulates of one, as far as known.
        chose: what the command delivered, for people.
        said: what it told of its choices.
        failed: why the command failed; not there otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [
            "finetune",
            "--data",
            data,
            *(["--time", f"{seconds:g}s"] if seconds else []),
            "--seed",
            str(seed),
            "--out",
            str(run),
            "--json",
        ]
        begun = time.monotonic()
        try:
            done = run_vitral([*command, *more], HANGS * seconds + HANGS_SECONDS if seconds else None)
        except subprocess.TimeoutExpired:
            return _failure("did not end", time.monotonic() - begun)
        taken = time.monotonic() - begun
        said = [line for line in done.stderr.splitlines() if any(word in line for word in SAID)]
        if done.returncode:
            return {**_failure((done.stderr.splitlines() or ["no message"])[-1], taken), "said": said}
        result = json.loads(done.stdout)
        scored = run_vitral(["evaluate", "--classifier", result["classifier"], "--data", data, "--json"])
        if scored.returncode:
            return {**_failure((scored.stderr.splitlines() or ["no message"])[-1], taken), "said": said}
        delivered = _delivered(run, result)
    return {"accuracy": json.loads(scored.stdout)["top1"], "seconds": taken, "said": said, **delivered}


def late(taken: float, budget: float) -> bool:
    """Tell whether a command missed its budget by more than is allowed."""
    return taken - budget > max(TOLERANCE_SECONDS, TOLERANCE_SHARE * budget)


def at_chance(accuracy: float, images: int, commonest: float) -> bool:
    """Tell whether an accuracy on some images is no evidence of more than always naming their commonest class.

    Args:
        accuracy: 0 to 1.
        images: scored.
        commonest: the share of the commonest class, 0 to 1.
    """
    return accuracy <= commonest + ONE_SIDED * math.sqrt(commonest * (1 - commonest) / images)


def version() -> str:
    """Return the version of the package and a hash of its files."""
    package = Path(vitral.__file__).parent
    files = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".toml", ".html"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
    return f"{vitral.__version__} {digest.hexdigest()[:12]}"


def run_vitral(command: list[str], limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with the package that is imported here, not one of the working directory, and return what it gave."""
    paths = [str(Path(vitral.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    line = [sys.executable, "-P", "-m", "vitral", *command]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=limit, env=environment)


def _failure(why: str, taken: float) -> dict[str, Any]:
    return {"accuracy": 0.0, "seconds": taken, "images": 0, "macs": 0, "chose": "failed", "said": [], "failed": why}


def _delivered(run: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Return what the classifier is that a run left, and how many images it saw."""
    from vitral.models.families import count_macs, describe

    model = vitral.load(result["classifier"]).model
    recipe = run / "recipe.toml"
    batch = tomllib.loads(recipe.read_text()).get("batch_size", 0) if recipe.is_file() else 0
    chose = f"{describe(model.config)} at {model.image_size[0]} px, {result['steps']:,} steps"
    if choice := result.get("choice"):  # of several candidates; the steps are those of the one that trained
        chose += f", {choice['kept']} kept"
    return {"images": result["steps"] * batch, "macs": count_macs(model.config), "chose": chose}

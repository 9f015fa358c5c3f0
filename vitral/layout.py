"""Paths and file names shared by commands, rooms, other tools and users."""

import os
from pathlib import Path

RUNS = Path("runs")  # where a run creates its folder if none is given
CLASSIFIER = "classifier"  # inside a run's folder: the classifier that it trained
RUN_FILE = "run.json"  # there too: what was asked for, what the run started from, on what data and machine
CHECKPOINTS = "checkpoints"  # there too: what a run goes on from
# The files of a classifier folder.
DESCRIPTION, WEIGHTS, CARD, TUNING = "classifier.json", "weights.safetensors", "README.md", "tuning.svg"
CLASSIFIER_FILES = (DESCRIPTION, WEIGHTS, CARD, TUNING)


def cache(kind: str) -> Path:
    """Return the folder on this machine for what can be fetched or made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitral" / kind

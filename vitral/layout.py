"""Paths and file names shared by commands, rooms, other tools and users."""

import os
from pathlib import Path

RUNS = Path("runs")  # the parent of run folders if no folder is given
# In a run's folder.
CLASSIFIER = "classifier"  # the trained classifier
RUN_FILE = "run.json"  # the request, the start, the data and the machine
CHECKPOINTS = "checkpoints"  # from which a run resumes
# In a classifier folder.
DESCRIPTION = "classifier.json"
WEIGHTS = "weights.safetensors"
CARD = "README.md"
TUNING = "tuning.svg"
CLASSIFIER_FILES = (DESCRIPTION, WEIGHTS, CARD, TUNING)


def cache(kind: str) -> Path:
    """Return the folder on this machine for files that can be fetched or made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitral" / kind

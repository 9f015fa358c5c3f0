"""A run that learns objects as the command does, with a worker, augmentation, dropout and averaging.

Called again it goes on after a kill, or scores again what is trained.
"""

import json
from pathlib import Path

from vitral.checks import check_resume
from vitral.training.records.run_folder import holds_run

STEPS = 40


def main(folder: Path, photos: str, head: str) -> int:
    """Train with a kind of head, or go on training, and return the exit status."""
    often = (f"steps={STEPS}", "checkpoint.every_steps=4", f"evaluation.every_steps={STEPS // 2}")
    settings = ("batch_size=4", "workers=1", "regularization.dropout=0.1", "averaging.decay=0.9", f"head.kind={head}")
    options = {
        "data": photos,
        "source": check_resume.SMALL_NETWORK,
        "image_size": check_resume.SMALL_SIZE,
        "out": str(folder),
        "overrides": [*often, *settings],
        "baselines": False,  # how many photos those look at depends on the time
        "resume": holds_run(folder),
    }
    return check_resume.main(json.dumps(options))

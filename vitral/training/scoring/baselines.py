"""The scores of simple classifiers on pixels, and on the frozen features of trained weights, before a run trains."""

import dataclasses
import json
from functools import partial

from vitral import distributed, torchrun
from vitral.described import read_kept
from vitral.evaluation.baselines import Baselines, Fitted, score_baselines
from vitral.events import Message
from vitral.files import write_file
from vitral.training.clock import BASELINES_SECONDS, BASELINES_SHARE
from vitral.training.optimization.precision import autocast, training_device
from vitral.training.records.run_folder import BASELINES_FILE
from vitral.training.session import Run


def run_baselines(run: Run, fitted: Fitted | None) -> Baselines | None:
    """Return the scores of simple classifiers; None if they are off, do not fit the data or take too long.

    Args:
        run: The run.
        fitted: The training images' features, if they are known already.
    """
    task, listener = run.data.task, run.listener
    # Neighbours' votes and the closed form need a single label.
    if not run.request.baselines or not task.exclusive or run.data.scored_split() == "train":
        return None
    path = run.folder / BASELINES_FILE
    if run.request.resume and (stored := distributed.broadcast(read_kept(Baselines, path))) is not None:
        return stored
    budget = run.clock.seconds
    seconds = max(BASELINES_SHARE * run.cost.seconds, BASELINES_SECONDS) if budget is None else BASELINES_SHARE * budget
    baselines = score_baselines(
        run.classifier,
        run.data,
        network=run.plan.origin == "weights",
        context=partial(autocast, training_device(), run.recipe.precision),
        seconds=seconds,
        fitted=fitted,
        listener=listener,
    )
    if baselines is None:
        listener(
            Message(
                f"No baselines: simple classifiers would take longer than {seconds:.1f} s, "
                f"{BASELINES_SHARE:.0%} of the run's time."
            )
        )
        return None
    if torchrun.is_main():
        write_file(path, json.dumps(dataclasses.asdict(baselines)))
    listener(Message(baselines.sentence()))
    return baselines

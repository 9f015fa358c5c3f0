"""Finished runs as their folders describe them; no weights are loaded."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.classifier.provenance import RANDOM
from vitral.described import read_object
from vitral.errors import StudyError, VitralError
from vitral.layout import CLASSIFIER, DESCRIPTION
from vitral.models.codec import config_from_json
from vitral.models.naming import describe
from vitral.paths import is_folder, look_at
from vitral.tasks.registry import described_task
from vitral.tasks.task import Figure
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.run_file import REQUEST, read_run
from vitral.training.records.run_folder import STUDY_FILE, holds_run
from vitral.training.settings.recipe import Recipe, load_recipe, may_change

SCORES_FILE = "evaluation.json"
LENGTH = {"steps", "schedule.bends"}  # may change when a run continues, and make it another
SPLITS = ("test", "validation", "train")  # one of which a run scores itself on


@dataclass(frozen=True)
class FinishedRun:
    """A run that has its score: the value of the figure that compares networks of its task, on the images of a split.

    `start` is as the user gave it, empty for random weights, and `start_path` its path on disk, links followed; empty if it is
    no path, or nothing is there any more. The fingerprint is the data's, empty if they have none. The recipe is as resolved,
    and `remark` is a line that a reader must know.
    """

    folder: Path
    model: str
    start: str
    data: str
    fingerprint: str
    classes: int
    split: str
    images: int
    seed: int
    recipe: Recipe
    figure: Figure
    score: float
    remark: str = ""
    start_path: str = ""

    def settings(self) -> dict[str, Any]:
        """Return the recipe's settings by dotted name, without the seed and what changes no result."""
        free = {"seed", *may_change()} - LENGTH
        return {key: value for key, value in self.recipe.leaves.items() if key not in free}

    def identity(self) -> str:
        """Return the identity of the data, whatever path was given: the fingerprint, or the name if there is none."""
        return self.fingerprint or self.data

    def origin(self) -> str:
        """Return the identity of the start, whatever path was given."""
        return self.start_path or self.start

    def question(self) -> tuple[str, ...]:
        """Return what repetitions of a run have in common: all but the seed."""
        return (self.model, self.origin(), self.identity(), json.dumps(self.settings(), sort_keys=True))


def finished_runs(folder: str | Path) -> list[FinishedRun]:
    """Return the run in a folder, or those of a study: of the seeds of one recipe, or of several arms.

    Raises:
        StudyError: There is no such folder, no run in it, or one that has no score yet.
    """
    path = Path(folder)
    if not is_folder(path):
        raise StudyError(f"There is no folder '{path}'; name a run folder, or that of several seeds of one.")
    if holds_run(path):
        return [read_finished(path)]
    inside = sorted(entry for entry in path.iterdir() if holds_run(entry)) if (path / STUDY_FILE).is_file() else []
    if not inside:
        raise StudyError(f"'{path}' holds no run; name a run folder, or that of several seeds of one.")
    return [read_finished(run) for run in inside]


def read_finished(folder: Path) -> FinishedRun:
    """Return a finished run as its folder describes it.

    Raises:
        StudyError: It is not finished, or its files are damaged.
    """
    scores, described = read_object(folder / SCORES_FILE), read_object(folder / CLASSIFIER / DESCRIPTION)
    if not scores or not described or not (folder / RECIPE_FILE).is_file():
        raise StudyError(f"The run in '{folder}' has no score yet, or trained nothing; resume it, or leave it out.")
    try:
        return _read(folder, read_run(folder), scores, described)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration, VitralError) as error:
        raise StudyError(f"The files of the run in '{folder}' are damaged ({error}); leave it out.") from error


def _read(folder: Path, run: dict[str, Any], scores: dict[str, Any], described: dict[str, Any]) -> FinishedRun:
    figure, known = described_task(described).headline, described["provenance"]["scores"]
    split = next(split for split in SPLITS if f"{split}/{figure.name}" in known)
    recipe = load_recipe(folder / RECIPE_FILE)
    source = described["provenance"]["source"]
    start = "" if source.startswith(RANDOM) else str(run.get("from") or source)
    return FinishedRun(
        folder=folder,
        model=describe(config_from_json(described["architecture"])),
        start=start,
        start_path=_on_disk(start, run),
        data=str(run["data"]),
        fingerprint=str(run["data_fingerprint"] or ""),
        classes=len(described["class_names"]),
        split=split,
        images=int(scores["num_examples"]),
        seed=recipe.seed,
        recipe=recipe,
        figure=figure,
        score=float(known[f"{split}/{figure.name}"]),
        remark=str(scores.get("choice", {}).get("sentence", "")),
    )


def _on_disk(start: str, run: dict[str, Any]) -> str:
    """Return the path of a start that was given in the folder in which the run began."""
    request = run.get(REQUEST)
    path = Path(str(request.get("where", "")) if isinstance(request, dict) else "", start)
    return str(path.resolve()) if start and look_at(path) is not None else ""

"""How the runs below a folder stand, by the files that they left; read without torch, and without their being disturbed."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from vitral.described import mapping, read_object
from vitral.outputs import is_worked_in
from vitral.paths import (
    ATTEMPT_FILE,
    ATTEMPTS,
    CLASSIFIER,
    DESCRIPTION,
    EVALUATION_FILE,
    FIRST,
    FIRST_FILE,
    METRICS_FILE,
    OUTCOME_FILE,
    PLAN_FILE,
    RUN_FILE,
    RUNS,
    attempt_folder_name,
)

State = Literal["running", "stopped", "done"]
VALIDATION = "validation/"
REGIONS = {"ap": "AP", "miou": "mean IoU", "pq": "PQ"}  # the figures of tasks about regions, as people call them
HEADLINES = ("top1", "map", *REGIONS)  # the figure by which a classifier is judged, by task
TAIL = 1 << 16  # bytes of a log's end that hold its last rows


@dataclass(frozen=True)
class RunScore:
    """How good a classifier is.

    Attributes:
        name: "top1", the share of images that are right; another of the `HEADLINES`; or as the log of a training names it.
        value: 0 to 1.
        split: The images that it is of: "test", "validation" or "training".
    """

    name: str
    value: float
    split: str

    def text(self) -> str:
        """Return it for people, who are told of which images it is."""
        if self.name in ("top1", "accuracy"):
            return f"{self.value:.1%} right"
        return f"{REGIONS.get(self.name, self.name)} {self.value:.1%}"


@dataclass(frozen=True)
class RunState:
    """How a run stands.

    Attributes:
        folder: The run's folder.
        kind: "fine-tune" or "pre-train".
        data: The name of its data, as it was given; empty where the folder does not say.
        state: "running" if a process works in the folder, "done" if the run came to its scores, or else "stopped".
        changed: When something was last written of the run, in UTC, as ISO 8601.
        classifier: The folder of its classifier; None as long as there is none.
        validation: How good that is on validation images; None where it was not scored on them.
        test: How good it is on test images; likewise.
        best: The best of what it tried so far, on validation images.
        steps: Updates made, of all that is trained.
        planned_steps: Updates planned; 0 where nothing is trained, or nothing is planned yet.
        progress: The share of the training that is done, 0 to 1; None as long as nothing is planned.
        seconds_left: What is left of the training, by the plan; None for a run that is done, or has no plan.
    """

    folder: str
    kind: str
    data: str
    state: State
    changed: str
    classifier: str | None
    validation: RunScore | None
    test: RunScore | None
    best: RunScore | None
    steps: int
    planned_steps: int
    progress: float | None
    seconds_left: float | None


def list_runs(parent: Path = RUNS, *, studies: bool = True) -> list[RunState]:
    """Return the runs in a folder, and those of its studies unless they are left out, the newest first."""
    patterns = ("*", "*/*") if studies else ("*",)
    folders = {path.parent for pattern in patterns for path in parent.glob(f"{pattern}/{RUN_FILE}")}
    return sorted(map(read_state, folders), key=lambda run: (run.changed, run.folder), reverse=True)


def read_state(folder: Path) -> RunState:
    """Return how the run in a folder stands."""
    run, plan = read_object(folder / RUN_FILE), read_object(folder / PLAN_FILE)
    request = mapping(run.get("request"))
    kind = str(run.get("kind", "fine-tune"))
    logs = [folder / METRICS_FILE, *folder.glob(f"{ATTEMPTS}/*/{METRICS_FILE}")]
    state: State = "running" if is_worked_in(folder) else "done" if _is_scored(folder, logs) else "stopped"
    steps, planned, progress = _progress(folder, plan)
    left = None if state == "done" or progress is None else (1 - progress) * _seconds(plan, request)
    classifier = folder / CLASSIFIER
    known = (classifier / DESCRIPTION).is_file()
    scores = scores_of(mapping(read_object(classifier / DESCRIPTION).get("provenance"))) if known else {}
    return RunState(
        folder=str(folder),
        kind=kind,
        data=str(request.get("data") or run.get("data") or ""),
        state=state,
        changed=_changed([folder / EVALUATION_FILE, folder / PLAN_FILE, folder / RUN_FILE, *logs]),
        classifier=str(classifier) if known else None,
        validation=scores.get("validation"),
        test=scores.get("test"),
        best=_best(folder, logs),
        steps=steps,
        planned_steps=planned,
        progress=progress,
        seconds_left=left,
    )


def _is_scored(folder: Path, logs: list[Path]) -> bool:
    """Tell whether a run's scores are of all that it trained: what goes on writes its log after them."""
    if not (folder / EVALUATION_FILE).is_file():
        return False
    written = (folder / EVALUATION_FILE).stat().st_mtime
    return all(log.stat().st_mtime <= written for log in logs if log.is_file())


def _changed(paths: list[Path]) -> str:
    """Return when a run was scored; of one that was not when any of its files was written."""
    there = [path for path in paths if path.is_file()]
    scored = there[:1] if there and there[0].name == EVALUATION_FILE else there
    newest = max((path.stat().st_mtime for path in scored), default=time.time())
    return datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")


def _progress(folder: Path, plan: dict[str, Any]) -> tuple[int, int, float | None]:
    """Return the updates made and planned, and the share of the training's time that is done; None without a plan."""
    if not plan:
        return 0, 0, None
    attempts = [mapping(attempt) for attempt in plan.get("attempts", ())]
    steps, planned, done = 0, 0, 0.0
    for attempt in attempts:
        name = attempt_folder_name(str(attempt.get("name", "")))
        place = folder / ATTEMPTS / name if len(attempts) > 1 else folder
        length = int(mapping(attempt.get("recipe")).get("steps") or 0)
        made = min(length, max((int(row.get("step", 0)) for row in _last_rows(place / METRICS_FILE)), default=0))
        ended = (place / ATTEMPT_FILE).is_file() or (place / OUTCOME_FILE).is_file()
        steps, planned = steps + made, planned + length
        done += float(attempt.get("share", 1.0)) * (1.0 if ended or not length else made / length)
    return steps, planned, done if attempts else 1.0


def _seconds(plan: dict[str, Any], request: dict[str, Any]) -> float:
    """Return the seconds that a run's training is planned to take, within its budget."""
    planned = float(mapping(plan.get("cost")).get("seconds") or 0.0)
    budget = request.get("time")
    return min(planned, float(budget)) if isinstance(budget, int | float) else planned


def scores_of(provenance: dict[str, Any]) -> dict[str, RunScore]:
    """Return the headline figures of a classifier, by split, from what its description says of its provenance."""
    scores = mapping(provenance.get("scores"))
    return {
        split: RunScore(name, float(value), split)
        for split in ("validation", "test")
        for name in HEADLINES
        if isinstance(value := scores.get(f"{split}/{name}"), int | float)
    }


def _best(folder: Path, logs: list[Path]) -> RunScore | None:
    """Return the best figure on validation images: of the first classifier, of finished attempts, or in a log."""
    found = []
    own = mapping(mapping(read_object(folder / FIRST / DESCRIPTION).get("provenance")).get("scores"))
    name = next(iter(own), "top1").rpartition("/")[2]
    for path in (folder / FIRST_FILE, folder / ATTEMPT_FILE, *folder.glob(f"{ATTEMPTS}/*/{ATTEMPT_FILE}")):
        told = read_object(path)
        if isinstance(figure := told.get("figure"), int | float):
            found.append(RunScore(name, float(figure), str(told.get("split", "validation"))))
    for row in (row for log in logs for row in _last_rows(log)):
        found += [
            RunScore(name.removeprefix(VALIDATION), float(value), "validation")
            for name, value in row.items()
            if name.startswith(VALIDATION) and not name.endswith("loss") and isinstance(value, int | float)
        ][:1]
    return max(found, key=lambda score: score.value, default=None)


def _last_rows(log: Path) -> Iterator[dict[str, Any]]:
    """Give the last whole rows of a log."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        for line in file.read().splitlines():
            with suppress(ValueError, RecursionError):
                yield mapping(json.loads(line))

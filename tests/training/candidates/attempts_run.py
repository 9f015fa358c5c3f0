"""A run that tries several ways to learn, for few updates each, also as one process of a job."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vitral
from vitral import distributed
from vitral.events import Event, Progress, ignore
from vitral.paths import PLAN_FILE
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.candidates import first
from vitral.training.candidates.result import RunResult, choose
from vitral.training.choose import attempts
from vitral.training.choose import recipe as chosen_recipe
from vitral.training.plan import ALL, ANEW, LAST, LORA
from vitral.training.starting import view_trials

SETTINGS = ("workers=0", "checkpoint.every_steps=5", "precision=fp32")
STEPS = 24
TRIED = (LAST, LORA, ALL, ANEW)  # of images that are no larger than the network's own


@contextmanager
def make_short() -> Iterator[None]:
    """Let every attempt make a few updates that learn something, and the probe, of few images, less than they."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen_recipe, "LEAST_STEPS", STEPS)  # to say so in the recipe would mean one way to learn
        patch.setattr(chosen_recipe, "CPU_PASSES", 1)
        patch.setattr(attempts, "LORA_LR", 1e-2)
        patch.setattr(chosen_recipe, "FULL_LR", 1e-2)
        patch.setattr(first, "MOST_IMAGES", 4)
        patch.setattr(view_trials, "FEWEST_IMAGES", 1_000_000)  # how images vary is tried in tests of its own
        yield


def tune(data: Path | None, out: Path, start: Path | None, **asked: Any) -> RunResult:  # noqa: ANN401
    given: dict[str, Any] = {"source": start, "image_size": 16, "overrides": SETTINGS, "listener": ignore}
    return vitral.finetune(data, out=out, **(given | asked))


def go_on(run: Path, **asked: Any) -> RunResult:  # noqa: ANN401
    return vitral.finetune(out=run, resume=True, **({"listener": ignore} | asked))


def attempts_of(run: Path) -> list[Path]:
    return sorted((run / "attempts").iterdir())


def contents(run: Path) -> dict[str, bytes]:
    """Return what must not depend on how often a run was interrupted."""
    names = ["classifier/weights.safetensors", "metrics.jsonl", "recipe.toml", "evaluation.json", "first.json"]
    for folder in attempts_of(run):
        names += [
            f"attempts/{folder.name}/{name}"
            for name in ("classifier/weights.safetensors", "metrics.jsonl", "recipe.toml")
        ]
    return {name: (run / name).read_bytes() for name in names}


def reached(run: Path) -> dict[str, int]:
    """Return the updates that each attempt of a run made in all."""
    return {path.parent.name: json.loads(path.read_text())["reached"] for path in run.glob("attempts/*/attempt.json")}


def cut_short(run: Path, *, planned: int) -> None:
    """Make a run look as if a budget had ended its attempts before the recipe's length."""
    for attempt in attempts_of(run):
        for state in (attempt / "checkpoints").glob("step-*/state.json"):
            state.write_text(json.dumps(json.loads(state.read_text()) | {"recipe_steps": planned}))
        recipe = (attempt / "recipe.toml").read_text()
        assert f"\nsteps = {STEPS}\n" in recipe
        (attempt / "recipe.toml").write_text(recipe.replace(f"\nsteps = {STEPS}\n", f"\nsteps = {planned}\n"))
    plan = json.loads((run / PLAN_FILE).read_text())
    for attempt_planned in plan["attempts"]:
        attempt_planned["recipe"]["steps"] = planned
    (run / PLAN_FILE).write_text(json.dumps(plan))


def best_of(result: RunResult) -> Path:
    """Return the folder of the best attempt of a run."""
    assert result.choice is not None
    best = choose(result.choice.candidates[1:], SINGLE_LABEL.headline).best
    return result.run.folder / "attempts" / best.lower().replace(" ", "-")


def count_into(trained: list[Progress]) -> Callable[[Event], None]:
    def count(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            trained.append(event)

    return count


def in_attempt(number: int, step: int) -> Callable[[], Callable[[Event], bool]]:
    """Return what waits for a step of the attempt of a number."""

    def waiting() -> Callable[[Event], bool]:
        begun = 0

        def now(event: Event) -> bool:
            nonlocal begun
            begun += isinstance(event, Progress) and event.task == "train" and event.done == 1
            return isinstance(event, Progress) and event.task == "train" and (begun, event.done) == (number, step)

        return now

    return waiting


def main(run: Path, data: Path, start: Path) -> int:
    """Carry the run out, and write what this process ended with beside it."""
    with make_short():
        result = tune(data, run, start)
    assert result.choice is not None
    figures = [f"{one.name} {one.figure:.6f}" for one in result.choice.candidates]
    told = [result.choice.best, *figures, f"{result.evaluation.headline():.6f}"]
    (run.parent / f"{run.name}-{distributed.rank()}.txt").write_text("\n".join(told))
    distributed.leave()
    return 0

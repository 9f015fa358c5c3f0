"""What views and learning rates give where regions are learned: variations of one run, after one first answer in closed form.

    python benchmarks/region_rates.py semantic:nuclei/ --steps 250 --set image_size=192
        --try 'optimizer.backbone_lr=0.5' 'optimizer.backbone_lr=0.1' 'adaptation.method="probe"'

Each variation is one line of changes to the automatic recipe, separated by spaces, with values as --set takes them, and begins
as the same first answer. It is the product's own training and validation; nothing is delivered.
"""

import argparse
import copy
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from vitral.errors import VitralError
from vitral.events import ignore
from vitral.training import run as runs
from vitral.training.candidates.deliver import Outcome
from vitral.training.candidates.first import FirstClassifier
from vitral.training.clock import Clock, Pacer
from vitral.training.loop import train
from vitral.training.methods.method import TrainingBatches
from vitral.training.request import Request
from vitral.training.scoring.validation import Scoring, run_validation
from vitral.training.session import Run
from vitral.training.starting.prepare import set_rates


class Done(Exception):
    """All variations were tried."""


def figures(
    run: Run, scoring: Scoring, first: FirstClassifier | None, changes: list[str], seed: int
) -> tuple[str, float]:
    """Train a variation; return the figures of its last validation, as text, and its seconds."""
    recipe = run.recipe.changed([*changes, f"seed={seed}", f"evaluation.every_steps={run.recipe.steps}"])
    run = replace(run.with_recipe(recipe), listener=ignore)
    model = copy.deepcopy(run.classifier.model)
    set_rates(model, recipe)
    if first is not None:
        first.give_head(model, run, smaller=False)
    batches, began = run.batches(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(
            model,
            batches,
            recipe=recipe,
            normalize=run.classifier.preprocessing.normalize,
            class_names=run.data.class_names,
            folder=Path(folder),
            validate=run_validation(run, scoring),
            pacer=Pacer(Clock(None)),
            listener=ignore,
        )
    rows = [row for row in trained.history if any(name.startswith("validation/") for name in row)]
    reached = {
        name.removeprefix("validation/"): value for name, value in rows[-1].items() if name.startswith("validation/")
    }
    return ", ".join(f"{name} {value:.4g}" for name, value in reached.items()), time.monotonic() - began


def main() -> None:
    """Fit the first answer, then try every variation for every seed, a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--from", dest="source", help="as `vitral finetune` takes it")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--set", nargs="*", default=[], help="changes of all variations")
    parser.add_argument("--try", nargs="+", default=[""], dest="variations", help="changes of one variation each")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()

    def tried(run: Run, scoring: Scoring, batches: TrainingBatches, first: FirstClassifier | None) -> Outcome:
        if first is not None:
            print(f"{first.candidate.name}: {first.candidate.figure:.4g} of {first.candidate.images} validation photos")
        for variation in options.variations:
            for seed in range(options.seeds):
                reached, seconds = figures(run, scoring, first, variation.split(), seed)
                print(f"{variation or 'as it is'}, seed {seed}: {reached}; {seconds:.0f} s", flush=True)
        raise Done

    runs.try_attempts = tried
    with tempfile.TemporaryDirectory() as folder:
        changes = (f"steps={options.steps}", *options.set)
        request = Request("fine-tune", options.data, options.source, overrides=changes, out=Path(folder) / "run")
        try:
            runs.run_request(request, verify=False, listener=ignore)
        except VitralError as error:
            parser.error(str(error))
        except Done:
            pass


if __name__ == "__main__":
    main()

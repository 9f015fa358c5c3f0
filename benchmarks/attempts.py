"""Which way to learn from trained weights pays, and whether `vitral finetune` finds it: each way alone, and the choice.

    python benchmarks/attempts.py FOLDER... --from START... [--time 2m] [--seeds 1] [--json results.json]

FOLDER is what `open_data` takes, START what --from takes. Every run is a process of its own with the whole time; all are scored
on the whole test split (the validation split where there is none).

    probe         vitral finetune --quick: the linear layer in closed form
    last-blocks   what the choice tries under this name, alone: its settings said by --set, delivered as trained
    lora, all-weights, larger-images, as-from-scratch  likewise; the last without its own warm-up and views
    choice        vitral finetune --data FOLDER --from START --time T: no other option

The table is what `vitral.training.choose.attempts` is made by. Exit status 1 if the choice failed or was late.
"""

import argparse
import statistics
import sys
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import product
from kept import Kept, Run

PROBE, CHOICE = "probe", "choice"


def arms(start: str) -> dict[str, list[str]]:
    """Return the options of each arm from a start."""
    import vitral
    from vitral.paths import attempt_folder_name
    from vitral.training.choose.attempts import COST, FINER_SIDE, changes_of
    from vitral.training.choose.recipe import fitting_size
    from vitral.training.facts import look_at_weights

    loaded = vitral.load(start)
    model, weights = loaded.model, look_at_weights(loaded)
    finer = fitting_size(model.config, round(FINER_SIDE * min(model.image_size)))
    found = {PROBE: ["--quick"]}
    for name in COST:
        changes, _ = changes_of(name, weights, finer)
        said = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
        found[attempt_folder_name(name)] = ["--no-baselines", *said]
    return {**found, CHOICE: []}


def question(data: str, start: str, arm: str, seconds: float, seed: int) -> dict[str, Any]:
    """Return what a kept run must have answered."""
    versions = {"torch": metadata.version("torch"), "vitral": product.version()}
    return {"data": data, "start": start, "arm": arm, "seconds": seconds, "seed": seed, "versions": versions}


def rows(runs: dict[str, list[Run]]) -> list[str]:
    """Return the table of one dataset and start."""
    lines = [f"  {'':12}{'mean':>8}{'spread':>8}{'seconds':>9}  what it was"]
    for arm, made in runs.items():
        scores = [one["accuracy"] for one in made]
        taken = statistics.fmean(one["seconds"] for one in made)
        chose = "; ".join(dict.fromkeys(one["chose"] for one in made))
        spread = 100 * (max(scores) - min(scores))
        lines.append(f"  {arm:12}{statistics.fmean(scores):8.1%}{spread:8.1f}{taken:9.0f}  {chose}")
    return lines


def wrong(runs: dict[str, list[Run]], seconds: float) -> list[str]:
    """Return what is wrong with the choice, a line each."""
    found = []
    for seed, one in enumerate(runs[CHOICE]):
        if "failed" in one:
            found.append(f"seed {seed} failed: {one['failed']}")
        if product.late(one["seconds"], seconds):
            found.append(f"seed {seed} took {one['seconds']:.0f} s of {seconds:.0f}")
    return found


def main() -> None:
    """Run every arm on every folder from every start, and print a table of each pair."""
    from vitral.training.settings.durations import seconds as duration

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--from", dest="starts", nargs="+", required=True)
    parser.add_argument("--time", default="2m", help="as `vitral finetune` takes it")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds, kept, failed = duration(options.time), Kept(options.json), False
    for data in options.data:
        for start in options.starts:
            runs: dict[str, list[Run]] = {}
            for arm, more in arms(start).items():
                for seed in range(options.seeds):
                    make = partial(product.finetune, data, seconds, seed, ["--from", start, *more])
                    runs.setdefault(arm, []).append(kept.get(question(data, start, arm, seconds, seed), make))
            print(f"\n{Path(data).name} from {start} in {seconds:.0f} s:")
            print("\n".join([*rows(runs), *wrong(runs, seconds)]), flush=True)
            failed = failed or bool(wrong(runs, seconds))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""What trained weights are worth: the default command, a start by name, from scratch, and scikit-learn on features.

    python benchmarks/starts_grid.py FOLDER... --from START [--minutes 1 3 10 30] [--seeds 3] [--ways default scratch]
        [--peers fastai=PYTHON autogluon=PYTHON --timm NETWORK=FILE] [--json results.json] [--csv docs/starts_grid.csv]

FOLDER is what `open_data` takes, START what --from takes. Every run is a process of its own with all cores, one after another:
run nothing beside them. Nothing but downloaded weights is kept from one to the next. All are scored on the whole test split
(the validation split where there is none).

    default       vitral finetune --data FOLDER --time T: no other option, with the weights that the cache holds
    from          the same with --from START
    scratch       the same with an empty cache and no network to fetch from; where no package brings weights
    scikit-learn  what a user would write instead: StandardScaler and LogisticRegression on START's features, in float32 at its
                  own size, fitted on all images but those to score. It knows no clock and no seed: one run for a folder
    fastai        start_peers/fastai_peer.py, by a Python that has fastai, of folders with train/ and test/
    autogluon     start_peers/autogluon_peer.py likewise. Both begin with FILE, START's weights as timm's NETWORK:
                  `vitral convert START FILE --format timm`

Exit status 1 if the default is below the better of `from` and `scratch` by more than a standard error, said first, then the
table. --csv writes a row for each run. What --json holds already, of the same versions, images, minutes and seed, is not run
again. Small seeds, few minutes and easy folders come first, so that an interrupted run leaves whole rows.
"""

import argparse
import csv
import itertools
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import product
from first_use import Folder, look_at
from huggingface_hub import constants
from kept import Kept, Run

DEFAULT, FROM, SCRATCH, SKLEARN = "default", "from", "scratch", "scikit-learn"
WAYS = (DEFAULT, FROM, SCRATCH, SKLEARN)
PEERS = {"fastai": ("fastai", "timm"), "autogluon": ("autogluon.multimodal", "timm")}  # and the packages that make them
HERE = Path(__file__).parent
MINUTES = (1.0, 3.0, 10.0, 30.0)
AT_ONCE = 32  # images
COLUMNS = ("set", "images", "classes", "scored", "minutes", "seed", "way", "accuracy", "seconds", "chose")


def sklearn_on_features(data: str, start: str, begun: float) -> Run:
    """Fit scikit-learn's linear classifier on a start's features in this process, begun at `begun` of the monotonic clock."""
    import torch
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import vitral
    from vitral.data.open import open_data

    opened, network = open_data(data, verify=False), vitral.load(start)

    def features(split: str) -> tuple[np.ndarray, np.ndarray]:
        source = opened.splits[split]
        with torch.inference_mode():
            parts = [
                network.features(torch.stack([network.preprocessing(source.image(index)) for index in part.tolist()]))
                for part in torch.arange(len(source)).split(AT_ONCE)
            ]
        return torch.cat(parts).float().numpy(), source.labels()

    scored = opened.scored_split()
    learn = [
        np.concatenate(part)
        for part in zip(*(features(split) for split in opened.splits if split != scored), strict=True)
    ]
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(*learn)
    accuracy, taken = fitted.score(*features(scored)), time.monotonic() - begun
    return {"accuracy": accuracy, "seconds": taken, "chose": f"{start} at {network.preprocessing.image_size[0]} px"}


def run_peer(python: str, name: str, folder: Folder, timm: tuple[str, str], minutes: float, seed: int) -> Run:
    """Let another library learn in a process of its own."""
    script = HERE / "start_peers" / f"{name}_peer.py"
    command = [python, str(script), folder.data, *timm, f"{60 * minutes:g}", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"accuracy": 0.0, "seconds": 0.0, "chose": "failed", "failed": done.stderr[-300:]}
    made: Run = json.loads(done.stdout[done.stdout.rindex("{") :])  # behind the bars of its progress
    return made


def peer_versions(python: str, name: str) -> dict[str, str]:
    """Return the versions of what computes a peer."""
    program = "import json, sys; from importlib.metadata import version; print(json.dumps([version(n) for n in sys.argv[1:]]))"
    packages = ("torch", *PEERS[name])
    found = subprocess.run([python, "-c", program, *packages], capture_output=True, text=True, check=True)
    return dict(zip(packages, json.loads(found.stdout), strict=True))


def run(way: str, folder: Folder, start: str, minutes: float, seed: int) -> Run:
    """Make one run of a way."""
    if way == SKLEARN:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            return alone.submit(sklearn_on_features, folder.data, start, time.monotonic()).result()
    more = ["--from", start] if way == FROM else []
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            "HF_HOME": constants.HF_HOME,
            "XDG_CACHE_HOME": empty,
        }  # no features, engines or plans of an earlier run
        if way == SCRATCH:
            environment |= {"HF_HUB_CACHE": empty, "HF_HUB_OFFLINE": "1"}
        with mock.patch.dict(os.environ, environment):
            return product.finetune(folder.data, 60 * minutes, seed, more)


def question(way: str, folder: Folder, start: str, minutes: float, seed: int) -> dict[str, Any]:
    """Return what a kept run must have answered; scikit-learn answers for all minutes and seeds."""
    versions = {"torch": metadata.version("torch"), "vitral": product.version()}
    asked: dict[str, Any] = {"way": way, "images": folder.fingerprint, "versions": versions}
    if way in (FROM, SKLEARN):
        asked["start"] = start
    return asked if way == SKLEARN else {**asked, "minutes": minutes, "seed": seed}


def below(folder: Folder, minutes: float, runs: dict[str, list[Run]]) -> list[str]:
    """Return a line if the default is below the better of the two roads by more than a standard error of its accuracy."""
    means = {way: statistics.fmean(one["accuracy"] for one in made) for way, made in runs.items()}
    best = max((means[way], way) for way in (FROM, SCRATCH) if way in means) if {FROM, SCRATCH} & set(means) else None
    if best is None or DEFAULT not in means:
        return []
    behind, allowed = best[0] - means[DEFAULT], math.sqrt(best[0] * (1 - best[0]) / folder.scored)
    if behind <= allowed:
        return []
    return [f"{folder.name}, {minutes:g} min: {100 * behind:.1f} points below {best[1]} ({100 * allowed:.1f} allowed)"]


def row(folder: Folder, minutes: float, seed: int, way: str, made: Run) -> dict[str, Any]:
    """Return a run as a row of the table."""
    known = (folder.name, folder.learned, folder.classes, folder.scored, f"{minutes:g}", seed, way)
    return dict(zip(COLUMNS, (*known, f"{made['accuracy']:.4f}", f"{made['seconds']:.0f}", made["chose"]), strict=True))


def main() -> None:
    """Run every way for every seed, folder and minutes, and say first where the default lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--from", dest="start", required=True)
    parser.add_argument("--minutes", nargs="+", type=float, default=MINUTES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--peers", nargs="*", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--timm", metavar="NETWORK=FILE")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    folders, kept = [look_at(data) for data in options.data], Kept(options.json)
    pythons = dict(peer.split("=", 1) for peer in options.peers)
    if not set(pythons) <= set(PEERS) or (pythons and not options.timm):
        parser.error(f"--peers takes {' and '.join(PEERS)}, with --timm.")
    versions = {name: peer_versions(python, name) for name, python in pythons.items()}
    runs: dict[tuple[Folder, float], dict[str, list[Run]]] = {}
    rows: list[dict[str, Any]] = []
    ways = [*options.ways, *pythons]
    for seed, minutes, folder, way in itertools.product(range(options.seeds), options.minutes, folders, ways):
        asked = question(way, folder, options.start, minutes, seed)
        if way in pythons:
            timm = tuple(options.timm.split("=", 1))
            make = partial(run_peer, pythons[way], way, folder, timm, minutes, seed)
            asked |= {"versions": versions[way], "start": options.start}
        else:
            make = partial(run, way, folder, options.start, minutes, seed)
        made = kept.get(asked, make)
        runs.setdefault((folder, minutes), {}).setdefault(way, []).append(made)
        rows.append(row(folder, minutes, seed, way, made))
        print(", ".join(f"{value}" for value in rows[-1].values()), flush=True)
        if options.csv:
            with options.csv.open("w", newline="") as file:
                table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                table.writeheader()
                table.writerows(rows)
    lost = [line for (folder, minutes), made in runs.items() for line in below(folder, minutes, made)]
    fine = ["The default is nowhere below the better road."] if DEFAULT in options.ways else []
    print("\n" + "\n".join(lost or fine))
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()

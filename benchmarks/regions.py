"""The default command on annotated photos, beside a U-Net, transformers' trainer and Ultralytics in the same minutes.

    python benchmarks/regions.py DATA... [--time 10m] [--seeds 1] [--arms finetune u-net ...] [--start FOLDER] [--json FILE]

DATA is what `open_data` takes, such as semantic:nuclei/ or boxes:cells/. All learn from the product's training split, and are
scored by one tally on its test split. Each run is a process of its own with all cores, one after another; its time runs from
the start of the process to the end of its learning, ours to the end of the command.

    finetune              vitral finetune DATA --time T --seed S: no other option
    finetune-start        the same --from the weights in --start
    otsu                  a threshold on grey and connected parts, where there is one class
    u-net                 a U-Net of four levels on crops of 256 pixels, in plain PyTorch
    transformers-eomt     EoMT on the weights in --start, by transformers' trainer
    transformers-rf-detr  RF-DETR on the weights in --start, likewise
    ultralytics           yolo26n from random weights, by its own trainer and settings

What a peer gets wrong in its own post-processing is its own; AP ranks all that each finds, at most 100 regions of a photo.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import product
from kept import Kept, Run
from region_peers import PEERS, Work

OURS = ("finetune", "finetune-start")
OTSU = "otsu"
FIGURES = {"semantic": ("miou", "mean_dice"), "instances": ("ap", "ap50"), "boxes": ("ap", "ap50")}


def task_of(data: str) -> tuple[str, str]:
    """Return the name of a dataset's task, and of its photos' fingerprint."""
    from vitral.data.open import open_data

    opened = open_data(data, verify=False)
    return opened.task.name, opened.fingerprint


def ours(data: str, seconds: float, seed: int, start: Path | None) -> Run:
    """Run the command, and score what it delivers by the product's own `evaluate`."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        limits = ["--data", data, "--time", f"{seconds:g}s", "--seed", str(seed), "--out", str(run), "--json"]
        begun = time.monotonic()
        done = product.run_vitral(["finetune", *limits, *(["--from", str(start)] if start else [])])
        taken = time.monotonic() - begun
        if done.returncode:
            return {"figures": {}, "seconds": taken, "chose": "failed", "failed": done.stderr.splitlines()[-1]}
        result = json.loads(done.stdout)
        scored = product.run_vitral(["evaluate", "--classifier", result["classifier"], "--data", data, "--json"])
        choice = (result.get("choice") or {}).get("sentence") or ""
        return {
            "figures": {name: value for name, value in json.loads(scored.stdout).items() if isinstance(value, float)},
            "seconds": taken,
            "chose": f"{result['steps']:,} steps. {choice}",
        }


def peer(arm: str, data: str, seconds: float, seed: int, start: Path | None, begun: float) -> Run:
    """Make one run of a peer in this process, which began at `begun` of the monotonic clock."""
    from vitral.data.open import open_data
    from vitral.evaluation.region_baselines import score_region_baselines
    from vitral.tasks.dense import dense_task

    opened = open_data(data, verify=False)
    task, source = dense_task(opened.task), opened.splits[opened.scored_split()]
    if arm == OTSU:
        baselines = score_region_baselines(task, opened, pixels=not task.counted, seconds=seconds)
        value = next((value for name, value in baselines.items() if "Otsu" in name), None)
        figures = {} if value is None else {FIGURES[task.name][0]: value}
        return {"figures": figures, "seconds": time.monotonic() - begun, "chose": "a threshold on grey"}
    find, chose = PEERS[arm][0](Work(opened, task.name, begun + seconds, seed, start))
    taken = time.monotonic() - begun
    tally = task.tally_regions(opened.class_names)
    for index in range(len(source)):
        tally.add([find(source.image(index))], [source.label(index)], [source.describe(index)])  # type: ignore[list-item]
    return {"figures": tally.figures(), "seconds": taken, "chose": chose}


def run(arm: str, data: str, seconds: float, seed: int, start: Path | None) -> Run:
    if arm in OURS:
        return ours(data, seconds, seed, start if arm == OURS[1] else None)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        return alone.submit(peer, arm, data, seconds, seed, start, time.monotonic()).result()


def question(arm: str, images: str, seconds: float, seed: int) -> dict[str, Any]:
    """Return what a kept run must have answered."""
    needed = {"transformers": "transformers", "ultralytics": "ultralytics"}.get(arm.split("-")[0])
    versions = {name: metadata.version(name) for name in ("torch", *([needed] if needed else []))}
    if arm in (*OURS, OTSU):
        versions["vitral"] = product.version()
    return {"arm": arm, "images": images, "seconds": seconds, "seed": seed, "versions": versions}


def table(data: str, task: str, runs: dict[str, list[Run]]) -> list[str]:
    """Return the table of one dataset, the best first."""
    names = FIGURES[task]
    rows = []
    for arm, made in runs.items():
        values = [[each["figures"].get(name, float("nan")) for each in made] for name in names]
        means = [statistics.fmean(some) for some in values]
        spread = max(values[0]) - min(values[0])
        seconds = statistics.fmean(each["seconds"] for each in made)
        figures = "".join(f"{mean:9.1%}" for mean in means)
        chose = "; ".join(dict.fromkeys(each["chose"] for each in made))
        rows.append((-means[0], f"  {arm:22}{figures}{100 * spread:8.1f}{seconds:9.0f}  {chose}"))
    head = "".join(f"{name:>9}" for name in names)
    return [f"{data}: {task}", f"  {'':22}{head}{'spread':>8}{'seconds':>9}  what it was"] + [
        line for _, line in sorted(rows, key=lambda row: (row[0] != row[0], row[0]))
    ]


def main() -> None:
    """Run every arm that the task has on every dataset for every seed, and print a table for each dataset."""
    from vitral.errors import VitralError
    from vitral.training.settings.durations import seconds as duration

    arms = [OURS[0], OTSU, *PEERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--time", default="10m", help="as `vitral finetune` takes it")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--arms", nargs="+", default=arms, choices=[*OURS, OTSU, *PEERS])
    parser.add_argument("--start", type=Path, help="a folder of a ViT-S/14 in DINOv2's form")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds, kept = duration(options.time), Kept(options.json)
    for data in options.data:
        try:
            task, images = task_of(data)
        except VitralError as error:
            parser.error(str(error))
        runs: dict[str, list[Run]] = {}
        for arm in options.arms:
            if arm in PEERS and task not in PEERS[arm][1]:
                continue
            for seed in range(options.seeds if arm != OTSU else 1):
                made = partial(run, arm, data, seconds, seed, options.start)
                each = kept.get(question(arm, images, seconds, seed), made)
                runs.setdefault(arm, []).append(each)
                print(f"{data}, {arm}, seed {seed}: {each['figures']}, {each['chose']}", flush=True)
        print("\n" + "\n".join(table(data, task, runs)) + "\n", flush=True)


if __name__ == "__main__":
    main()

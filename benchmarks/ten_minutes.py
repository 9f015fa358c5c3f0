"""CIFAR-10 in ten CPU minutes: our networks from scratch against timm's in the same time.

    python benchmarks/ten_minutes.py DATA [--minutes 10] [--seeds 3] [--arms hybrid timm-resnet18]
        [--after VisualAtom:vit=RUN ...] [--json results.json]

DATA is CIFAR-10 as `open_data` takes it: a folder with train.parquet and test.parquet, one folder a class,
hf:cifar10, ...

Ours (RECIPES): `vitral finetune` with a recipe, or with none, and the minutes as its --time, which the whole command keeps:
opening and checking the data, training, validating, scoring. timm's (NETWORKS): a plain loop with one cycle of the rate, crops,
flips, label smoothing 0.1, in bfloat16 where the CPU has it; its time is that of the training loop alone, images are in memory
beforehand. Accuracy is on all 10,000 test images, without test-time augmentation. Each run is a process of its own; all have
all cores, one after another. What --json holds already, of the same versions and minutes, is not run again: an hour that was
cut short is not lost, and another arm can be added later.

The share of the limit is 6 FLOP for each multiply-accumulate of each training image, over the minutes and over what large
dense products in the same precision reach on this machine, measured first.

--after adds a row for an arm that starts from a run: a name for people, the arm, and the folder. Ten more minutes on generated
images are left by, for the arm vit,

    vitral pretrain --data visualatom --model vit-micro8-gap --image-size 32 --set patch_stride=4
        --set position=relative-2d --set heads=8 --time 10m --out RUN

and a procedural warm-up by the same with --data blank --set method.name=procedural. For the arm hybrid the network is
--model conv-vit-8 --image-size 32 alone.
"""

import argparse
import importlib.util
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import product
from kept import Kept, Run
from peers import Settings, count_macs, joined, measured_peak, read, share_of_peak, train

RECIPES = {"hybrid": None, "vit": "cifar10-ten-minutes"}
CLASSES, SIZE = 10, 32


@dataclass(frozen=True)
class Network:
    """A network of timm's and how it is trained.

    Attributes:
        name: timm's.
        options: of `timm.create_model`.
        settings: of the loop.
        stem_stride: of the first convolution; 1 where timm's own, made for 224 pixels, leaves too little of small images.
    """

    name: str
    options: dict[str, Any]
    settings: Settings
    stem_stride: int | None = None


CONVOLUTIONAL = Settings("sgd", lr=0.1, weight_decay=5e-4, batch_size=128)
NETWORKS = {
    "timm-vit": Network(
        "vit_tiny_patch16_224", {"img_size": SIZE, "patch_size": 4}, Settings("adamw", 1e-3, 0.05, batch_size=128)
    ),
    "timm-resnet18": Network("resnet18", {}, CONVOLUTIONAL, stem_stride=1),
    # Of timm's small networks the one that learned most in 40 seconds of one core: 58 % of a thousand test images, where
    # resnet10t and cs3darknet_s had 45 %, resnet18 at half its width 41 % and dla46_c 38 %, each with this stem and recipe.
    "timm-small": Network("test_resnet", {}, CONVOLUTIONAL, stem_stride=1),
}
ARMS = (*RECIPES, *NETWORKS)


def timm_run(arm: str, data: str, seconds: float, seed: int) -> Run:
    """Train a network of timm's for some seconds; return its accuracy, and what it saw and cost."""
    import timm
    import torch
    from torch import nn

    from vitral.data.open import open_data

    torch.manual_seed(seed)
    network = NETWORKS[arm]
    splits = open_data(data, verify=False).splits
    images = joined([read(splits[name], SIZE) for name in ("train", "validation") if name in splits])
    model = timm.create_model(network.name, num_classes=CLASSES, **network.options)
    if network.stem_stride is not None:
        first = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
        first.stride = (network.stem_stride,) * 2
    macs = count_macs(model, SIZE)
    begun = time.perf_counter()
    plain, steps = train(model, images, network.settings, seconds, flip=True)
    taken = time.perf_counter() - begun
    seen = steps * network.settings.batch_size
    return {"accuracy": plain.accuracy(read(splits["test"], SIZE)), "seconds": taken, "images": seen, "macs": macs}


def run(arm: str, data: str, seconds: float, seed: int, start: str | None, peak: float) -> Run:
    """Make one run; `start` is what it fine-tunes from, `peak` the machine's limit in FLOP/s."""
    if arm in NETWORKS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            made = alone.submit(timm_run, arm, data, seconds, seed).result()
    else:
        recipe = RECIPES[arm]
        more = [*(["--recipe", recipe] if recipe else []), *(["--from", start] if start else [])]
        made = product.finetune(data, seconds, seed, more)
    return {**made, "share": share_of_peak(made["images"], made["macs"], seconds, peak)}


def question(arm: str, data: str, seconds: float, seed: int, start: str | None) -> dict[str, Any]:
    """Return what a kept run must have answered."""
    ours = {"vitral": product.version(), "recipe": RECIPES.get(arm)}
    versions = {"timm": metadata.version("timm"), "network": str(NETWORKS[arm])} if arm in NETWORKS else ours
    asked = {"arm": arm, "data": data, "seconds": seconds, "seed": seed, "start": start}
    return {**asked, "versions": {"torch": metadata.version("torch"), **versions}}


def main() -> None:
    """Run every arm for every seed, a line each, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=ARMS)
    parser.add_argument(
        "--after", nargs="+", default=[], metavar="NAME:ARM=RUN", help="also start an arm from a `vitral pretrain` run"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if any(arm in NETWORKS for arm in options.arms) and importlib.util.find_spec("timm") is None:
        parser.error(f"timm is not installed: pip install -e '.[peers]', or name our arms: --arms {' '.join(RECIPES)}")
    seconds, kept = 60 * options.minutes, Kept(options.json)
    arms: dict[str, tuple[str, str | None]] = {arm: (arm, None) for arm in options.arms}
    for text in options.after:
        name, _, rest = text.partition(":")
        arm, _, start = rest.partition("=")
        if arm not in RECIPES or not start:
            parser.error(f"--after '{text}': give NAME:ARM=RUN, with one of {', '.join(RECIPES)}")
        arms[f"{arm} after {name}"] = arm, start
    peak, precision = measured_peak()
    print(f"{options.minutes:g} minutes; dense {precision} products: {peak / 1e12:.2f} TFLOP/s", flush=True)
    runs: dict[str, list[Run]] = {name: [] for name in arms}
    for seed in range(options.seeds):
        for name, (arm, start) in arms.items():
            asked = question(arm, options.data, seconds, seed, start)
            made = kept.get(asked, partial(run, arm, options.data, seconds, seed, start, peak))
            runs[name].append(made)
            failed = f"; failed: {made['failed']}" if "failed" in made else ""
            print(f"seed {seed}, {name}: {made['accuracy']:.2%} of test, {made['images']:,} images{failed}", flush=True)
    print(f"\n{'':28}{'mean':>7}  {'seeds':24}{'seconds':>8}{'images':>10}{'MMACs':>7}{'limit':>7}")
    for name, made in runs.items():
        seeds = " ".join(f"{one['accuracy']:.1%}" for one in made)
        mean = {
            key: statistics.fmean(one[key] for one in made)
            for key in ("accuracy", "seconds", "images", "macs", "share")
        }
        print(
            f"{name:28}{mean['accuracy']:7.1%}  {seeds:24}{mean['seconds']:8.0f}{mean['images']:10,.0f}"
            f"{mean['macs'] / 1e6:7.0f}{mean['share']:7.1%}"
        )
    if any("failed" in one for made in runs.values() for one in made):
        raise SystemExit("A run failed, and counts as no image right.")


if __name__ == "__main__":
    main()

"""CIFAR-10 in ten CPU minutes: our best small Vision Transformer from scratch against timm's ViT-Ti/4 in the same time.

    python benchmarks/ten_minutes.py DATA [--minutes 10] [--seeds 3] [--visualatom RUN] [--json results.json]

DATA is CIFAR-10 as `open_data` takes it: a folder with train.parquet and test.parquet, one folder a class,
hf:cifar10, ...

timm: vit_tiny_patch16_224 with patches of 4 at 32 pixels, batch 128, AdamW 1e-3 with weight decay 0.05, cosine to 0,
shift by up to four pixels and flip, label smoothing 0.1, bfloat16 autocast. Its time is that of the training loop
alone; images are in memory beforehand. Ours: `vitral finetune` with the recipe cifar10-ten-minutes and the same
minutes as its --time, which the whole command keeps: opening and checking the data, training, validating, and scoring
the test images. Each run is a process of its own; all have all cores, one after another. What --json holds already, of the
same versions and minutes, is not run again: an hour that was cut short is not lost, and a third arm can be added later.

RUN, for the third arm, is left by

    vitral pretrain --data visualatom --model vit-micro8-gap --image-size 32 --set patch_stride=4
        --set position=sincos-2d --time 10m --out RUN
"""

import argparse
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

RECIPE = "cifar10-ten-minutes"
BATCH, PADDING, CLASSES = 128, 4, 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load_split(data: str, split: str) -> tuple[Tensor, Tensor]:
    """Return all images of a split in 8 bits, (images, 3, 32, 32), and their classes."""
    from vitral.data.open import open_data

    source = open_data(data, verify=False).splits
    parts = [source[name] for name in (("train", "validation") if split == "train" else ("test",)) if name in source]
    images = [torch.from_numpy(part.image(index)).permute(2, 0, 1) for part in parts for index in range(len(part))]
    return torch.stack(images), torch.from_numpy(np.concatenate([part.labels() for part in parts]))


def timm_run(data: str, seconds: float, seed: int) -> dict[str, float]:
    """Train timm's network for some seconds; return its accuracy and how many images it saw."""
    import timm

    torch.manual_seed(seed)
    images, labels = load_split(data, "train")
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=4, num_classes=CLASSES).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    mean, std = (torch.tensor(values).view(3, 1, 1) * 255 for values in (MEAN, STD))
    padded = torch.nn.functional.pad(images.float(), (PADDING,) * 4, mode="reflect").to(torch.uint8)
    begun, steps, total = time.perf_counter(), 0, math.inf
    order = torch.randperm(len(images))
    while (elapsed := time.perf_counter() - begun) < seconds:
        if (steps + 1) * BATCH % len(images) < BATCH:
            order = torch.randperm(len(images))
        rows = order[steps * BATCH % (len(images) - BATCH) :][:BATCH]
        top, left = torch.randint(0, 2 * PADDING + 1, (2,)).tolist()
        batch = padded[rows][:, :, top : top + 32, left : left + 32]
        flips = torch.rand(len(batch)) < 0.5
        batch = torch.where(flips[:, None, None, None], batch.flip(3), batch)
        if steps >= 5:  # the schedule follows the time, since nobody knows the number of steps beforehand
            total = steps * seconds / elapsed
        rate = 1e-3 * 0.5 * (1 + math.cos(math.pi * min(steps / total, 1.0)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model((batch.float() - mean) / std)
            loss = torch.nn.functional.cross_entropy(logits.float(), labels[rows], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    model.eval()
    test, truth = load_split(data, "test")
    with torch.inference_mode():
        right = sum(
            int((model((part.float() - mean) / std).argmax(dim=1) == label).sum())
            for part, label in zip(test.split(500), truth.split(500), strict=True)
        )
    return {"accuracy": right / len(truth), "images": steps * BATCH}


def vitral_run(data: str, seconds: float, seed: int, start: str | None = None) -> dict[str, float]:
    """Run `vitral finetune` with a budget of some seconds; return its accuracy and how many images it saw."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "vitral", "finetune", "--data", data, "--recipe", RECIPE, "--seed", str(seed)]
        command += ["--time", f"{seconds:g}s", "--out", f"{folder}/run", "--json"]
        command += ["--from", start] if start else []
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        batch = tomllib.loads(Path(folder, "run", "recipe.toml").read_text())["batch_size"]
    result = json.loads(done.stdout)
    return {
        "accuracy": result["evaluation"]["top1"],
        "images": result["steps"] * batch,
        "seconds": time.perf_counter() - begun,
    }


def main() -> None:
    """Run both for every seed, a line each, and say how far apart they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--visualatom", help="also start from this run of `vitral pretrain`, in the same minutes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds = 60 * options.minutes
    arms: dict[str, list[dict[str, float]]] = {"timm": [], "vitral": []}
    if options.visualatom:
        arms["vitral after VisualAtom"] = []
    asked = tuple(arms)  # --json may hold one more, which is left as it is
    versions = {name: metadata.version(name) for name in ("torch", "timm", "vitral")}
    print(f"{options.minutes:g} minutes, {torch.get_num_threads()} threads, {versions}", flush=True)
    if options.json and options.json.is_file():
        kept = json.loads(options.json.read_text())
        if (kept["versions"], kept["seconds"]) == (versions, seconds):
            arms |= kept["runs"]
    for seed in range(options.seeds):
        for name, found in arms.items():
            if len(found) > seed or name not in asked:
                continue
            if name == "timm":
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                    found.append(alone.submit(timm_run, options.data, seconds, seed).result())
            else:
                start = options.visualatom if "VisualAtom" in name else None
                found.append(vitral_run(options.data, seconds, seed, start))
            print(
                f"seed {seed}, {name}: {found[-1]['accuracy']:.2%} of test, {found[-1]['images']:,.0f} images",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps({"versions": versions, "seconds": seconds, "runs": arms}, indent=2))
    means = {name: statistics.fmean(run["accuracy"] for run in found) for name, found in arms.items()}
    for name, mean in means.items():
        print(f"{name}: {mean:.2%}, {100 * (mean - means['timm']):+.1f} points from timm (asked for: at least +10)")


if __name__ == "__main__":
    main()

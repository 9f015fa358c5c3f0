"""Training speed of Vitral against timm: same network, batch, optimizer and precision (bf16), in one run.

    python benchmarks/train_speed.py [--rounds 7] [--json results.json]

Each library trains in a process of its own, since an allocator's settings are a process's; the two take turns, a few
steps each, so that a machine whose speed drifts slows both. The figure is the ratio of the medians of all steps.
Vitral's step is the one that `vitral finetune` makes, with all that belongs to it: images in 8 bits normalised, the
gradient's norm and whether it is finite; after its setting of the allocator. timm's gets images that are normalised already.
Neither clips gradients, averages weights or loads data here.
"""

import argparse
import itertools
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path

import torch


@dataclass(frozen=True)
class Case:
    """One network at one size."""

    name: str
    vitral: str
    timm: str
    timm_options: dict[str, int]
    image_size: int
    batch_size: int
    num_classes: int
    target: float


CASES = (
    Case("ViT-Ti/4 at 32", "vit-ti4", "vit_tiny_patch16_224", {"img_size": 32, "patch_size": 4}, 32, 128, 10, 2.0),
    Case("ViT-S/16 at 224", "vit-s16", "vit_small_patch16_224", {}, 224, 16, 1000, 1.6),
)
STEPS_A_TURN = 3


def batch(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one synthetic batch, the same for both: images in 8 bits, and labels."""
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch_size, 3, case.image_size, case.image_size)
    images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, case.num_classes, (case.batch_size,), generator=generator)


def timm_step(case: Case) -> Callable[[], None]:
    """Return timm's training step: its model under bf16 autocast with AdamW, as its train.py does with --amp."""
    import timm

    model = timm.create_model(case.timm, num_classes=case.num_classes, **case.timm_options).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    pixels, labels = batch(case)
    images = (pixels.float() - 127.5) / 127.5

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def vitral_step(case: Case) -> Callable[[], None]:
    """Return Vitral's training step, as its loop makes it."""
    from vitral.data.batch import Batch
    from vitral.images.preprocessing import PHOTOS
    from vitral.machine import keep_freed_memory
    from vitral.models.families import create_model
    from vitral.tasks.single_label import SINGLE_LABEL
    from vitral.training.methods.method import build_method
    from vitral.training.settings.recipe import build_recipe
    from vitral.training.step import Step

    keep_freed_memory()
    optimizer = {"name": "adamw", "lr": 1e-4, "weight_decay": 0.05, "clip_norm": "none"}
    values = {"batch_size": case.batch_size, "precision": "bf16", "optimizer": optimizer}
    recipe = build_recipe(values, "benchmark")
    model = create_model(case.vitral, num_classes=case.num_classes).train()
    step = Step(build_method(model, recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)
    images, labels = batch(case)
    one, numbers = Batch(images, labels, torch.arange(case.batch_size)), itertools.count()

    def make() -> None:
        made = step(one, next(numbers), 1e-4, 1e-4)
        assert made.finite

    return make


def serve(library: str, case: Case, connection: Connection) -> None:
    """Make steps when asked to, in a process of its own, and answer with their seconds."""
    step = timm_step(case) if library == "timm" else vitral_step(case)
    step()
    connection.send([])
    while connection.recv():
        times = []
        for _ in range(STEPS_A_TURN):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        connection.send(times)


def measure(case: Case, rounds: int) -> dict[str, list[float]]:
    """Return each library's step times in seconds, measured in turns."""
    context = multiprocessing.get_context("spawn")
    connections, processes = {}, []
    for library in ("timm", "vitral"):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(library, case, theirs), daemon=True)
        process.start()
        ours.recv()
        connections[library] = ours
        processes.append(process)
    times: dict[str, list[float]] = {library: [] for library in connections}
    for _ in range(rounds):
        for library, connection in connections.items():
            connection.send(True)
            times[library] += connection.recv()
    for connection in connections.values():
        connection.send(False)
    for process in processes:
        process.join()
    return times


def main() -> None:
    """Measure both cases, print a line each, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help=f"turns of {STEPS_A_TURN} steps for each library")
    parser.add_argument("--json", type=Path, help="write all step times there")
    options = parser.parse_args()
    versions = {name: metadata.version(name) for name in ("torch", "timm", "vitral")}
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, {versions}")
    results = {}
    for case in CASES:
        times = measure(case, options.rounds)
        speed = {library: case.batch_size / statistics.median(seconds) for library, seconds in times.items()}
        ratio = speed["vitral"] / speed["timm"]
        results[case.name] = {"seconds": times, "images_per_second": speed, "ratio": ratio}
        print(
            f"{case.name}, batch {case.batch_size}, bf16: timm {speed['timm']:.1f} images/s, Vitral "
            f"{speed['vitral']:.1f} images/s, ratio {ratio:.2f} (asked for: {case.target})"
        )
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "results": results}, indent=2))


if __name__ == "__main__":
    main()

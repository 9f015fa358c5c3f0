"""Training speed of Vitral against timm: same network, batch and optimizer, the best of each by precision, in one run.

    python benchmarks/train_speed.py [--rounds 7] [--variants] [--json results.json]

Each way to train has a process of its own, since an allocator's settings are a process's; all take turns, a few steps each, so
that a machine whose speed drifts slows all. Both libraries train in fp32 and in bf16, as some processors are faster in the one
and some in the other; --variants adds timm with channels last, and compiled. The figure is the ratio of the best of each, by
the medians of their steps. Vitral's step is the one that `vitral finetune` makes, with all that belongs to it: images in 8 bits
normalised, the gradient's norm and whether it is finite; after its setting of the allocator. timm's gets images that are
normalised already. Neither clips gradients, averages weights or loads data here.
"""

import argparse
import itertools
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Sequence
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
    target: float | None = None
    frozen_statistics: bool = False  # of batch norms, as in fine-tuning


CASES = (
    Case("ViT-Ti/4 at 32", "vit-ti4", "vit_tiny_patch16_224", {"img_size": 32, "patch_size": 4}, 32, 128, 10, 2.0),
    Case("ViT-S/16 at 224", "vit-s16", "vit_small_patch16_224", {}, 224, 16, 1000, 1.6),
    Case(
        "EfficientNet-Lite0 at 128",
        "efficientnet-lite0",
        "tf_efficientnet_lite0",
        {},
        128,
        32,
        10,
        frozen_statistics=True,
    ),
)
STEPS_A_TURN = 3


@dataclass(frozen=True)
class Way:
    """One way to train a network."""

    library: str
    precision: str
    channels_last: bool = False
    compiled: bool = False

    def __str__(self) -> str:
        more = (" channels last" if self.channels_last else "") + (" compiled" if self.compiled else "")
        return f"{self.library} {self.precision}{more}"


PRECISIONS = ("fp32", "bf16")
WAYS = tuple(Way(library, precision) for library in ("timm", "vitral") for precision in PRECISIONS)
VARIANTS = (
    *(Way("timm", precision, channels_last=True) for precision in PRECISIONS),
    *(Way("timm", precision, compiled=True) for precision in PRECISIONS),
)


def batch(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one synthetic batch, the same for all: images in 8 bits, and labels."""
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch_size, 3, case.image_size, case.image_size)
    images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, case.num_classes, (case.batch_size,), generator=generator)


def timm_step(case: Case, way: Way) -> Callable[[], None]:
    """Return timm's training step with AdamW; in bf16 its model is under autocast, as in its train.py with --amp."""
    import timm

    model = timm.create_model(case.timm, num_classes=case.num_classes, **case.timm_options).train()
    for module in model.modules():
        if case.frozen_statistics and isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    pixels, labels = batch(case)
    images = (pixels.float() - 127.5) / 127.5
    if way.channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    if way.compiled:
        model = torch.compile(model)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def vitral_step(case: Case, way: Way) -> Callable[[], None]:
    """Return Vitral's training step, as its loop makes it."""
    from vitral.data.batch import Batch
    from vitral.images.preprocessing import PHOTOS
    from vitral.machine import keep_freed_memory
    from vitral.models.families import create_model
    from vitral.tasks.single_label import SINGLE_LABEL
    from vitral.training.methods.method import build_method
    from vitral.training.optimization.adaptation import training_mode
    from vitral.training.settings.recipe import build_recipe
    from vitral.training.settings.sections import AdaptationSettings
    from vitral.training.step import Step

    keep_freed_memory()
    optimizer = {"name": "adamw", "lr": 1e-4, "weight_decay": 0.05, "clip_norm": "none"}
    values = {"batch_size": case.batch_size, "precision": way.precision, "optimizer": optimizer}
    recipe = build_recipe(values, "benchmark")
    model = create_model(case.vitral, num_classes=case.num_classes, image_size=case.image_size)
    model.set_rates(dropout=0.0, attention_dropout=0.0, stochastic_depth=0.0)
    training_mode(model, AdaptationSettings(frozen_statistics=case.frozen_statistics))
    step = Step(build_method(model, recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)
    images, labels = batch(case)
    one, numbers = Batch(images, labels, torch.arange(case.batch_size)), itertools.count()

    def make() -> None:
        made = step(one, next(numbers), 1e-4, 1e-4)
        assert made.finite

    return make


def serve(way: Way, case: Case, connection: Connection) -> None:
    """Make steps when asked to, in a process of its own, and answer with their seconds."""
    step = timm_step(case, way) if way.library == "timm" else vitral_step(case, way)
    step()
    connection.send([])
    while connection.recv():
        times = []
        for _ in range(STEPS_A_TURN):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        connection.send(times)


def measure(case: Case, ways: Sequence[Way], rounds: int) -> dict[Way, list[float]]:
    """Return the step times of each way in seconds, measured in turns."""
    context = multiprocessing.get_context("spawn")
    connections, processes = {}, []
    for way in ways:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(way, case, theirs), daemon=True)
        process.start()
        ours.recv()
        connections[way] = ours
        processes.append(process)
    times: dict[Way, list[float]] = {way: [] for way in connections}
    for _ in range(rounds):
        for way, connection in connections.items():
            connection.send(True)
            times[way] += connection.recv()
    for connection in connections.values():
        connection.send(False)
    for process in processes:
        process.join()
    return times


def main() -> None:
    """Measure all cases, print a line for each way, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help=f"turns of {STEPS_A_TURN} steps for each way")
    parser.add_argument("--variants", action="store_true", help="timm with channels last and compiled, too")
    parser.add_argument("--json", type=Path, help="write all step times there")
    options = parser.parse_args()
    versions = {name: metadata.version(name) for name in ("torch", "timm", "vitral")}
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, {versions}")
    results = {}
    for case in CASES:
        times = measure(case, WAYS + VARIANTS if options.variants else WAYS, options.rounds)
        speed = {way: case.batch_size / statistics.median(seconds) for way, seconds in times.items()}
        timm, vitral = (
            max((way for way in speed if way.library == library), key=speed.__getitem__)
            for library in ("timm", "vitral")
        )
        ratio = speed[vitral] / speed[timm]
        results[case.name] = {
            "seconds": {str(way): seconds for way, seconds in times.items()},
            "images_per_second": {str(way): images for way, images in speed.items()},
            "ratio": ratio,
        }
        print(f"{case.name}, batch {case.batch_size}, images/s:")
        print("".join(f"  {way} {images:.1f}\n" for way, images in speed.items()), end="")
        goal = "" if case.target is None else f" (goal: {case.target})"
        print(f"  {vitral} beside {timm}: ratio {ratio:.2f}{goal}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "results": results}, indent=2))


if __name__ == "__main__":
    main()

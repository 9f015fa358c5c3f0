"""Training speed and MFU on one GPU: ViT-S/16, B/16, L/16 and H/14 at 224 in bfloat16, Vitral's step against timm's.

    python benchmarks/train_gpu.py [--models vit-b16 vit-l16] [--batch 0] [--steps 30] [--json results.json]

To be run from a checkout of Vitral with its dependencies, and timm for the comparison (left out where timm is not installed).
Vitral's step is the one that `vitral finetune` makes: images in 8 bits normalised on the GPU, weights in float32 with a
bfloat16 autocast, every block through torch.compile, fused AdamW, the gradient's norm and whether it is finite, for which alone
it waits for the GPU; the loss is read once at the end. timm's step makes none of these checks and waits for nothing.

MFU = images/s x 3 x 2 x multiply-accumulates / peak, where the multiply-accumulates are those of the patch embedding,
the linear layers and attention's two products, and the peak is that of a large bfloat16 product measured here, in the
same run; the data sheet's is printed next to it.
"""

import argparse
import itertools
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

DATA_SHEET = {"H200": 989e12, "H100": 989e12, "A100": 312e12}  # dense bfloat16 FLOP/s
WARM_UP = 5


@dataclass(frozen=True)
class Case:
    """One network: our name, timm's, the batch, and the MFU that is asked for and aimed at."""

    vitral: str
    timm: str
    batch: int
    asked: float
    aim: float


CASES = (
    Case("vit-s16", "vit_small_patch16_224", 1024, 0.30, 0.40),
    Case("vit-b16", "vit_base_patch16_224", 512, 0.40, 0.55),
    Case("vit-l16", "vit_large_patch16_224", 256, 0.45, 0.60),
    Case("vit-h14", "vit_huge_patch14_224", 128, 0.45, 0.60),
)


def measured_peak(seconds: float = 2.0) -> float:
    """Return the FLOP/s of large bfloat16 products on random data, the median over some seconds."""
    size = 8192
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rates = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            one @ other
        end.record()
        torch.cuda.synchronize()
        rates.append(10 * 2 * size**3 / (start.elapsed_time(end) / 1000))
    return statistics.median(rates)


def macs(config: Any) -> float:  # noqa: ANN401  # a ViTConfig
    """Return multiply-accumulates an image: patch embedding, linear layers, attention's products, head."""
    patches = math.prod(config.grid)
    tokens, dim = patches + 1, config.dim
    embedding = patches * 3 * math.prod(config.patch_size) * dim
    block = 4 * tokens * dim**2 + 2 * tokens * dim * config.mlp_dim + 2 * tokens**2 * dim
    return embedding + config.depth * block + dim * config.num_classes


def batches(count: int, size: int) -> tuple[Tensor, Tensor]:
    """Return images in 8 bits and labels, on the GPU."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    images = torch.randint(0, 256, (count, 3, size, size), device="cuda", dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 1000, (count,), device="cuda", generator=generator)


def vitral_step(case: Case, images: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    """Return Vitral's step, its blocks compiled; it gives the loss without waiting for it."""
    from vitral.data.batch import Batch
    from vitral.images.preprocessing import PHOTOS
    from vitral.models.families import create_model
    from vitral.tasks.single_label import SINGLE_LABEL
    from vitral.training.methods.method import build_method
    from vitral.training.settings.recipe import build_recipe
    from vitral.training.step import Step

    optimizer = {"name": "adamw", "lr": 1e-4, "weight_decay": 0.05, "clip_norm": "none"}
    values = {"batch_size": len(images), "precision": "bf16", "optimizer": optimizer, "compute": {"compile": True}}
    recipe = build_recipe(values, "benchmark")
    model = create_model(case.vitral, num_classes=1000).cuda().train()
    step = Step(build_method(model, recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)
    batch, numbers = Batch(images, labels, torch.arange(len(images))), itertools.count()
    return lambda: step(batch, next(numbers), 1e-4, 1e-4).sums[0]


def timm_step(case: Case, images: Tensor, labels: Tensor) -> Callable[[], Tensor] | None:
    """Return timm's step, its network compiled whole as its train.py does with --torchcompile; None without timm."""
    try:
        import timm
    except ImportError:
        return None
    network = timm.create_model(case.timm, num_classes=1000).cuda().train()
    model = torch.compile(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model((images.float() - 127.5) / 127.5)
        loss = nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def rate(step: Callable[[], Tensor], batch: int, steps: int) -> float:
    """Return images/s, the median of three runs of some steps."""
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    rates = []
    for _ in range(3):
        begun = time.perf_counter()
        for _ in range(steps):
            loss = step()
        torch.cuda.synchronize()
        rates.append(steps * batch / (time.perf_counter() - begun))
    assert math.isfinite(float(loss)), "the loss is no finite number"
    return statistics.median(rates)


def measure(case: Case, batch: int, steps: int) -> dict[str, float]:
    """Return images/s of each library for one network, and our peak memory."""
    images, labels = batches(batch, 224)
    found: dict[str, float] = {}
    for name, make in (("vitral", vitral_step), ("timm", timm_step)):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step = make(case, images, labels)
        if step is None:
            continue
        found[name] = rate(step, batch, steps)
        found[f"{name}_bytes"] = torch.cuda.max_memory_allocated()
        del step
    return found


def main() -> None:
    """Measure the networks that were asked for, a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=[case.vitral for case in CASES])
    parser.add_argument("--batch", type=int, default=0, help="images a step; 0 for each network's own")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("train_gpu.py needs a CUDA GPU, and torch sees none here.")
    from vitral.models.catalog import variant

    torch.backends.cuda.matmul.allow_tf32 = True
    name = torch.cuda.get_device_name()
    peak = measured_peak()
    sheet = next((value for chip, value in DATA_SHEET.items() if chip in name), None)
    print(f"{name}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"bf16 peak measured {peak / 1e12:.0f} TFLOP/s" + (f", data sheet {sheet / 1e12:.0f}" if sheet else ""))
    results = {}
    for case in (case for case in CASES if case.vitral in options.models):
        found = measure(case, options.batch or case.batch, options.steps)
        flop = 6 * macs(variant(case.vitral))
        mfu = found["vitral"] * flop / peak
        results[case.vitral] = {**found, "mfu": mfu}
        against = f", {found['vitral'] / found['timm']:.2f} times timm's {found['timm']:.0f}" if "timm" in found else ""
        of_sheet = f" ({found['vitral'] * flop / sheet:.1%} of the data sheet's)" if sheet else ""
        print(
            f"{case.vitral}: {found['vitral']:.0f} images/s{against}; MFU {mfu:.1%}{of_sheet}, asked for {case.asked:.0%}, "
            f"aim {case.aim:.0%}; {found['vitral_bytes'] / 2**30:.1f} GiB"
        )
    if options.json:
        options.json.write_text(json.dumps({"device": name, "peak": peak, "results": results}, indent=2))


if __name__ == "__main__":
    main()

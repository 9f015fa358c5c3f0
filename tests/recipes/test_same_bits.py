"""Twenty steps of five recipes end in the weights that they ended in when `same_bits.json` was written.

On the machine and the versions that wrote the file, to the last bit; elsewhere to what another order of sums leaves. Write it
anew only in a commit that says what changed the weights and why:

python -m tests.recipes.test_same_bits
"""

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.events import ignore
from vitral.training.records.run_folder import environment

pytestmark = pytest.mark.long

KEPT = Path(__file__).with_name("same_bits.json")
STEPS = 20
SHORT = (
    "batch_size=8",
    f"steps={STEPS}",
    "workers=0",
    "precision=bf16",
    "schedule.warmup_steps=3",
    "evaluation.every_steps=10",
)
DECIDING = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "processor",
    "threads",
)  # of the environment: what bits depend on


def pretrained(
    model: str, recipe: str, *changes: str, image_size: int = 32
) -> Callable[[Path, Path], Any]:  # gives a RunResult
    """Return what pre-trains a model by a recipe, shortened, and otherwise changed."""

    def run(data: Path, out: Path) -> Any:  # noqa: ANN401
        return vitral.pretrain(
            data,
            model=model,
            recipe=recipe,
            image_size=image_size,
            out=out,
            overrides=[*SHORT, *changes],
            listener=ignore,
        )

    return run


def low_rank(data: Path, out: Path) -> Any:  # noqa: ANN401
    """Fine-tuning with a new head, new positions and LoRA."""
    start = out.with_name("start")
    begun = vitral.pretrain(
        data, model="vit-nano4", image_size=32, out=start, overrides=["steps=1", "batch_size=8"], listener=ignore
    )
    return vitral.finetune(
        data,
        source=begun.classifier_folder,
        recipe="finetune",
        image_size=48,
        out=out,
        overrides=[*SHORT, "adaptation.method=lora"],
        baselines=False,
        listener=ignore,
    )


RUNS: dict[str, Callable[[Path, Path], Any]] = {
    # RandAugment, erasing, MixUp and CutMix, stochastic depth.
    "deit-ti16": pretrained("deit-ti16", "deit-ti16"),
    # Masked patches, without labels.
    "masked-patches": pretrained("vit-nano4", "masked-patches", "precision=fp32", "averaging.decay=0.9"),
    # SAM with SGD, and batch norm; at the recipe's rate, for batches of 4,096, such small ones diverge.
    "sam-resnet-50": pretrained("resnet-18", "sam-resnet-50", "optimizer.sam_images=4", "optimizer.lr=0.01"),
    # Routing noise, capacity and balance losses.
    "vmoe-s32-last2-imagenet": pretrained(
        "vmoe-s32-last2", "vmoe-s32-last2-imagenet", "experts.number=4", "precision=fp32", image_size=64
    ),
    "finetune": low_rank,
}


def make_images(root: Path) -> Path:
    """Write 24 images of three classes, the pixels of each a function of its number."""
    rng = np.random.default_rng(0)
    for index in range(24):
        pixels = rng.integers(0, 120, (40 + index, 64 - index, 3), dtype=np.uint8)
        pixels[:, :, index % 3] += 100
        folder = root / "train" / ("dress", "hat", "shoes")[index % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return root


def outcome(name: str, folder: Path) -> dict[str, Any]:
    """Return a run's losses by step and the checksum of its weights."""
    result = RUNS[name](make_images(folder / "images"), folder / "run")
    tensors = result.classifier.model.state_dict().values()  # whatever they are called
    digests = sorted(hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for tensor in tensors)
    losses = [row["loss"] for row in result.training.history if "loss" in row]
    return {"losses": losses, "weights": hashlib.sha256("".join(digests).encode()).hexdigest()}


def here() -> dict[str, str | int]:
    """Return what the bits depend on besides the code."""
    now = environment()
    return {key: now[key] for key in DECIDING} | {"instructions": instructions()}


def instructions() -> str:
    """Return a checksum of the processor's kind and of what it can do; its name alone may be that of several."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return torch.backends.cpu.get_cpu_capability()
    kind = [line for line in lines if line.startswith(("cpu family", "model", "stepping", "cache size", "flags"))]
    return hashlib.sha256("\n".join(kind).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", RUNS)
def test_twenty_steps_end_in_the_same_bits(name: str, tmp_path: Path) -> None:
    kept = json.loads(KEPT.read_text())
    now, before = outcome(name, tmp_path), kept["runs"][name]
    # Batch norm over so few images makes as much of the last bit as of a large step, and the more so of other instructions.
    np.testing.assert_allclose(now["losses"], before["losses"], rtol=0.5 if "resnet" in name else 0.1)
    if kept["environment"] == here():
        assert now == before


if __name__ == "__main__":
    torch.set_num_threads(1)
    runs = {}
    for each in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            runs[each] = outcome(each, Path(folder))
    KEPT.write_text(json.dumps({"environment": here(), "runs": runs}, indent=1) + "\n")

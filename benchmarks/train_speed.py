"""Training speed of Vitral against timm: same network, batch, optimizer and precision (bf16), in one run.

    python benchmarks/train_speed.py [--rounds 7] [--json results.json]

Each library trains in a process of its own, since an allocator's settings are a process's; the two take turns, a few
steps each, so that a machine whose speed drifts slows both. The figure is the ratio of the medians of all steps.
Vitral's step is the one that `vitral finetune` runs: `vitral.training.step`.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    Case("ViT-Ti/4 at 32", "vit-ti4", "vit_tiny_patch16_224", {"img_size": 32, "patch_size": 4}, 32, 128, 10, 1.8),
    Case("ViT-S/16 at 224", "vit-s16", "vit_small_patch16_224", {}, 224, 16, 1000, 1.3),
)
STEPS_A_TURN = 3


def batch(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one synthetic batch, the same for both."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(case.batch_size, 3, case.image_size, case.image_size, generator=generator)
    return images, torch.randint(0, case.num_classes, (case.batch_size,), generator=generator)


def timm_step(case: Case) -> Callable[[], None]:
    """Return timm's training step: its model under bf16 autocast with AdamW, as its train.py does with --amp."""
    import timm

    model = timm.create_model(case.timm, num_classes=case.num_classes, **case.timm_options).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    images, labels = batch(case)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step

"""A short run for several processes of one job.

Changes are of the recipe; besides, "experts" is their number, "regions" whether classes of pixels are learned, "wait" seconds
between steps, and "kill" a step at which the last process kills itself, once.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from vitral import distributed, torchrun
from vitral.data.generated import open_digits
from vitral.data.open import open_data
from vitral.errors import VitralError
from vitral.events import Event, Progress
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.detail import DetailHeadConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build
from vitral.models.model import ModelConfig
from vitral.models.vit_config import ViTConfig
from vitral.training.loop import train
from vitral.training.methods.method import training_batches
from vitral.training.settings.recipe import build_recipe

BASE: dict[str, Any] = {
    "steps": 24,
    "batch_size": 16,
    "workers": 0,
    "precision": "fp32",
    "schedule": {"warmup_steps": 4},
    "optimizer": {"lr": 0.002},
    "averaging": {"decay": 0.9},
    "regularization": {"stochastic_depth": 0.2},
    "checkpoint": {"every_steps": 5},
    "evaluation": {"every_steps": 12},
}


def main(folder: Path, changes: dict[str, Any]) -> int:
    """Train, or go on training."""
    torch.set_num_threads(1)
    distributed.join()
    experts = changes.pop("experts", 0)
    kill = changes.pop("kill", None)
    wait = changes.pop("wait", 0.0)
    regions = changes.pop("regions", False)
    recipe = build_recipe(BASE | changes, "ranks")
    config: ModelConfig = ViTConfig(
        image_size=(8, 8),
        patch_size=(4, 4),
        dim=16,
        depth=3,
        mlp_dim=32,
        num_heads=2,
        num_classes=10,
        stochastic_depth=recipe.regularization.stochastic_depth,
        experts=ExpertsConfig(blocks=(1,), num_experts=experts, group_images=4, noise_std=0.0) if experts else None,
    )
    data = open_data("digit-scenes-semantic") if regions else open_digits()
    if regions:
        classes, size = len(data.class_names), (32, 32)
        config = DenseConfig(
            backbone=variant("vit-nano4"), head=DetailHeadConfig(), num_classes=classes, image_size=size
        )
    batches = training_batches(
        data.splits["train"], recipe, image_size=config.image_size, augmentation=data.augmentation, task=data.task
    )
    mark = folder.parent / f"{folder.name}-killed"

    def listen(event: Event) -> None:
        if not isinstance(event, Progress):
            return
        time.sleep(wait)
        last = distributed.rank() == distributed.world() - 1
        if kill is not None and last and event.done == kill and not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        result = train(
            build(config, seed=1),
            batches,
            recipe=recipe,
            normalize=PHOTOS.normalize,
            class_names=data.class_names,
            folder=folder,
            validate=lambda model, listener, stop: {
                "validation/accuracy": float(model(torch.ones(3, 3, *config.image_size)).double().sum().detach())
            },
            resume=True,
            listener=listen,
        )
    except VitralError as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", 1)
    if torchrun.is_main():
        torch.save(result.model.state_dict(), folder / "final.pt")
    distributed.barrier()
    distributed.leave()
    return 0

"""A run of 200 steps with two workers, augmentation, dropout and averaging: `python short_run.py FOLDER`.

The same command begins it, and continues with it after a kill.
"""

import sys
from pathlib import Path

import torch

from vitral.data.generated import open_digits
from vitral.data.loader import TrainingBatches
from vitral.errors import VitralError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.training.loop import train
from vitral.training.settings.recipe import build_recipe

CONFIG = ViTConfig(
    image_size=(8, 8), patch_size=(4, 4), dim=16, depth=2, mlp_dim=32, num_heads=2, num_classes=10, dropout=0.1
)


def main(folder: Path) -> int:
    """Train, or go on training."""
    torch.set_num_threads(1)
    recipe = build_recipe(
        {
            "steps": 200,
            "batch_size": 16,
            "workers": 2,
            "averaging": {"decay": 0.99},
            "checkpoint": {"every_steps": 10},
            "evaluation": {"every_steps": 50},
        },
        "short run",
    )
    data = open_digits()
    batches = TrainingBatches(
        data.splits["train"],
        batch_size=recipe.batch_size,
        image_size=CONFIG.image_size,
        augmentation=data.augmentation,
        seed=recipe.seed,
    )
    try:
        train(
            build(CONFIG, seed=0),
            batches,
            recipe=recipe,
            normalize=PHOTOS.normalize,
            folder=folder,
            validate=lambda model, listener, stop: {
                "validation/accuracy": float(model.head.weight.detach().abs().mean())
            },
            resume=True,
        )
    except VitralError as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

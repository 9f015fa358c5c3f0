"""A run that takes two seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vitral.data.generated import open_digits
from vitral.events import Listener, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.model import Model, ModelConfig
from vitral.models.vit_config import ViTConfig
from vitral.training.clock import Clock, Pacer
from vitral.training.loop import TrainingResult, train
from vitral.training.methods.method import training_batches
from vitral.training.settings.recipe import Recipe, build_recipe

CONFIG = ViTConfig(
    image_size=(8, 8), patch_size=(4, 4), dim=16, depth=2, mlp_dim=32, num_heads=2, num_classes=10, dropout=0.1
)
Normalize = Callable[[Tensor], Tensor]


class Run:
    """Trains a tiny network on the digits in one folder."""

    def __init__(self, folder: Path, config: ModelConfig = CONFIG) -> None:
        self.folder, self.config = folder, config
        self.model: Model

    def figure(self, network: Model) -> float:
        """A figure that stands for how good the network is."""
        return float(network.head.weight.detach().abs().sum())

    def recipe(self, **changes: object) -> Recipe:
        values: dict[str, object] = {
            "steps": 30,
            "batch_size": 16,
            "workers": 0,
            "seed": 3,
            "schedule": {"warmup_steps": 5},
            "averaging": {"decay": 0.9},
            "checkpoint": {"every_steps": 10},
            "evaluation": {"every_steps": 15},
        }
        return build_recipe(values | changes, "test")

    def train(
        self,
        *,
        resume: bool = False,
        listener: Listener = ignore,
        normalize: Normalize = PHOTOS.normalize,
        clock: Clock | None = None,
        **changes: object,
    ) -> tuple[Model, TrainingResult]:
        torch.use_deterministic_algorithms(False)
        data = open_digits()
        recipe = self.recipe(**changes)
        batches = training_batches(
            data.splits["train"],
            recipe,
            image_size=self.config.image_size,
            augmentation=recipe.augmentation or data.augmentation,
        )
        model = self.model = build(self.config, seed=1)
        result = train(
            model,
            batches,
            recipe=recipe,
            normalize=normalize,
            folder=self.folder,
            validate=lambda network, listener, stop: {"validation/accuracy": self.figure(network)},
            resume=resume,
            pacer=Pacer(clock or Clock(None)),
            listener=listener,
        )
        return model, result

    def bits(self) -> dict[str, bytes]:
        """Everything that must not depend on how often the run was interrupted."""
        newest = sorted((self.folder / "checkpoints").glob("step-*"))[-1]
        return {
            "tensors": (newest / "tensors-00000-00000.safetensors").read_bytes(),
            "log": (self.folder / "metrics.jsonl").read_bytes(),
        }


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture
def other_run(tmp_path: Path) -> Run:
    return Run(tmp_path / "other")

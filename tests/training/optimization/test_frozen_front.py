"""The maps of frozen blocks are computed once an image, and nothing else changes by it."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as transforms

from tests.cases import every_case
from tests.training.conftest import Run
from tests.training.test_loop import StopAt
from vitral.errors import TrainingInterrupted
from vitral.images.augment import Augmentation, training_view
from vitral.models.efficientnet import EfficientNetConfig
from vitral.models.families import build
from vitral.models.model import ModelConfig
from vitral.models.resnet import ResNetConfig
from vitral.models.staged import StagedModel
from vitral.training.optimization import frozen_front
from vitral.training.optimization.adaptation import adapt, training_mode
from vitral.training.optimization.frozen_front import FrozenFront, keep_front, keeps_front
from vitral.training.settings.recipe import build_recipe
from vitral.training.settings.sections import AdaptationSettings

ROOM = 2**30
EFFICIENT = EfficientNetConfig(image_size=(32, 32), num_classes=10, width=0.25, depth=0.5, lite=True)
RESIDUAL = ResNetConfig(image_size=(32, 32), num_classes=10, stages=(1, 1, 1, 1), bottleneck=False)
STILL: dict[str, object] = {"crop": "none", "flip": False}
FROZEN: dict[str, Any] = {
    "adaptation": {"frozen_blocks": 2, "keep_frozen": True, "frozen_statistics": True},
    "augmentation": STILL,
}


class Counted:
    """Makes maps of images, and counts how many it was given."""

    def __init__(self) -> None:
        self.images = 0
        self.layer = torch.nn.Conv2d(3, 8, 3, stride=2)

    def __call__(self, images: Tensor) -> Tensor:
        self.images += len(images)
        return self.layer(images)


def staged(config: ModelConfig) -> StagedModel:
    model = build(config, seed=0)
    assert isinstance(model, StagedModel)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return model


@every_case("config", [EFFICIENT, RESIDUAL], ids=["efficientnet", "resnet"])
def test_the_last_blocks_learn_the_same(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and gradients are those of the whole network, but for the rounding of what is kept."""
    monkeypatch.setattr(frozen_front, "KEPT", torch.float32)
    monkeypatch.setattr(frozen_front, "has_native_bf16", lambda device: False)
    settings = AdaptationSettings(frozen_blocks=3, frozen_statistics=True)
    images = torch.rand(6, 3, 32, 32)
    plain, kept = staged(config), staged(config)
    kept.frozen_front = FrozenFront(3, limit=ROOM)
    answers = []
    for model in (plain, kept):
        adapt(model, settings, seed=0)
        training_mode(model, settings)
        logits = model(images)
        logits.square().mean().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        answers.append((logits.detach(), gradients))
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-4, atol=1e-5)


def test_a_network_in_use_computes_all_of_its_blocks() -> None:
    model, images = staged(EFFICIENT).eval(), torch.rand(2, 3, 32, 32)
    before = model(images)
    model.frozen_front = FrozenFront(3, limit=ROOM)
    assert torch.equal(model(images), before)


def test_maps_are_computed_once() -> None:
    front, compute, images = FrozenFront(1, limit=ROOM), Counted(), torch.rand(8, 3, 16, 16)
    first = front(images, compute)
    assert torch.equal(front(images.flip(0), compute).flip(0), first)
    assert compute.images == 8
    front(images.flip(3), compute)  # another view of the same
    assert compute.images == 16


@every_case("limit", [0, 1000, ROOM])
def test_maps_depend_on_their_image_alone(limit: int) -> None:
    """Not on the others of the batch, on what was kept before, on the memory, nor on how many are computed together."""
    images, compute = torch.rand(19, 3, 16, 16), Counted()
    alone = torch.cat([FrozenFront(1, limit=limit)(image[None], compute) for image in images])
    front = FrozenFront(1, limit=limit)
    parts = torch.cat([front(images[start:stop], compute) for start, stop in ((0, 3), (3, 16), (16, 19))])
    again = front(images, compute)
    assert torch.equal(parts, alone)
    assert torch.equal(again, alone)


@pytest.mark.requirement(id="R7")
@every_case("step", [7, 20])
def test_a_run_that_was_stopped_ends_in_the_same_bits(tmp_path: Path, step: int) -> None:
    """After which nothing is kept, so that other images are computed together."""
    whole, stopped = Run(tmp_path / "whole", EFFICIENT), Run(tmp_path / "stopped", EFFICIENT)
    whole.train(**FROZEN)
    with pytest.raises(TrainingInterrupted):
        stopped.train(listener=StopAt(step, signal.SIGTERM), **FROZEN)
    stopped.train(resume=True, **FROZEN)
    assert stopped.bits() == whole.bits()


def test_a_trained_network_keeps_nothing(tmp_path: Path) -> None:
    model, _ = Run(tmp_path / "run", EFFICIENT).train(**FROZEN)
    assert isinstance(model, StagedModel)
    assert model.frozen_front is None


@every_case(
    "changes",
    [
        {"augmentation": {"crop": "inception"}},
        {"augmentation": {**STILL, "jitter": 0.4}},
        {"augmentation": {**STILL, "erasing": 0.5}},
        {"augmentation": {**STILL, "rotate": 5.0}},
        {"augmentation": {**STILL, "policy": "three-augment"}},
        {"augmentation": {**STILL, "interpolation": "random"}},
        {"mixing": {"mixup": 0.2}},
        {"regularization": {"stochastic_depth": 0.1}},
        {"adaptation": {"frozen_blocks": 2}},
        {"compute": {"compile": True}},
    ],
)
def test_nothing_is_kept_where_maps_would_differ(changes: dict[str, object]) -> None:
    recipe = build_recipe({"steps": 30, "batch_size": 16, **FROZEN}, "test")
    assert recipe.augmentation is not None
    assert keeps_front(recipe, recipe.augmentation)
    recipe = build_recipe({"steps": 30, "batch_size": 16, **FROZEN, **changes}, "test")
    model = staged(EFFICIENT)
    keep_front(model, recipe, recipe.augmentation or Augmentation())
    assert model.frozen_front is None


@every_case("shape", [(300, 200), (200, 300), (224, 224), (90, 400)])
def test_a_centre_crop_is_torchvisions(shape: tuple[int, int]) -> None:
    """Resize the shorter side to 8/7 of the size, cut out the middle: timm's and torchvision's view of photos in use."""
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    how = Augmentation(crop="centre", margin=8 / 7, flip=False, interpolation="bilinear")
    view = training_view(lambda shrink: image, how, size=(56, 56), rng=np.random.default_rng(1)).pixels
    planes = torch.from_numpy(image).permute(2, 0, 1)
    expected = transforms.center_crop(transforms.resize(planes, [64], antialias=True), [56, 56])
    assert (view.int() - expected.int()).abs().max() <= 1

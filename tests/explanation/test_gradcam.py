"""Grad-CAM against its formula by other means: finite differences, and the closed form of a network that averages."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.cases import every_case
from tests.explanation.networks import MAPPED, SIZE, random_network
from vitral.explanation.methods import class_activation, compute
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.model import Model
from vitral.models.resnet import ResNet
from vitral.models.vit_config import ViTConfig

NETWORKS = {**MAPPED, "vit": ViTConfig(patch_size=(16, 16), dim=16, depth=2, mlp_dim=24, num_heads=2, **SIZE)}
GRIDS = {"resnet": (8, 12), "bit": (8, 12), "efficientnet": (1, 2)}
TOKENS = ("cvt", "t2t", "t2t-transformer", "vit")  # these answer from a class token, and have a grid of 2 by 3


def grad_cam(predictor: TorchPredictor, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits, and the maps of each image's most probable class."""
    maps = compute(predictor, images, "Grad-CAM")
    return maps.logits, maps.values


def reference(name: str, model: Model, images: Tensor) -> Tensor:
    """Grad-CAM from finite differences of the logit, one channel after the other, without any gradient."""
    kept, logits = watch(name, model, images)
    answer = int(logits[0].argmax())
    maps = kept[0, 1:].T.reshape(-1, 2, 3) if name in TOKENS else kept[0]
    # Small where kinks are near (ReLU), large enough to rise above float32's noise where all is smooth.
    step = (0.05 if name in TOKENS else 0.004) * float(maps.std())
    up, down = (
        [watch(name, model, images, channel, change)[1][0, answer] for channel in range(len(maps))]
        for change in (step, -step)
    )
    weights = (torch.stack(up) - torch.stack(down)) / (2 * step) / maps[0].numel()
    return (weights[:, None, None] * maps).sum(dim=0).clamp_min(0)


@torch.no_grad()
def watch(name: str, model: Model, images: Tensor, channel: int = 0, change: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the last maps or tokens, and the logits where a channel is raised at every place by `change`."""
    block: Any = model.blocks()[-1]
    kept: list[Tensor] = []

    def raise_channel(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        kept.append(output)
        output = output.clone()
        channels = output[:, 1:].movedim(2, 1) if name in TOKENS else output
        channels[:, channel] += change
        return output

    handle = (block.norm1 if name in TOKENS else block).register_forward_hook(raise_channel)
    logits = model(images)
    handle.remove()
    return kept[0], logits


@every_case("name", NETWORKS)
def test_every_family_equals_finite_differences(name: str) -> None:
    model = random_network(NETWORKS[name])
    images = torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(1))
    expected = reference(name, model, images)
    _, found = grad_cam(TorchPredictor(model), images)
    assert found.shape[1:] == GRIDS.get(name, (2, 3))
    assert float(expected.max()) > 0, "a map of zeros would test nothing"
    scale = float(expected.max())
    np.testing.assert_allclose(found[0] / scale, expected / scale, atol=1e-2)


def test_a_network_that_averages_has_the_closed_form() -> None:
    # Behind the average stands one linear layer, so that a channel's gradient is its weight over the number of places.
    model = random_network(MAPPED["resnet"])
    assert isinstance(model, ResNet)
    images = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        maps = nn.functional.max_pool2d(model.root_norm(model.root(images)).relu(), 3, 2, 1)
        for stage in model.stages:
            maps = stage(maps)
        answers = model.head(maps.mean(dim=(2, 3))).argmax(dim=1)
        expected = torch.einsum("bk,bkij->bij", model.head.weight[answers], maps).relu() / maps[0, 0].numel()
    torch.testing.assert_close(grad_cam(TorchPredictor(model), images)[1], expected, rtol=1e-4, atol=1e-5)


def test_the_formula_by_hand() -> None:
    # Two channels on a grid of 1 by 2; their weights are the gradients' means, 2 and -1.
    maps = torch.tensor([[[[1.0, 3.0]], [[4.0, 1.0]]]])
    gradients = torch.tensor([[[[3.0, 1.0]], [[-1.0, -1.0]]]])
    assert class_activation(maps, gradients).tolist() == [[[0.0, 5.0]]]  # 2 - 4 is negative and left out; 6 - 1


def test_frozen_weights_and_the_training_mode_change_nothing() -> None:
    model = random_network(MAPPED["resnet"])
    images = torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(1))
    _, before = grad_cam(TorchPredictor(model), images)
    model.requires_grad_(requires_grad=False).train()
    with torch.inference_mode():
        _, after = grad_cam(TorchPredictor(model), images.clone())
    assert model.training
    torch.testing.assert_close(after, before)
    assert all(parameter.grad is None for parameter in model.parameters())

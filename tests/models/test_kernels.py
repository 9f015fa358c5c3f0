"""Layers that are there for speed against the plain ones."""

import pytest
import torch
from torch import Tensor, nn

from vitral.models.catalog import build, create_model
from vitral.models.layers import part_of_batch
from vitral.models.vit import ViTConfig


def test_stochastic_depth_is_drawn_for_the_whole_batch() -> None:
    config = ViTConfig(
        image_size=(8, 8), patch_size=(4, 4), dim=16, depth=3, mlp_dim=32, num_heads=2, stochastic_depth=0.5
    )
    model = build(config, seed=0).train()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(8, 3, 8, 8)
    torch.manual_seed(5)
    whole = model(images)
    torch.manual_seed(5)
    with part_of_batch(4, 8):
        part = model(images[4:])
    torch.testing.assert_close(whole[4:], part)


def test_tanh_gelu_is_the_originals_wherever_it_counts() -> None:
    from vitral.models.layers import TanhGelu

    values = torch.linspace(-6, 6, 1001)
    torch.testing.assert_close(TanhGelu()(values), nn.functional.gelu(values, approximate="tanh"))
    with torch.no_grad():
        low = values.bfloat16()
        assert torch.equal(TanhGelu()(low), nn.functional.gelu(low, approximate="tanh"))
    trained = TanhGelu()(values.bfloat16().requires_grad_()).detach().float()
    assert float((trained - nn.functional.gelu(values.bfloat16().float(), approximate="tanh")).abs().max()) < 0.02


def test_bf16_training_kernels_give_the_gradients_of_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.models import layers

    model = create_model("vit-ti16", num_classes=10, image_size=64).train()
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(4, 3, 64, 64)

    def gradients(dtype: torch.dtype | None) -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            logits = model(images)
        logits.float().square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact, ours = gradients(None), gradients(torch.bfloat16)
    monkeypatch.setattr(layers, "trains_in_bf16_on_cpu", lambda values: False)
    plain = gradients(torch.bfloat16)
    errors = [float((found - exact).norm() / exact.norm()) for found in (ours, plain)]
    assert errors[0] < 1.3 * errors[1] + 0.005

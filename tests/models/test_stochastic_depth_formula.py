"""Stochastic depth (arXiv 1603.09382; big_vision's and timm's drop path): left out whole, and scaled up where it stays."""

import dataclasses
from typing import Any

import pytest
import torch

from tests.cases import every_case
from vitral.models.families import build
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig

CONFIG = ViTConfig(image_size=(8, 8), patch_size=(4, 4), dim=16, depth=3, mlp_dim=32, num_heads=2)


def last_block(rate: float) -> Any:  # noqa: ANN401  # its layers are typed by their names only
    network = build(dataclasses.replace(CONFIG, stochastic_depth=rate), seed=0)
    assert isinstance(network, ViT)
    return network.encoder[-1]


@every_case("rate", [0.1, 0.4, 0.75])
def test_a_branch_is_left_out_for_an_example_or_counts_for_those_left_out(rate: float) -> None:
    block = last_block(rate)
    examples = 2000
    tokens = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0)).expand(examples, -1, -1)
    torch.manual_seed(0)
    with torch.no_grad():
        seen = block.train()(tokens)[0][:, 0]
        block.eval()
        one = tokens[:1]

        def kept(inputs: torch.Tensor, name: str) -> torch.Tensor:
            branch = block.attention(block.norm1(inputs)) if name == "attention" else block.mlp(block.norm2(inputs))
            return inputs + branch / (1 - rate)

        ways = [one, kept(one, "attention"), kept(one, "mlp"), kept(kept(one, "attention"), "mlp")]
    gaps = torch.stack([(seen - way[:, 0]).abs().amax(dim=1) for way in ways])
    assert float(gaps.amin(dim=0).max()) < 1e-4
    drawn = torch.bincount(gaps.argmin(dim=0), minlength=4) / examples
    stay = 1 - rate
    for found, share in zip(drawn.tolist(), (rate * rate, stay * rate, rate * stay, stay * stay), strict=True):
        assert abs(found - share) < 5 * (share * (1 - share) / examples) ** 0.5


def test_its_mean_is_the_branch_itself() -> None:
    block = last_block(0.5)
    branch = torch.ones(4000, 2, 3)
    torch.manual_seed(0)
    dropped = block.stochastic_depth.train()(branch)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.08)
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}
    assert bool((dropped == dropped[:, :1, :1]).all())  # one draw an example


def test_the_rate_grows_with_the_block_and_none_is_left_out_when_not_training() -> None:
    network: Any = build(dataclasses.replace(CONFIG, stochastic_depth=0.3), seed=0)
    rates = [block.stochastic_depth.rate for block in network.encoder]
    assert rates == pytest.approx([0.0, 0.15, 0.3])  # rate * block / (depth - 1), as timm and big_vision have it
    images = torch.randn(6, 3, 8, 8)
    plain = build(CONFIG, seed=0).eval()
    assert torch.equal(network.eval().features(images), plain.features(images))

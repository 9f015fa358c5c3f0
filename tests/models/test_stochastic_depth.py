"""Stochastic depth over a batch that several processes or micro-batches share."""

import torch

from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.models.vit_config import ViTConfig


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
    part = model.outputs(images[4:], BatchPart(4, 8)).logits
    torch.testing.assert_close(whole[4:], part)
    torch.manual_seed(5)
    assert not torch.allclose(model(images[4:]), part)

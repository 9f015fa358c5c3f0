"""Networks with random weights, the head's and the norms' too: zeros would hide a wrong channel."""

from typing import Any

import torch

from vitral.models.bit import BiTConfig
from vitral.models.coatnet import CoAtNetConfig
from vitral.models.cvt import CvTConfig
from vitral.models.efficientnet import EfficientNetConfig
from vitral.models.families import build
from vitral.models.model import Model, ModelConfig
from vitral.models.resnet import ResNetConfig
from vitral.models.t2t import T2TConfig

SIZE: Any = {"image_size": (32, 48), "num_classes": 4}
MAPPED: dict[str, ModelConfig] = {  # a network of each family that Grad-CAM explains
    "resnet": ResNetConfig(stages=(1,), bottleneck=False, **SIZE),
    "bit": BiTConfig(stages=(1,), **SIZE),
    "efficientnet": EfficientNetConfig(width=0.2, depth=0.3, **SIZE),
    "cvt": CvTConfig(dims=(8, 16, 32), depths=(1, 1, 2), num_heads=(1, 2, 4), **SIZE),
    "coatnet": CoAtNetConfig(
        stem_dim=8,
        kinds=("convolution", "attention", "attention"),
        depths=(1, 1, 2),
        dims=(8, 16, 16),
        strides=(2, 2, 2),
        head_dim=8,
        **SIZE,
    ),
    "t2t": T2TConfig(dim=16, depth=2, mlp_dim=24, num_heads=2, **SIZE),
    "t2t-transformer": T2TConfig(tokens="transformer", dim=16, depth=2, mlp_dim=24, num_heads=2, **SIZE),
}


def random_network(config: ModelConfig) -> Model:
    """Build a network, the same for the same configuration."""
    model = build(config)
    generator = torch.Generator().manual_seed(3)
    model.init_weights(3)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.3 * parameter.std().nan_to_num(0.3).clamp_min(0.1)
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator))
        for head in (model.head, getattr(model, "distillation_head", None)):
            if head is not None:
                head.weight.normal_(generator=generator)
    return model.eval()

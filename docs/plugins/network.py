"""Three convolutions as a network that everything knows: --plugin network.py --model tiny-conv (or --from tiny-conv)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import vitral
from vitral.models.layers import FeatureMaps, seeded
from vitral.models.model import Model, ModelConfig, refuse_rates


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyConvConfig(ModelConfig):
    """What a trained classifier's folder keeps of it."""

    widths: tuple[int, ...] = (16, 32, 64)


class TinyConv(Model):
    """Convolutions of stride 2, their mean over the image, a linear head."""

    def __init__(self, config: TinyConvConfig) -> None:
        super().__init__()
        self.config = config
        pairs = zip((3, *config.widths), config.widths)
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.ReLU()) for a, b in pairs)
        self.head = nn.Linear(config.widths[-1], config.num_classes)

    def encode(self, images: Tensor, part: object = None) -> FeatureMaps:
        for layer in self.layers:
            images = layer(images)
        return FeatureMaps(images)

    def features(self, images: Tensor, part: object = None) -> Tensor:
        return self.encode(images).maps.mean((2, 3))

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)

    def apply_rates(self) -> None:
        refuse_rates(self.config, "TinyConv", "dropout", "attention_dropout", "stochastic_depth")

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        generator = seeded(self, seed)
        for layer in self.layers:
            nn.init.kaiming_normal_(layer[0].weight, generator=generator)
            nn.init.zeros_(layer[0].bias)
        self.init_head(generator)


vitral.register("network", "tiny-conv", (TinyConv, TinyConvConfig(image_size=(32, 32))))

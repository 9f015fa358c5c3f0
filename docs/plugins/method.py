"""The focal loss (arXiv 1708.02002) as a method of recipes: --plugin method.py --set method.name=focal --set method.gamma=2."""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional

import vitral
from vitral.training.methods.supervised import Supervised
from vitral.training.settings.methods import MethodSettings


class FocalSettings(MethodSettings):
    """The recipe's section [method]."""

    name: Literal["focal"] = "focal"
    gamma: float = Field(default=2.0, ge=0)


class Focal(Supervised):
    """Learns least from the images of which the network is sure."""

    Settings = FocalSettings

    def loss_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = functional.cross_entropy(logits.float(), targets, reduction="none")
        return ((1 - (-losses).exp()) ** self.recipe.method.gamma * losses).mean()


vitral.register("method", "focal", Focal)

"""The few calls that every network answers, whatever its family, and what every config says."""

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.heads import new_head
from vitral.models.initialization import seeded
from vitral.models.stochastic_depth import BatchPart
from vitral.models.tokens import FeatureMaps, TokenGrid

Images = Float[Tensor, "batch 3 height width"]
Features = Float[Tensor, "batch features"]
Logits = Float[Tensor, "batch classes"]


HEADS = ("head.", "distillation_head.")  # what the names of the layers that give logits begin with
# Beyond what anyone builds; a description from elsewhere must not keep us busy for hours.
LARGEST, DEEPEST = 16_384, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """What the config of every family says.

    Attributes:
        image_size: height and width of the images, pixels.
        num_classes: logits (K).
        head_bias: initial bias of the head: -10 with the sigmoid loss of the original's large sets, else 0.
        dropout: rate, where the family's paper has it.
        attention_dropout: rate on the attention probabilities; 0 in every published model.
        stochastic_depth: rate of leaving out a residual branch in the last block, growing linearly from 0 in the first.
    """

    image_size: tuple[int, int] = (224, 224)
    num_classes: int = 1000
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    stochastic_depth: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            raise ModelError(f"image_size must be a height and a width of at least 1, not {self.image_size}.")
        if max(self.image_size) > LARGEST:
            raise ModelError(f"image_size must be at most {LARGEST} pixels, not {self.image_size}.")
        if self.num_classes < 1:
            raise ModelError(f"num_classes must be at least 1, not {self.num_classes}.")
        blocks = getattr(self, "depth", 0), *getattr(self, "depths", ()), *getattr(self, "stages", ())
        if max(blocks) > DEEPEST:
            raise ModelError(f"A network has at most {DEEPEST} blocks, not {max(blocks)}.")
        for rate in ("dropout", "attention_dropout", "stochastic_depth"):
            if not 0.0 <= getattr(self, rate) < 1.0:
                raise ModelError(f"{rate} must be at least 0 and below 1, not {getattr(self, rate)}.")


@dataclass(frozen=True)
class Outputs:
    """What a network gives while it trains.

    Attributes:
        logits: the classification head's logits, (batch, classes).
        distillation_logits: the distillation head's, (batch, classes), where there is one.
        auxiliary: auxiliary losses by name, scalars.
    """

    logits: Tensor
    distillation_logits: Tensor | None = None
    auxiliary: dict[str, Tensor] = field(default_factory=dict)


torch.export.register_dataclass(Outputs)  # torch's sharding looks for the tensors in what a network returns


class Model(nn.Module, ABC):
    """An image classifier network: images (batch, 3, height, width) in, logits (batch, classes) out.

    Its weights are undefined until `init_weights` or a checkpoint.
    """

    config: Any  # the family's own ModelConfig
    head: nn.Linear

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that it takes, in pixels.

        Without tables of positions (BiT, ResNet, CvT, EfficientNet) it takes others as well.
        """
        return self.config.image_size

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return self.config.num_classes

    @property
    def num_features(self) -> int:
        """The width of what `features` returns."""
        return self.head.in_features

    @abstractmethod
    def encode(self, images: Images, part: BatchPart | None = None) -> TokenGrid | FeatureMaps:
        """Return what the backbone makes of the images, for a head of whatever kind.

        Args:
            images: at the network's size.
            part: which examples of a batch these are, while training with stochastic depth; None for all.
        """

    @abstractmethod
    def features(self, images: Images, part: BatchPart | None = None) -> Features:
        """Return the pooled representation, the head's input."""

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the pooled representation of what `encode` gave: what `features` returns, where a caller needs both.

        Raises:
            ModelError: the network does not say how.
        """
        raise ModelError(f"{type(self).__name__} does not say how it pools what its backbone gives.")

    def forward(self, images: Images) -> Logits:
        """Return the logits."""
        return self.head(self.features(images))

    def outputs(self, images: Images, part: BatchPart | None = None) -> Outputs:
        """Return the logits and whatever else the training losses need."""
        return Outputs(logits=self.head(self.features(images, part)))

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Replace the head by a linear layer of `num_classes` outputs, drawn from `seed` as a new network's is."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes, head_bias=0.0)
        self.head = new_head(self.head.in_features, num_classes, self.head.weight)
        self.init_head(seeded(self, seed))

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head as the family's source does: weights of 0 and a bias of `head_bias`, unless a family says otherwise."""
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, self.config.head_bias)

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Make the network take images of another size, an int or (height, width), in pixels.

        Raises:
            ModelError: the network cannot take that size.
        """
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.config = dataclasses.replace(self.config, image_size=size)

    def set_rates(self, *, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        """Change the regularisation in place, as fine-tuning does; the weights stay.

        Raises:
            ModelError: a rate above 0 that the family has no place for.
        """
        self.config = dataclasses.replace(
            self.config, dropout=dropout, attention_dropout=attention_dropout, stochastic_depth=stochastic_depth
        )
        self.apply_rates()

    @abstractmethod
    def apply_rates(self) -> None:
        """Hand the config's rates to the layers."""

    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """Return the repeated blocks in order: the unit of compiling, checkpointing and layer-wise decay."""

    def no_weight_decay(self) -> set[str]:
        """Return the names of the parameters that weight decay leaves alone: biases and norms, at the least."""
        return {name for name, parameter in self.named_parameters() if parameter.ndim <= 1}

    @abstractmethod
    def init_weights(self, seed: int) -> None:
        """Draw every parameter anew, as a pure function of `seed`."""

    def fixed_tensors(self) -> dict[str, Tensor]:
        """Return tensors that are computed, not learned, and that some checkpoints leave out; none for most families."""
        return {}

    def check_size(self, images: Images) -> None:
        """Refuse images of another size than the network's, where its tables are of that size.

        Raises:
            ModelError: both sizes are named.
        """
        if images.shape[-2:] != self.image_size:
            raise ModelError(
                f"The network takes images of {self.image_size[0]}x{self.image_size[1]} pixels, "
                f"not {images.shape[-2]}x{images.shape[-1]}; resize them, or call resize() on the network."
            )


def refuse_rates(config: ModelConfig, family: str, *names: str) -> None:
    """Refuse rates that a family has no place for.

    Raises:
        ModelError: one of the named rates is above 0.
    """
    for name in names:
        if getattr(config, name):
            raise ModelError(f"{family} has no place for {name}; set it to 0.")


def blocks_of(stages: nn.ModuleList) -> list[nn.Module]:
    """Return the blocks of all stages in order."""
    return [block for stage in stages for block in stage.children()]

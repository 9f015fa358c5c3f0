"""The few calls that every network answers, whatever its family."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

Images = Float[Tensor, "batch 3 height width"]
Logits = Float[Tensor, "batch classes"]


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


class Model(nn.Module, ABC):
    """An image classifier network: images (batch, 3, height, width) in, logits (batch, classes) out."""

    head: nn.Linear

    @property
    @abstractmethod
    def image_size(self) -> tuple[int, int]:
        """Height and width of the pictures that it takes, in pixels."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """The number of logits."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """The width of what `features` returns."""

    @abstractmethod
    def features(self, images: Images) -> Float[Tensor, "batch features"]:
        """Return the pooled representation, the head's input."""

    @abstractmethod
    def outputs(self, images: Images) -> Outputs:
        """Return the logits and whatever else the training losses need."""

    @abstractmethod
    def forward(self, images: Images) -> Logits:
        """Return the logits."""

    @abstractmethod
    def replace_head(self, num_classes: int) -> None:
        """Put a zero-initialised linear layer of `num_classes` outputs in place of the head."""

    @abstractmethod
    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Make the network take pictures of another size, an int or (height, width), in pixels.

        Raises:
            ModelError: the network cannot take that size.
        """

    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """Return the repeated blocks in order: the unit of compiling, checkpointing and layer-wise decay."""

    @abstractmethod
    def no_weight_decay(self) -> set[str]:
        """Return the names of the parameters that weight decay leaves alone."""

    @abstractmethod
    def init_weights(self, seed: int) -> None:
        """Draw every parameter anew, as a pure function of `seed`."""

"""The interface of a head whose answer is about regions, and what the config of every such head says."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from vitral.models.layers import BatchPart
from vitral.models.model import Images, Model, ModelConfig


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """What the config of every head over a backbone says.

    Attributes:
        kind: Its name in classifier folders and recipes: "linear".
        title: What it is called in a sentence: "a linear head".
    """

    kind: ClassVar[str]
    title: ClassVar[str]

    def check(self, backbone: ModelConfig) -> None:
        """Refuse a backbone that the head cannot stand on, by a ModelError that says why."""
        return


class DenseHead(nn.Module, ABC):
    """A head over a backbone: it runs the backbone itself, because some heads put tokens between its blocks."""

    @abstractmethod
    def __init__(self, config: Any, backbone: ModelConfig, channels: int, num_classes: int) -> None:  # noqa: ANN401
        super().__init__()

    @abstractmethod
    def answer(self, backbone: Model, images: Images, part: BatchPart | None = None) -> Any:  # noqa: ANN401
        """Return the answer to images: logits (batch, classes, rows, columns), or `QueryAnswers`; see `Model.encode`."""

    def resize(self, backbone: ModelConfig) -> None:
        """Take the grid of a backbone that takes images of another size; most heads take any."""
        return

    def take(self, fitted: nn.Module) -> bool:
        """Begin with a head that was fitted in closed form; return whether there is a place for it, which most have not."""
        return False

    @abstractmethod
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw every parameter of the head."""

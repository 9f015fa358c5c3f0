"""The interface of whatever computes a network's answers, and what it gives to the explanations.

A runtime is one file beside `torch_predictor.py`: a subclass of `Predictor` that answers `logits` and `features`. What it
cannot show (attention, gradients) it leaves to the refusals below.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vitral.errors import ModelError
from vitral.models.model import Features, Images, Logits
from vitral.tasks.task import Probabilities, Task


@dataclass(frozen=True)
class Attended:
    """The attention of one pass of a batch through a Vision Transformer; all tensors float32, on the CPU.

    Attributes:
        logits: the network's answer.
        attentions: probabilities of each layer, first layer first, each (batch, heads, tokens, tokens).
        pooling: the share of each output token in the pooled representation, summing to 1.
        num_prefix_tokens: tokens before the patches: class token, distillation token and registers.
        grid: rows and columns of patches.
        stride: step between patches, (height, width) in pixels of the network's input.
    """

    logits: Logits
    attentions: tuple[Float[Tensor, "batch heads tokens tokens"], ...]
    pooling: Float[Tensor, "batch tokens"]
    num_prefix_tokens: int
    grid: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True)
class ClassMaps:
    """The last feature maps of one pass of a batch, and how the most probable class depends on them; float32, on the CPU.

    Attributes:
        logits: the network's answer.
        maps: the feature maps.
        gradients: of each image's largest logit by its maps.
    """

    logits: Logits
    maps: Float[Tensor, "batch channels rows columns"]
    gradients: Float[Tensor, "batch channels rows columns"]


class Predictor(ABC):
    """Whatever computes a network's answers for prepared images (batch, 3, height, width).

    Device, precision and the network's mode are its own affair: images come from the CPU in float32, and all results are
    float32 on the CPU, as the network gives them when it predicts, without dropout and without a graph. A call leaves
    nothing changed behind, also when it fails.
    """

    @property
    @abstractmethod
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that it takes, in pixels."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """The number of logits."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """The number of learned values."""

    @abstractmethod
    def describe(self) -> str:
        """Return what computes, in a word or two, such as a variant's name."""

    @abstractmethod
    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images."""

    @abstractmethod
    def features(self, images: Images) -> Features:
        """Return the pooled representations of prepared images: what the last linear layer reads."""

    def probabilities(self, images: Images, task: Task) -> Probabilities:
        """Return what the logits of prepared images mean to a task.

        A runtime whose file holds this last step answers it itself.
        """
        return task.probabilities(self.logits(images)).float().cpu()

    @property
    def has_attention(self) -> bool:
        """Whether `attention` can be asked."""
        return False

    def attention(self, images: Images) -> Attended:
        """Return the attention of every layer.

        Raises:
            ModelError: it has none to show.
        """
        raise ModelError(f"{self.describe()} has no attention to show; only Vision Transformers in torch have.")

    def class_maps(self, images: Images) -> ClassMaps:
        """Return the last feature maps with the gradients of the most probable class.

        Raises:
            ModelError: it has neither such maps nor gradients.
        """
        raise ModelError(
            f"{self.describe()} has neither attention to show nor a last feature map, so it cannot be explained."
        )

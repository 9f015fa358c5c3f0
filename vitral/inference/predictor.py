"""The interface of all that computes a network's outputs, the batches it computes them in, and what it gives explanations.

A runtime is one file next to `torch_predictor.py`: a subclass of `Predictor` that implements `logits` and `features`. What it
cannot give (attention, gradients) is refused by the methods below.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral import distributed
from vitral.data.loader import CLASS_NUMBERS, Encode, load_evaluation
from vitral.data.source import Source
from vitral.errors import DataError, ModelError, Stopped
from vitral.events import Listener, Progress
from vitral.images.preprocessing import Preprocessing
from vitral.inference.quantization import Quantization
from vitral.models.model import ExplainedBy, Features, Images, Logits
from vitral.tasks.task import Probabilities, Targets, Task

Image = Float[Tensor, "3 height width"]


@dataclass(frozen=True)
class Attended:
    """The attention of one pass of a batch through a Vision Transformer; all tensors float32, on the CPU.

    Attributes:
        logits: The network's output.
        attentions: Probabilities of each layer, first layer first, each (batch, heads, tokens, tokens).
        pooling: The share of each output token in the pooled representation, summing to 1.
        num_prefix_tokens: Tokens before the patches: class token, distillation token and registers.
        grid: Rows and columns of patches.
        stride: Step between patches, (height, width) in pixels of the network's input.
    """

    logits: Logits
    attentions: tuple[Float[Tensor, "batch heads tokens tokens"], ...]
    pooling: Float[Tensor, "batch tokens"]
    num_prefix_tokens: int
    grid: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True)
class ClassAttention:
    """The attention of one pass, and the gradients of a class's logit by each layer's; float32, on the CPU."""

    attended: Attended
    gradients: tuple[Float[Tensor, "batch heads tokens tokens"], ...]


@dataclass(frozen=True)
class LayerAttention:
    """Where the heads of one layer look; float32, on the CPU.

    Attributes:
        logits: The network's output.
        maps: The attention that each cell of the image gets from the tokens that the answer is read from, in the shares in
            which it is; from all queries of the layer alike where it has none of those tokens. At least 0, at most 1 in sum.
        layer: Its number among the layers of attention, counted from 1.
        num_layers: Layers of attention.
    """

    logits: Logits
    maps: Float[Tensor, "batch heads rows columns"]
    layer: int
    num_layers: int


@dataclass(frozen=True)
class ClassMaps:
    """The last feature maps of one pass of a batch, and the gradients of a class's logit by them; float32, on the CPU."""

    logits: Logits
    maps: Float[Tensor, "batch channels rows columns"]
    gradients: Float[Tensor, "batch channels rows columns"]


class Predictor(ABC):
    """Computes a network's outputs for prepared images (batch, 3, height, width).

    It takes care of device, precision and the network's mode: images are float32 on the CPU, and so are all results, which
    are those of evaluation mode (no dropout) and are detached from any graph. A call changes no state, even if it fails.

    Attributes:
        merge: Tokens that each block but the last has fewer; 0 for the network as it is.
        quantization: What it computes integers by; None where it does not compute in int8.
    """

    merge: int = 0
    quantization: Quantization | None = None

    @property
    @abstractmethod
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images, in pixels."""

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
        """Return a short name for messages, such as the variant's."""

    @abstractmethod
    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images."""

    @abstractmethod
    def features(self, images: Images) -> Features:
        """Return the pooled representations of prepared images: the input of the last linear layer."""

    def answers(self, images: Images) -> Any:  # noqa: ANN401  # as a head of regions answers
        """Return a network's answers about regions, see `DenseHead.answer`, or raise ModelError if it computes none."""
        raise ModelError(f"{self.describe()} answers for images as a whole, not for regions of them.")

    def probabilities(self, images: Images, task: Task) -> Probabilities:
        """Return what the logits of prepared images mean to a task.

        A runtime with this last step in its model file overrides it.
        """
        return task.probabilities(self.logits(images)).float().cpu()

    @property
    def computed_by(self) -> str:
        """What computes, and in which precision, for people."""
        return "torch in fp32"

    @property
    def fingerprint(self) -> str:
        """A hash of what the answers follow from beside a network's own tensors; empty where there is nothing else."""
        return ""

    @property
    def exact(self) -> "Predictor":
        """The predictor that this one stands in for: itself, unless it computes a network in another way or precision."""
        return self

    @property
    def explained_by(self) -> ExplainedBy:
        """What explains an answer best, unless another method is named."""
        return "gradients"

    @property
    def has_attention(self) -> bool:
        """Whether the network is explained by its attention, unless another method is named."""
        return self.explained_by == "attention"

    @property
    def no_rollout(self) -> str:
        """Why attention cannot be followed from the answer to the image, as part of a sentence; empty if it can be."""
        return "its runtime does not show attention"

    @property
    def shown_heads(self) -> tuple[int, ...] | None:
        """Heads of each layer of attention that can be shown, first layer first; None where no answer can be explained."""
        return None

    def attention(self, images: Images) -> Attended:
        """Return the attention of every layer.

        Raises:
            ModelError: It has none to show, or none that makes a chain from the answer to the patches.
        """
        raise self._without_attention()

    def class_attention(self, images: Images, target: int | None = None) -> ClassAttention:
        """Return the attention of every layer with the gradients of a logit; None for each image's largest.

        Raises:
            ModelError: As `attention` does.
        """
        raise self._without_attention()

    def layer_attention(self, images: Images, layer: int | None = None) -> LayerAttention:
        """Return where one layer of attention looks, counted from 1; None for the last.

        Raises:
            ModelError: It has no attention to show, or not so many layers of it.
        """
        raise self._without_attention()

    def class_maps(self, images: Images, target: int | None = None) -> ClassMaps:
        """Return the last feature maps with the gradients of a logit; None for each image's largest.

        Raises:
            ModelError: It has neither such maps nor gradients.
        """
        raise ModelError(
            f"{self.describe()} has neither attention to show nor a last feature map, so it cannot be explained."
        )

    def _without_attention(self) -> ModelError:
        return ModelError(f"{self.describe()} has no attention to show; only networks in torch show it.")


def in_batches(images: Iterable[tuple[str, Image]], batch_size: int) -> Iterator[tuple[tuple[str, ...], list[Image]]]:
    """Give so many named images at once with their names, in order; only these are in memory.

    Raises:
        ModelError: `batch_size` is below 1.
    """
    _check_batch_size(batch_size)
    images = iter(images)
    while batch := list(islice(images, batch_size)):
        names, prepared = zip(*batch, strict=True)
        yield names, list(prepared)


def collect(
    compute: Callable[[Images], Float[Tensor, "batch values"]],
    source: Source,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    workers: int = 0,
    limit: int | None = None,
    purpose: str,
    listener: Listener,
    encode: Encode = CLASS_NUMBERS,
    stop: Callable[[], bool] | None = None,
) -> tuple[Float[Tensor, "examples values"], Targets]:
    """Return one row of values and the label of every image of a source, in order, each exactly once.

    The processes of a job share the images out, and each ends with all rows.

    Args:
        compute: Computes the rows of a batch of prepared images, on the CPU.
        source: Images and labels.
        preprocessing: The preprocessing of the images.
        batch_size: Images computed at once.
        workers: Processes that decode; 0 decodes here.
        limit: Images to take of an endless source; a finite one is always taken whole.
        purpose: The name under which the listener hears of the progress.
        listener: What receives progress.
        encode: Makes a tensor of labels; class numbers if left out.
        stop: Says after every batch, in every process alike, whether to stop.

    Raises:
        Stopped: `stop` said so.
        DataError: The source is empty.
        ImageError: An image cannot be read.
        ModelError: `batch_size` is below 1.
    """
    count = min(len(source), limit) if source.endless and limit is not None else len(source)
    if count == 0:
        raise DataError("There are no images to evaluate; name a split that has some.")
    _check_batch_size(batch_size)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    done = 0
    mine = load_evaluation(
        source,
        preprocessing,
        batch_size=batch_size,
        workers=workers,
        limit=count,
        encode=encode,
        rank=distributed.rank(),
        world=distributed.world(),
    )
    for batch in mine:
        rows = compute(batch.images)
        parts.append((batch.indices, rows[: len(batch.indices)], batch.labels))
        done += len(batch.indices)
        listener(Progress(purpose, min(count, done * distributed.world()), count))
        if stop is not None and stop():
            raise Stopped
    every = [part for theirs in distributed.gather(parts) for part in theirs]
    indices, values, labels = (torch.cat([part[column] for part in every]) for column in range(3))
    order = indices.argsort()
    assert torch.equal(indices[order], torch.arange(count)), f"{len(indices)} images were counted, not {count}"
    return values[order], labels[order]


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ModelError(f"A batch has at least one image, not {batch_size}; set batch_size to 1 or more.")

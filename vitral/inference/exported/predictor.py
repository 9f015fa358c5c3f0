"""The predictor that leaves the network to an exported file."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from vitral.errors import ModelError, VitralError, one_line
from vitral.files import sha256
from vitral.images.decode import Pixels
from vitral.inference.exported.format import Graph
from vitral.inference.predictor import Predictor
from vitral.models.dense.answers import answers_of
from vitral.models.model import Features, Images, Logits

Values = TypeVar("Values")  # what a file gives
Ending = Literal["logits", "softmax", "sigmoid"]
SMALLEST = 1e-7  # distance of a sigmoid's value from 0 and 1, in float32
FLOATS = ("float32", "float16", "float64")  # what files of other programs take and give


class ExportedPredictor(Predictor):
    """Computes the logits by the file's own runtime; it has no features, no attention and no gradients to show.

    Args:
        graph: The file.
        name: The name of the network.
        image_size: Height and width of prepared images, pixels.
        num_classes: The number of logits.
        two_classes: Whether the file gives one value an image, of which two logits are made: minus and plus its half.
        channels_last: Whether the file takes images with the channels after height and width.
        ends_in: What its answers are; they become logits by the inverse.
        num_parameters: The number of learned values; 0 where the file does not say.
        macs: Multiply-accumulates of one image; 0 where the file does not say.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        name: str,
        image_size: tuple[int, int],
        num_classes: int,
        two_classes: bool = False,
        channels_last: bool = False,
        ends_in: Ending = "logits",
        num_parameters: int = 0,
        macs: int = 0,
    ) -> None:
        self.graph, self.name, self.macs = graph, name, macs
        self._image_size, self._num_classes, self._num_parameters = image_size, num_classes, num_parameters
        self._two_classes, self._channels_last, self._ends_in = two_classes, channels_last, ends_in

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images, in pixels."""
        return self._image_size

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return self._num_classes

    @property
    def num_parameters(self) -> int:
        """The number of learned values; 0 where the file does not say."""
        return self._num_parameters

    @property
    def fingerprint(self) -> str:
        """A hash of the file, and of the one with its weights."""
        return " ".join(sha256(path) for path in self.graph.files())

    @property
    def computed_by(self) -> str:
        """The runtime and the precision."""
        return f"{self.graph.engine} in {self.graph.computes_in}"

    def describe(self) -> str:
        """Return the network's name, and the file's."""
        path = self.graph.path
        return f"{self.name} in '{path.name}'"

    def prepare(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return a decoded image as the network's input, computed by the file.

        Raises:
            ModelError: The runtime cannot compute it.
        """
        return self._computed(self.graph.prepare, image[None], (1, 3, *self._image_size))[0]

    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images.

        Raises:
            ModelError: The file finds regions, or the runtime cannot compute it.
        """
        if self.graph.regions:
            raise ModelError(
                f"{self.describe()} answers what is where in images, not of what class they are as a whole."
            )
        fixed = self.graph.inputs[0].shape[0]  # a file of another program may take so many images and no other number
        parts = []
        for part in torch.split(images, fixed or len(images)):
            filled = part if fixed is None else torch.cat([part, part[:1].expand(fixed - len(part), -1, -1, -1)])
            parts.append(self._answers(filled)[: len(part)])
        return torch.cat(parts)

    def _answers(self, images: Images) -> Logits:
        """Return the logits of as many images as the file takes at once."""
        given = (images.permute(0, 2, 3, 1) if self._channels_last else images).contiguous().numpy()
        if not self.graph.is_ours:
            given = _in_type(given, self.graph.inputs[0].dtype)
        shape = (len(images), 1 if self._two_classes else self._num_classes)
        found = self._computed(self._rows, given, shape)
        if self._ends_in == "softmax":
            found = found.clamp_min(torch.finfo(found.dtype).tiny).log()
        elif self._ends_in == "sigmoid":
            found = found.logit(SMALLEST)
        return torch.cat([-found / 2, found / 2], dim=1) if self._two_classes else found

    def _rows(self, given: np.ndarray) -> np.ndarray:
        """Return a file's answers, a row for each image; other floats of another program are float32."""
        found = self.graph.answer(given).reshape(len(given), -1)
        other = not self.graph.is_ours and found.dtype.name in FLOATS
        return found.astype(np.float32, copy=False) if other else found

    def answers(self, images: Images) -> Any:  # noqa: ANN401  # as a head of regions answers
        """Return a network's answers about regions.

        Raises:
            ModelError: The runtime cannot compute them.
        """
        found = self._run(self.graph.answers, images.contiguous().numpy())
        return answers_of({name: torch.from_numpy(value) for name, value in found.items()})

    def _run(self, compute: Callable[[Any], Values], images: np.ndarray) -> Values:
        try:
            return compute(images)
        except VitralError:
            raise
        except Exception as error:  # a runtime raises anything
            raise ModelError(f"{self.computed_by} cannot compute '{self.graph.path}': {one_line(error)}") from error

    def _computed(self, compute: Callable[[Any], np.ndarray], images: np.ndarray, shape: tuple[int, ...]) -> Tensor:
        found = self._run(compute, images)
        if found.dtype != np.float32 or found.shape != shape:
            raise ModelError(
                f"'{self.graph.path}' gives {found.dtype} {list(found.shape)} where float32 {list(shape)} is needed; export "
                "the classifier again."
            )
        return torch.from_numpy(found)

    def features(self, images: Images) -> Features:
        """Refuse, since a file gives answers only."""
        raise ModelError(
            f"{self.describe()} gives answers only, no features; take the classifier that it was made from."
        )


def _in_type(images: np.ndarray, dtype: str) -> np.ndarray:
    """Return prepared images in the type that a file takes; those of bytes are of values from 0 to 255."""
    return (images if dtype in FLOATS else images.round().clip(0, 255)).astype(dtype, copy=False)

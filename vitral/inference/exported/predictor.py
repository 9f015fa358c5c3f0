"""The predictor that leaves the network to an exported file."""

import torch

from vitral.errors import ModelError, VitralError, one_line
from vitral.files import sha256
from vitral.inference.exported.graph import Graph
from vitral.inference.predictor import Predictor
from vitral.models.model import Features, Images, Logits


class ExportedPredictor(Predictor):
    """Computes the logits by the file's own runtime; it has no features, no attention and no gradients to show.

    Args:
        graph: the file.
        name: of the network.
        image_size: height and width of prepared images, pixels.
        num_classes: the number of logits.
        num_parameters: the number of learned values; 0 where the file does not say.
        macs: multiply-accumulates of one image; 0 where the file does not say.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        name: str,
        image_size: tuple[int, int],
        num_classes: int,
        num_parameters: int = 0,
        macs: int = 0,
    ) -> None:
        self.graph, self.name, self.macs = graph, name, macs
        self._image_size, self._num_classes, self._num_parameters = image_size, num_classes, num_parameters

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
        return f"{self.graph.engine} in {self.graph.precision}"

    def describe(self) -> str:
        """Return the network's name, and the file's."""
        return f"{self.name} in '{self.graph.path.name}'"

    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images.

        Raises:
            ModelError: the runtime cannot compute them.
        """
        try:
            return torch.from_numpy(self.graph.answer(images.contiguous().numpy()))
        except VitralError:
            raise
        except Exception as error:  # a runtime raises anything
            raise ModelError(f"{self.computed_by} cannot compute '{self.graph.path}': {one_line(error)}") from error

    def features(self, images: Images) -> Features:
        """Refuse, since a file gives answers only.

        Raises:
            ModelError: always.
        """
        raise ModelError(
            f"{self.describe()} gives answers only, no features; take the classifier that it was made from."
        )

"""A classifier as graphs: decoded images to prepared ones, these to answers, or both in one."""

import sys
from collections.abc import Mapping

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.exporting.preparation import PreparationGraph
from vitral.inference.copies import copy_in
from vitral.inference.exported.format import DECODED_AXES, PREPARED_AXES
from vitral.inference.integers import to_integer_layers
from vitral.inference.merging import merge_tokens
from vitral.models.model import Images, Model

EXAMPLE = 2, 41, 53  # images, rows and columns that a graph is traced with; a batch of one would become a constant


def written_network(classifier: Classifier) -> Model:
    """Return the network that a file holds: a copy in float32 on the CPU.

    What the classifier computes in integers is of integers in it, and the tokens that it merges are merged.

    Raises:
        VitralError: The classifier's int8 form is of another network.
    """
    network, predictor = copy_in(classifier.model, torch.float32).cpu(), classifier.predictor
    if predictor.quantization is not None:
        to_integer_layers(network, predictor.quantization)
    if predictor.merge:
        merge_tokens(network, predictor.merge)
    return network


class Answering(nn.Module):
    """Gives what a classifier answers to prepared images, by a copy of its network (`written_network`)."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.network = written_network(classifier)
        self.task = classifier.task
        self.temperature = 1.0 if classifier.calibration is None else classifier.calibration.temperature

    def forward(self, prepared: Images) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch outputs"]]:
        """Return the probabilities and the network's logits."""
        logits = self.network(prepared)
        return self.task.probabilities(logits / self.temperature), logits


class Whole(nn.Module):
    """Does all that a classifier does with decoded images, which are of one size in a batch and of any size otherwise."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.preparation, self.answering = PreparationGraph(classifier.preprocessing), Answering(classifier)

    def forward(
        self, images: UInt8[Tensor, "batch rows columns 3"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch outputs"]]:
        """Return the probabilities and the network's logits."""
        return self.answering(self.preparation(images))


class ClassifierPrograms:
    """The graphs of a classifier, see `Programs`; errors name its network."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.version = str(sys.modules["vitral"].__version__)  # the package itself names this room's `export`
        self.decoded = torch.zeros(*EXAMPLE, 3, dtype=torch.uint8)

    def preparing(self) -> torch.export.ExportedProgram:
        """Return the graph from decoded images to prepared ones."""
        return self._trace(PreparationGraph(self.classifier.preprocessing), self.decoded, DECODED_AXES)

    def answering(self) -> torch.export.ExportedProgram:
        """Return the graph from prepared images to probabilities and logits."""
        preprocessing = self.classifier.preprocessing
        prepared = torch.zeros(EXAMPLE[0], 3, *preprocessing.image_size)
        return self._trace(Answering(self.classifier), prepared, PREPARED_AXES)

    def whole(self) -> torch.export.ExportedProgram:
        """Return both in one."""
        return self._trace(Whole(self.classifier), self.decoded, DECODED_AXES)

    def _trace(self, module: nn.Module, example: Tensor, axes: Mapping[int, str]) -> torch.export.ExportedProgram:
        predictor, model = self.classifier.predictor, self.classifier.model
        name = predictor.describe()
        if reason := model.config.obstacle_to("export"):
            raise ModelError(f"{name} cannot be written as a graph, which computes the same for all images: {reason}.")
        sizes = {axis: torch.export.Dim(axis_name) for axis, axis_name in axes.items()}
        try:
            with torch.no_grad():
                return torch.export.export(module.eval(), (example,), dynamic_shapes=(sizes,))
        except Exception as error:  # the tracer raises anything, and runs code of plugins
            raise ModelError(f"{name} cannot be written as a graph ({one_line(error)}).") from error

"""A classifier as graphs: decoded images to prepared ones, these to answers, or both in one."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.exporting.integers import to_integer_layers
from vitral.exporting.preparation import Preparation
from vitral.inference.copies import copy_in
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.merging import merge_tokens
from vitral.models.model import Images, Model

EXAMPLE = 2, 41, 53  # images, rows and columns that a graph is traced with; a batch of one would become a constant
DECODED: Mapping[int, str] = {0: "batch", 1: "height", 2: "width"}  # the free axes of decoded images
PREPARED_AXES: Mapping[int, str] = {0: "batch"}
Layers = dict[str, str]  # from the name of a layer of the network to that of the value of a file which it gives


def written_network(classifier: Classifier) -> Model:
    """Return the network that a file holds: a copy in float32 on the CPU.

    What the classifier computes in integers is of integers in it, and the tokens that it merges are merged.

    Raises:
        VitralError: the classifier's int8 form is of another network.
    """
    network, predictor = copy_in(classifier.model, torch.float32).cpu(), classifier.predictor
    if isinstance(predictor, EnginePredictor):
        if predictor.quantization is not None:
            to_integer_layers(network, predictor.quantization)
        if predictor.merge:
            merge_tokens(network, predictor.merge)
    return network


class Answering(nn.Module):
    """Gives what a classifier answers to prepared images.

    Args:
        classifier: its network is copied, see `written_network`.
    """

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
        self.preparation, self.answering = Preparation(classifier.preprocessing), Answering(classifier)

    def forward(
        self, images: UInt8[Tensor, "batch rows columns 3"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch outputs"]]:
        """Return the probabilities and the network's logits."""
        return self.answering(self.preparation(images))


def decoded_example() -> UInt8[Tensor, "batch rows columns 3"]:
    """Return images to trace with."""
    return torch.zeros(*EXAMPLE, 3, dtype=torch.uint8)


def prepared_example(classifier: Classifier) -> Images:
    """Return prepared images to trace with."""
    return torch.zeros(EXAMPLE[0], 3, *classifier.preprocessing.image_size)


def trace(
    module: nn.Module, example: Tensor, axes: Mapping[int, str], classifier: Classifier
) -> torch.export.ExportedProgram:
    """Return the graph of what a module does with images.

    Args:
        module: `Preparation`, `Answering` or `Whole`.
        example: images.
        axes: their axes that may be of any length, with the names of these.
        classifier: named in errors.

    Raises:
        ModelError: its network cannot be a graph; the message names it.
    """
    name = classifier.predictor.describe()
    if reason := classifier.model.config.obstacle_to("export"):
        raise ModelError(f"{name} cannot be written as a graph, which computes the same for all images: {reason}.")
    sizes = {axis: torch.export.Dim(axis_name) for axis, axis_name in axes.items()}
    try:
        with torch.no_grad():
            return torch.export.export(module.eval(), (example,), dynamic_shapes=(sizes,))
    except Exception as error:  # the tracer raises anything, and runs code of plugins
        raise ModelError(f"{name} cannot be written as a graph ({one_line(error)}).") from error

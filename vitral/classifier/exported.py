"""What a classifier says of itself in a file for another runtime, and the classifier that such a file is read as."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from vitral.classifier.classifier import Classifier, fingerprint
from vitral.classifier.metadata import (
    CALIBRATION,
    CLASSES,
    PREPROCESSING,
    PROVENANCE,
    Provenance,
    naming_damage,
    read_metadata,
    required_plugins,
)
from vitral.errors import WeightsError
from vitral.events import Listener, Message
from vitral.images.decode import Pixels
from vitral.images.depth import at_depth
from vitral.images.preprocessing import PHOTOS, Preprocessing
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.inference.exported.format import FORMAT, PRECISION, Graph
from vitral.inference.exported.open import open_graph
from vitral.inference.exported.predictor import ExportedPredictor
from vitral.models.families import count_macs, count_parameters, family
from vitral.tasks.registry import described_task
from vitral.weights.named.table import licence_of

VERSION = "1"
LONGEST = 1 << 20  # characters of the metadata, beyond which those of the training are left out
LONGEST_NUMBER = 18  # digits
LARGEST_SIDE = 4096  # pixels of prepared images


@dataclass(frozen=True, kw_only=True)
class InFile(Preprocessing):
    """The preprocessing in an exported file: computed by that, as long as it is not changed here.

    Attributes:
        predictor: the file.
        settings: what the file says that it does.
    """

    predictor: ExportedPredictor = dataclasses.field(repr=False, compare=False)
    settings: Preprocessing = dataclasses.field(repr=False, compare=False)

    def __call__(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return an image as the network's input."""
        if any(getattr(self, name) != value for name, value in vars(self.settings).items()):
            return super().__call__(image)
        return self.predictor.prepare(np.asarray(at_depth(image, self.bits)))


def described(classifier: Classifier) -> dict[str, str]:
    """Return what goes into a file as its metadata: texts by name, of which all but the plain ones are JSON."""
    model, calibration, predictor = classifier.model, classifier.calibration, classifier.predictor
    values: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        CLASSES: list(classifier.class_names),
        "task": classifier.task.name,
        PREPROCESSING: classifier.preprocessing.to_json(),
        "network": predictor.describe(),
        "parameters": count_parameters(model),
        "macs": 0 if predictor.merge else count_macs(model.config),
        PRECISION: "fp32" if predictor.quantization is None else "int8",
        "merge": predictor.merge,
        "fingerprint": fingerprint(classifier),
        "license": licence_of(classifier.provenance.source) or "not known",
        **required_plugins(family(model.config), classifier.task.name),
        PROVENANCE: dataclasses.asdict(classifier.provenance),
    }
    if calibration is not None:
        values |= {CALIBRATION: calibration.to_json(), "temperature": calibration.temperature}
        values |= {} if calibration.threshold is None else {"threshold": calibration.threshold}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, default=str) for name, value in values.items()
    }
    if sum(map(len, texts.values())) > LONGEST:
        known = dataclasses.replace(classifier.provenance, training={})
        texts[PROVENANCE] = json.dumps(dataclasses.asdict(known), default=str)
    return texts


def read(
    path: Path, *, engine: EngineChoice | None = None, precision: PrecisionChoice | None = None, listener: Listener
) -> Classifier:
    """Return the classifier in an exported file, which its own runtime computes, preprocessing included.

    A file that another program wrote is taken if its one input is prepared images of a fixed size, float32 in the order batch,
    channels, height, width, and its first output a row of values for each. The listener hears what the
    file does not say and is guessed.

    Args:
        path: the file.
        engine: its runtime, "auto" or None.
        precision: Its precision; None and "auto" for fp32, or int8 where the file's layers are of integers.
        listener: receives what was guessed.

    Raises:
        WeightsError: it cannot be read, or is no classifier of images; the message says what is missing.
        ModelError: its runtime is not installed, or another engine or precision is asked for.
        PluginError: it needs a plugin that was not loaded.
    """
    graph = open_graph(path, engine, precision)
    if not graph.is_ours:
        return _foreign(graph, listener)
    metadata = read_metadata(graph)
    with naming_damage(graph):
        preprocessing = Preprocessing.from_json(json.loads(graph.metadata[PREPROCESSING]))
        task = described_task(graph.metadata)
        predictor = ExportedPredictor(
            graph,
            name=graph.metadata["network"],
            image_size=preprocessing.image_size,
            num_classes=task.outputs(len(metadata.class_names)),
            num_parameters=_count(graph.metadata["parameters"]),
            macs=_count(graph.metadata["macs"]),
        )
        return Classifier(
            predictor,
            InFile(**vars(preprocessing), predictor=predictor, settings=preprocessing),
            metadata.class_names,
            provenance=metadata.provenance,
            calibration=metadata.calibration,
            task=task,
        )


def _count(text: str) -> int:
    """Return a number of weights or operations, which is a whole number that some network could have."""
    if not (text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER):
        raise ValueError(f"{text[:20]!r} is no count")
    return int(text)


def _foreign(graph: Graph, listener: Listener) -> Classifier:
    """Return the classifier in a file of another program."""
    size, count = _image_size(graph), _outputs(graph)
    preprocessing = PHOTOS.with_size(size)
    listener(
        Message(
            f"'{graph.path}' was not written by Vitral and does not say what it was trained with: images are squashed to "
            f"{size[0]}x{size[1]} pixels and scaled to -1 to 1, classes have numbers, and its output is taken for logits.",
            warning=True,
        )
    )
    predictor = ExportedPredictor(graph, name="a network", image_size=size, num_classes=count)
    return Classifier(predictor, preprocessing, provenance=Provenance(source=f"{graph.path}"))


def _image_size(graph: Graph) -> tuple[int, int]:
    """Return the height and width of the images that a file of another program takes."""
    if len(graph.inputs) == 1 and graph.inputs[0].dtype == "float32":
        match graph.inputs[0].shape:
            case (_, 3, int(height), int(width)) if min(height, width) > 0 and max(height, width) <= LARGEST_SIDE:
                return height, width
    shown = ", ".join(f"{port.name}: {port.dtype} {list(port.shape)}" for port in graph.inputs)
    raise WeightsError(
        f"'{graph.path}' takes something else than images ({shown}); one input is needed, float32 (batch, 3, height, width) "
        "of a fixed height and width."
    )


def _outputs(graph: Graph) -> int:
    first = graph.outputs[0]
    if first.dtype != "float32" or len(first.shape) != 2 or not first.shape[1]:
        raise WeightsError(
            f"The first output of '{graph.path}' is no row of values for each image ({first.dtype} {list(first.shape)}); "
            "float32 (batch, classes) is needed."
        )
    return first.shape[1]

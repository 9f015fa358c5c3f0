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
    naming_damage,
    read_metadata,
    required_plugins,
)
from vitral.events import Listener
from vitral.images.decode import Pixels
from vitral.images.depth import at_depth
from vitral.images.preprocessing import Preprocessing
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.inference.exported.format import FORMAT, PRECISION
from vitral.inference.exported.open import open_graph
from vitral.inference.exported.predictor import ExportedPredictor
from vitral.models.families import count_macs, count_parameters, family
from vitral.tasks.registry import described_task
from vitral.weights.named.table import licence_of

VERSION = "1"
TASK_FACTS = "task_facts"  # what a classifier's description says of its task beside the name
LONGEST = 1 << 20  # characters of the metadata, beyond which those of the training are left out
LONGEST_NUMBER = 18  # digits


@dataclass(frozen=True, kw_only=True)
class InFile(Preprocessing):
    """The preprocessing in an exported file: computed by that, as long as it is not changed here."""

    predictor: ExportedPredictor = dataclasses.field(repr=False, compare=False)
    settings: Preprocessing = dataclasses.field(repr=False, compare=False)

    def __call__(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return an image as the network's input."""
        if any(getattr(self, name) != value for name, value in vars(self.settings).items()):
            return super().__call__(image)
        return self.predictor.prepare(np.asarray(at_depth(image, self.bits)))

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a preprocessing as JSON values."""
        return {name: getattr(self, name) for name in vars(self.settings)}


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
    if facts := classifier.task.described():
        values[TASK_FACTS] = facts
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

    A file that another program wrote is taken if its one input is prepared images, float32 with the channels before or after
    height and width, and its first output a row of values for each. The listener hears what it says, and what is guessed.

    Without a precision, or with "auto", it computes in fp32, or in int8 where the file's layers are of integers.

    Raises:
        WeightsError: it cannot be read, or is no classifier of images; the message says what is missing.
        ModelError: its runtime is not installed, or another engine or precision is asked for.
        PluginError: it needs a plugin that was not loaded.
    """
    graph = open_graph(path, engine, precision)
    if not graph.is_ours:
        from vitral.classifier.foreign import read_foreign

        return read_foreign(graph, listener)
    metadata = read_metadata(graph)
    with naming_damage(graph):
        preprocessing = Preprocessing.from_json(json.loads(graph.metadata[PREPROCESSING]))
        task = described_task({**graph.metadata, **json.loads(graph.metadata.get(TASK_FACTS, "{}"))})
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

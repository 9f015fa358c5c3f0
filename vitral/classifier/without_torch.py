"""Predictions of an exported file by its own runtime: without torch, whose import takes longer than the answers."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from vitral.classifier.metadata import FileMetadata, read_metadata
from vitral.classifier.prediction import Prediction
from vitral.data.image_files import LazyImage, plain_images, prepare
from vitral.errors import ModelError, WeightsError, one_line
from vitral.events import Listener, Progress, ignore
from vitral.images.decode import Pixels
from vitral.images.depth import at_depth
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.inference.exported.format import Graph
from vitral.inference.exported.open import exported_in, is_exported, open_graph, own_files
from vitral.inference.ranking import check_finite, rank
from vitral.paths import is_folder


class ExportedFile:
    """A file of Vitral's, which takes decoded images and gives probabilities.

    Raises:
        WeightsError: its metadata are damaged.
        PluginError: it needs a plugin that was not loaded.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.metadata: FileMetadata = read_metadata(graph)

    def predict(
        self, images: Sequence[LazyImage], *, top: int, skip_bad_images: bool, listener: Listener
    ) -> list[Prediction]:
        """Return a prediction for each image, in order; see `Classifier.predict`.

        Raises:
            ImageError: an image cannot be read; the message names it.
            ModelError: the runtime cannot compute the file, or the network gives no number.
        """
        calibration = self.metadata.calibration
        threshold = None if calibration is None else calibration.threshold
        predictions = []
        deep = partial(at_depth, bits=self.metadata.bits)
        for name, pixels in prepare(images, deep, skip_bad_images=skip_bad_images, listener=listener):
            probabilities = self._probabilities(pixels)
            check_finite(probabilities[None], [name])
            named = tuple((self.metadata.class_names[index], value) for index, value in rank(probabilities, top))
            predictions.append(Prediction.ranked(name, named, threshold))
            listener(Progress("predict", len(predictions), len(images)))
        return predictions

    def _probabilities(self, pixels: Pixels) -> Float32[np.ndarray, " classes"]:
        try:
            found = self.graph.whole(np.asarray(pixels)[None])
        except Exception as error:  # a runtime raises anything
            raise ModelError(f"{self.graph.engine} cannot compute '{self.graph.path}': {one_line(error)}") from error
        classes = len(self.metadata.class_names)
        if found.dtype != np.float32 or found.shape != (1, classes):
            raise WeightsError(
                f"'{self.graph.path}' gives {found.dtype} {list(found.shape)} where float32 [1, {classes}] "
                "is needed; export the classifier again."
            )
        return found[0]


def exported_file(
    name: str, engine: EngineChoice | None = None, precision: PrecisionChoice | None = None
) -> ExportedFile | None:
    """Return the file that a name stands for; None where it stands for anything but a file of Vitral's about whole images.

    It names a file, or the folder that `export` has written; engine and precision are those of `open_graph`.

    Raises:
        WeightsError: it cannot be read, or is damaged.
        ModelError: its runtime is not installed, or another engine or precision is asked for.
        PluginError: it needs a plugin that was not loaded.
    """
    path = Path(name)
    file = exported_in(path) if is_folder(path) and set(os.listdir(path)) <= own_files() else path
    if file is None or not is_exported(file):
        return None
    graph = open_graph(file, engine, precision)
    return ExportedFile(graph) if graph.is_ours and not graph.regions else None


def all_plain(names: Iterable[str], listener: Listener = ignore) -> dict[str, list[LazyImage]] | None:
    """Return the images that each name stands for; None where one is neither an image file nor a folder of such."""
    images: dict[str, list[LazyImage]] = {}
    for name in names:
        if (found := plain_images(name, listener)) is None:
            return None
        images[name] = found
    return images

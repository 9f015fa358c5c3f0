"""The images, of those trained on or of others, that the network sees as most like an image: the nearest by its features."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.classifier.classifier import Classifier
from vitral.data.bad_images import left_out
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.data.subset import spread_over
from vitral.errors import DataError
from vitral.evaluation.baselines import extract_features
from vitral.events import Listener, Message, show
from vitral.images.decode import Pixels
from vitral.images.drawing import thumbnail
from vitral.tasks.task import classes_of

SHOWN = 5
MOST = 5000  # images to compute features of: minutes on two cores


@dataclass(frozen=True, eq=False)
class Neighbour:
    """An image of a dataset.

    Attributes:
        label: Its classes, as the data name them.
        similarity: Cosine between its features and the image's, at most 1.
    """

    name: str
    label: str
    similarity: float
    image: Pixels

    def to_json(self) -> dict[str, Any]:
        """Return everything but the image as JSON values."""
        return {"name": self.name, "label": self.label, "similarity": self.similarity}


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Images with the features that a classifier's network gives them.

    Attributes:
        features: One row an image, of length 1.
        described: "training images" if the classifier was trained on them, else "images of" the dataset.
    """

    source: Source
    class_names: tuple[str, ...]
    features: Float[Tensor, "images features"]
    described: str

    @classmethod
    def of(cls, classifier: Classifier, data: DataSet | str | Path, *, listener: Listener = show) -> Self:
        """Compute the features of a dataset's training images, each once; those that cannot be read are left out.

        Of more than `MOST` images so many are taken, evenly spread.

        Raises:
            DataError: No such data, or data without end.
            ImageError: An image of a dataset already open, or of one too large to be checked whole, cannot be read.
        """
        if isinstance(data, DataSet):
            opened = data
        else:
            opened = open_data(
                data, drawn_as=(classifier.provenance.data_fingerprint,), skip_bad_images=True, listener=listener
            )
            for note in left_out(opened.bad_images):
                listener(Message(note, warning=True))
        source = opened.splits["train"]
        if source.endless:
            raise DataError(f"'{opened.name}' is endless, so that none of its images is the nearest; name a folder.")
        learned = bool(opened.fingerprint) and classifier.provenance.data_fingerprint == opened.fingerprint
        described = "training photos" if learned else f"photos of {opened.name}"
        if len(source) > MOST:
            described = f"{MOST:,} of the {len(source):,} {described}"
            listener(Message(f"The nearest are looked for among {described}, evenly spread."))
            source = spread_over(source, MOST)
        features, _ = extract_features(classifier, source, listener=listener)
        return cls(source, opened.class_names, functional.normalize(features, dim=1), described)

    def nearest(self, features: Float[Tensor, " features"], pixels: Pixels) -> tuple[Neighbour, ...]:
        """Return five images with features in the most similar direction, the nearest first; of equals the earlier.

        An image with the very same pixels is left out.
        """
        similarities = self.features @ functional.normalize(features, dim=0)
        neighbours: list[Neighbour] = []
        for index in torch.argsort(similarities, descending=True, stable=True).tolist():
            if len(neighbours) == SHOWN:
                break
            other = self.source.image(index)
            if not np.array_equal(other, pixels):
                label = ", ".join(self.class_names[number] for number in classes_of(self.source.label(index)))
                similarity = float(similarities[index])
                neighbours.append(Neighbour(self.source.describe(index), label, similarity, thumbnail(other)))
        return tuple(neighbours)

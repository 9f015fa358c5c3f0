"""What a network has learned of patches, of positions and of how far to look: the paper's figure 7, for any classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.inputs import list_images
from vitral.classifier.load import as_classifier
from vitral.data.image_files import LazyImage
from vitral.errors import ModelError
from vitral.events import Listener, Progress
from vitral.explanation.distance import IMAGES_AT_ONCE, AttentionDistance, attention_distance
from vitral.explanation.embeddings import patch_filters, position_kind, position_similarity, position_tables
from vitral.models.t2t import T2TViT
from vitral.models.vit import ViT
from vitral.progress import show

NUM_IMAGES = 128  # that the paper averages over


@dataclass(frozen=True, eq=False)
class NetworkAnalysis:
    """What a network has learned; each part None where it has no such thing.

    Attributes:
        network: its name.
        patch_filters: principal components of the patch embedding, values 0 to 1.
        position_similarity: cosines between position embeddings.
        position_kind: "learned", or "fixed" sines and cosines; empty where there is no position embedding.
        position_tables: how many different tables of position embeddings there are; of one a block the first block's is shown.
        attention_distance: the heads' mean attention distances.
        missing: what there is none of and why, one sentence each.
        warning: why the network's answers are doubtful; empty if they are not.
    """

    network: str
    patch_filters: Float32[np.ndarray, "filters patch_height patch_width 3"] | None
    position_similarity: Float32[np.ndarray, "rows columns rows columns"] | None
    attention_distance: AttentionDistance | None
    missing: tuple[str, ...] = ()
    warning: str = ""
    position_kind: str = ""
    position_tables: int = 1

    def arrays(self) -> dict[str, Float32[np.ndarray, "..."]]:
        """Return the parts that there are as arrays by name; distances as (layers, heads), in pixels."""
        distance = self.attention_distance
        parts = {
            "patch_filters": self.patch_filters,
            "position_similarity": self.position_similarity,
            "attention_distance": None if distance is None else np.array(distance.pixels, dtype=np.float32),
        }
        return {name: part for name, part in parts.items() if part is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; of the arrays their shapes, but for the distances, which are few."""
        distance = self.attention_distance
        return {
            "network": self.network,
            "shapes": {name: list(array.shape) for name, array in self.arrays().items()},
            "attention_distance": None if distance is None else [list(layer) for layer in distance.pixels],
            "num_images": 0 if distance is None else distance.num_images,
            **({"position_kind": self.position_kind} if self.position_kind else {}),
            **({"position_tables": self.position_tables} if self.position_tables > 1 else {}),
            "missing": list(self.missing),
            "warning": self.warning,
        }


def analyze(
    classifier: Classifier | str | Path, data: str | Path | None = None, *, listener: Listener = show
) -> NetworkAnalysis:
    """Return what a classifier's network has learned of patches, positions and distances.

    Args:
        classifier: a network with its preprocessing: itself, or whatever `load` takes.
        data: images that the attention distances are averaged over, at most 128 of them, evenly spaced: whatever `predict`
            takes; None leaves the distances out.
        listener: receives progress; it is written to the screen if left out.

    Raises:
        ImageError: there is no image, or one cannot be read.
        ModelError: the network is neither a Vision Transformer nor T2T-ViT.
    """
    classifier = as_classifier(classifier, tuned=False)
    name = classifier.predictor.describe()
    model = classifier.model
    if not isinstance(model, ViT | T2TViT):
        raise ModelError(
            f"{name} has neither patches nor position embeddings nor attention between patches to analyse; only Vision "
            "Transformers, hybrids and T2T-ViT have."
        )
    filters = patch_filters(model) if isinstance(model, ViT) else None
    similarity = position_similarity(model)
    distance = None if data is None else _distance(classifier, list_images(data, listener), listener)
    reasons = (
        (filters, "The patches are cut from a feature map and have no colours, so that their filters cannot be shown."),
        (similarity, "There is no position embedding to compare."),
        (distance, f"How far the heads look is measured on images: name some by {argument('data')}."),
    )
    missing = tuple(reason for part, reason in reasons if part is None)
    kind = "" if similarity is None else position_kind(model)
    tables = position_tables(model)
    return NetworkAnalysis(name, filters, similarity, distance, missing, classifier.doubt(), kind, tables)


def _distance(classifier: Classifier, images: Sequence[LazyImage], listener: Listener) -> AttentionDistance:
    indices = np.unique(np.linspace(0, len(images) - 1, min(NUM_IMAGES, len(images))).round().astype(int))
    prepared = []
    for index in indices.tolist():
        prepared.append(classifier.preprocessing(images[index].read()))
        if len(prepared) % IMAGES_AT_ONCE == 0:
            listener(Progress("read images", len(prepared), len(indices)))
    return attention_distance(classifier.predictor, torch.stack(prepared))

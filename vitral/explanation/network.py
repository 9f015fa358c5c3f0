"""What a network has learned of patches, of positions and of how far to look: the paper's figure 7, for any classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor
from torch.nn import functional

from vitral.advice import argument, function
from vitral.classifier.classifier import Classifier
from vitral.classifier.inputs import list_images
from vitral.classifier.load import as_classifier
from vitral.data.image_files import LazyImage
from vitral.errors import ModelError
from vitral.events import Listener, Progress, show
from vitral.inference.predictor import Predictor
from vitral.models.families import describe
from vitral.models.model import Images, Model, PatchGrid
from vitral.tasks.unlabelled import check_classifies

NUM_IMAGES = 128  # that the paper averages over
NUM_FILTERS = 28  # as in the paper's figure
IMAGES_AT_ONCE = 8  # the attention of a whole batch would take gigabytes in a large network


@dataclass(frozen=True)
class AttentionDistance:
    """Mean attention distance of every head.

    Attributes:
        pixels: One row per layer, first layer first, one value a head, in pixels of the network's input.
        image_size: Height and width of the network's input, pixels.
    """

    pixels: tuple[tuple[float, ...], ...]
    num_images: int
    image_size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class NetworkAnalysis:
    """What a network has learned; each part None where it has no such thing.

    Attributes:
        patch_filters: Principal components of the patch embedding, values 0 to 1.
        position_kind: "learned", or "fixed" sines and cosines; empty where there is no position embedding.
        position_tables: How many different tables of position embeddings there are; of one a block the first block's is shown.
        missing: What there is none of and why, one sentence each.
        warning: Why the network's answers are doubtful; empty if they are not.
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
        classifier: A network with its preprocessing: itself, or whatever `load` takes.
        data: Images that the attention distances are averaged over, at most 128 of them, evenly spaced: whatever `predict`
            takes; None leaves the distances out.
        listener: What receives progress; the screen if left out.

    Raises:
        ImageError: There is no image, or one cannot be read.
        ModelError: The network is neither a Vision Transformer nor T2T-ViT.
    """
    classifier = as_classifier(classifier, tuned=False)
    check_classifies(classifier.task, function("explain"))
    name = classifier.predictor.describe()
    model = classifier.model
    filters, similarity, positions = patch_filters(model), position_similarity(model), model.positions()
    distance = None if data is None else _distance(classifier, list_images(data, listener), listener)
    reasons = (
        (filters, "The patches are cut from a feature map and have no colours, so that their filters cannot be shown."),
        (similarity, "There is no position embedding to compare."),
        (distance, f"How far the heads look is measured on images: name some by {argument('data')}."),
    )
    missing = tuple(reason for part, reason in reasons if part is None)
    kind, tables = ("", 1) if positions is None else (positions.kind, positions.tables)
    return NetworkAnalysis(name, filters, similarity, distance, missing, classifier.doubt(), kind, tables)


def _distance(classifier: Classifier, images: Sequence[LazyImage], listener: Listener) -> AttentionDistance:
    indices = np.unique(np.linspace(0, len(images) - 1, min(NUM_IMAGES, len(images))).round().astype(int))
    prepared = []
    for index in indices.tolist():
        prepared.append(classifier.preprocessing(images[index].read()))
        if len(prepared) % IMAGES_AT_ONCE == 0:
            listener(Progress("read images", len(prepared), len(indices)))
    return attention_distance(classifier.predictor, torch.stack(prepared))


@torch.no_grad()
def patch_filters(model: Model) -> Float32[np.ndarray, "filters patch_height patch_width 3"] | None:
    """Return the first principal components of the RGB patch embedding as small images (figure 7, left).

    None for a hybrid or T2T-ViT, which cut patches from a feature map; these have no colours.

    The components are those of the embedding's filters, one filter a channel, their mean taken out; the paper does not
    say how it scaled them, so each is stretched on its own to 0 to 1. A component's sign means nothing; it is set
    such that its largest weight is positive. There are no more components than filters, nor than values in a patch.

    Raises:
        ModelError: The network has no patches.
    """
    _check_patches(model)
    weight = model.patch_filters()
    if weight is None:
        return None
    weight = weight.double().cpu()
    filters = weight.flatten(1)
    components = torch.linalg.svd(filters - filters.mean(dim=0), full_matrices=False).Vh[:NUM_FILTERS]
    largest = components.gather(1, components.abs().argmax(dim=1, keepdim=True))
    components = components * largest.sign()
    low, high = components.amin(dim=1, keepdim=True), components.amax(dim=1, keepdim=True)
    images = ((components - low) / (high - low).clamp_min(1e-12)).unflatten(1, weight.shape[1:])
    return images.permute(0, 2, 3, 1).float().numpy()


@torch.no_grad()
def position_similarity(model: Model) -> Float32[np.ndarray, "rows columns rows columns"] | None:
    """Return the cosine between the position embedding of every patch and every other's (figure 7, centre).

    The class token's embedding is left out; of one table a block the first block's is taken. None where the network has no
    position embedding.

    Raises:
        ModelError: The network has no patches.
    """
    grid, found = _check_patches(model), model.positions()
    if found is None:
        return None
    positions = functional.normalize(found.table.double().cpu(), dim=-1)
    return (positions @ positions.T).reshape(*grid.sides, *grid.sides).float().numpy()


def _check_patches(model: Model) -> PatchGrid:
    grid: PatchGrid | None = model.config.patch_grid
    if grid is None:
        raise ModelError(
            f"{describe(model.config)} has neither patches nor position embeddings nor attention between patches to analyse; "
            "only Vision Transformers, hybrids and T2T-ViT have."
        )
    return grid


def attention_distance(predictor: Predictor, images: Images) -> AttentionDistance:
    """Measure how far the heads of a network look, averaged over prepared images; the paper took 128.

    Raises:
        ModelError: The network's attention makes no chain from the answer to the patches.
    """
    totals: list[Float64[Tensor, "layers heads"]] = []
    for chunk in torch.split(images, IMAGES_AT_ONCE):
        attended = predictor.attention(chunk)
        distances = patch_distances(attended.grid, attended.stride)
        means = mean_distance(attended.attentions, distances, num_prefix_tokens=attended.num_prefix_tokens)
        totals.append(means * len(chunk))
    pixels = (torch.stack(totals).sum(dim=0) / len(images)).tolist()
    return AttentionDistance(tuple(tuple(layer) for layer in pixels), len(images), predictor.image_size)


def patch_distances(grid: tuple[int, int], stride: tuple[int, int]) -> Float64[Tensor, "patches patches"]:
    """Return the distances between patch centres in pixels, patches in row-major order; the stride is in pixels, too."""
    rows = torch.arange(grid[0], dtype=torch.float64) * stride[0]
    columns = torch.arange(grid[1], dtype=torch.float64) * stride[1]
    centres = torch.cartesian_prod(rows, columns)
    return torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")


def mean_distance(
    attentions: Sequence[Float[Tensor, "batch heads tokens tokens"]],
    distances: Float64[Tensor, "patches patches"],
    *,
    num_prefix_tokens: int,
) -> Float64[Tensor, "layers heads"]:
    """Return the distance that each head attends over: per query patch the sum of weight times distance, then the mean.

    The class token's row and column are left out and the weights left as they are, not scaled up to sum to 1 again, as
    in the paper.
    """
    first = num_prefix_tokens
    return torch.stack(
        [(layer[:, :, first:, first:].double() * distances).sum(dim=-1).mean(dim=(0, 2)) for layer in attentions]
    )

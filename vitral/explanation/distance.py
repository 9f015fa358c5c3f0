"""How far the heads look: mean attention distance by layer (paper figure 7, right, and figure 11)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vitral.inference.predictor import Predictor
from vitral.models.model import Images

IMAGES_AT_ONCE = 8  # the attention of a whole batch would take gigabytes in a large network


@dataclass(frozen=True)
class AttentionDistance:
    """Mean attention distance of every head.

    Attributes:
        pixels: One row per layer, first layer first, one value a head, in pixels of the network's input.
        num_images: Images averaged over.
        image_size: Height and width of the network's input, pixels.
    """

    pixels: tuple[tuple[float, ...], ...]
    num_images: int
    image_size: tuple[int, int]


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
    """Return the distances between patch centres in pixels, patches in row-major order.

    Args:
        grid: Rows and columns of patches.
        stride: Step between patches, (height, width) in pixels.
    """
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

    Args:
        attentions: Attention probabilities of each layer.
        distances: Distances between patch centres, pixels.
        num_prefix_tokens: Tokens before the patches.
    """
    first = num_prefix_tokens
    return torch.stack(
        [(layer[:, :, first:, first:].double() * distances).sum(dim=-1).mean(dim=(0, 2)) for layer in attentions]
    )

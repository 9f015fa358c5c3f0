"""What the network holds of patches and positions: the panels of the paper's figure 7, left and centre."""

import numpy as np
import torch
from jaxtyping import Float32
from torch.nn import functional

from vitral.inference.recording import as_transformer
from vitral.models.model import Model
from vitral.models.t2t import T2TViT
from vitral.models.vit import ViT

NUM_FILTERS = 28  # as in the paper's figure


@torch.no_grad()
def patch_filters(
    model: Model, *, num_filters: int = NUM_FILTERS
) -> Float32[np.ndarray, "filters patch_height patch_width 3"] | None:
    """Return the first principal components of the RGB patch embedding as small images (figure 7, left).

    None for a hybrid, whose patches are cut from a feature map and have no colours.

    The components are those of the embedding's filters, one filter a channel, their mean taken out; the paper does not
    say how it scaled them, so each is stretched on its own to 0 to 1. A component's sign means nothing; it is set
    such that its largest weight is positive.

    Args:
        model: a Vision Transformer.
        num_filters: how many components at most; there are no more than filters, nor than values in a patch.

    Raises:
        ModelError: the network is no Vision Transformer.
    """
    transformer = as_transformer(model)
    if transformer.stem is not None:
        return None
    weight = transformer.patch_embedding.weight.detach().double().cpu()  # (dim, 3, height, width)
    filters = weight.flatten(1)
    components = torch.linalg.svd(filters - filters.mean(dim=0), full_matrices=False).Vh[:num_filters]
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
        ModelError: the network is neither a Vision Transformer nor T2T-ViT.
    """
    if isinstance(model, T2TViT):
        table, grid = model.position[:, 1:], model.config.grid
    else:
        transformer = as_transformer(model)
        found, grid = transformer.position.patch_embedding(), transformer.config.grid
        if found is None:
            return None
        table = found
    positions = functional.normalize(table[0].double().cpu(), dim=-1)
    return (positions @ positions.T).reshape(*grid, *grid).float().numpy()


def position_kind(model: ViT | T2TViT) -> str:
    """Return whether a network's position embedding is "learned" or "fixed": T2T-ViT's, and a sin-cos one."""
    return "learned" if isinstance(model, ViT) and model.config.position.startswith("learned") else "fixed"


def position_tables(model: ViT | T2TViT) -> int:
    """Return how many different tables of position embeddings a network has: one, or of learned ones one a block."""
    several = isinstance(model, ViT) and model.config.position_at == "layers" and position_kind(model) == "learned"
    return model.config.depth if several else 1

"""What the network holds of patches and positions: the panels of the paper's figure 7, left and centre."""

import numpy as np
import torch
from jaxtyping import Float32
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.model import Model, PatchGrid
from vitral.models.naming import describe

NUM_FILTERS = 28  # as in the paper's figure


@torch.no_grad()
def patch_filters(
    model: Model, *, num_filters: int = NUM_FILTERS
) -> Float32[np.ndarray, "filters patch_height patch_width 3"] | None:
    """Return the first principal components of the RGB patch embedding as small images (figure 7, left).

    None for a hybrid or T2T-ViT, which cut patches from a feature map; these have no colours.

    The components are those of the embedding's filters, one filter a channel, their mean taken out; the paper does not
    say how it scaled them, so each is stretched on its own to 0 to 1. A component's sign means nothing; it is set
    such that its largest weight is positive.

    Args:
        model: A network with patches.
        num_filters: How many components at most; there are no more than filters, nor than values in a patch.

    Raises:
        ModelError: The network has no patches.
    """
    _check_patches(model)
    weight = model.patch_filters()
    if weight is None:
        return None
    weight = weight.double().cpu()
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
            f"{describe(model.config)} has no patches; only Vision Transformers, hybrids and T2T-ViT have."
        )
    return grid

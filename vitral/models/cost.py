"""What a network costs: parameters and multiply-accumulates."""

import math

from torch import nn

from vitral.models.vit import ViTConfig


def count_parameters(model: nn.Module) -> int:
    """Return the number of learned values; works on the `meta` device too."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_macs(config: ViTConfig) -> int:
    """Return the multiply-accumulates of one image's forward pass.

    Counted are the patch embedding, every dense layer, the two products of attention, and the head; not norms,
    softmax and GELU, as is the field's convention. The last block counts in full, though pooling by class token
    needs less of it.
    """
    patches = math.prod(config.grid)
    tokens = patches + config.num_prefix_tokens
    dim = config.dim
    embedding = patches * 3 * math.prod(config.patch_size) * dim
    block = 4 * tokens * dim**2 + 2 * tokens * dim * config.mlp_dim + 2 * tokens**2 * dim
    features = config.representation_size or dim
    head = features * config.num_classes + (dim * features if config.representation_size else 0)
    pooling = 2 * patches * dim**2 + 2 * dim**2 + 2 * dim * config.mlp_dim + 2 * patches * dim
    return embedding + config.depth * block + head + (pooling if config.pooling == "map" else 0)

"""What explanations need of a network, in torch: its attention, of all layers or one, or its last maps; and their gradients."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.advice import argument
from vitral.errors import ModelError
from vitral.inference.predictor import Attended, ClassAttention, ClassMaps, LayerAttention
from vitral.models.families import describe
from vitral.models.layers import Maps
from vitral.models.model import Images, Logits, Model, PatchGrid
from vitral.models.record import record


def attend(model: Model, images: Images) -> Attended:
    """Run prepared images through a network and keep its attention.

    Of T2T-ViT that of the backbone; its token layers have mixed the tokens from the image before.

    Raises:
        ModelError: The attention of such a network makes no chain from the answer to the patches.
    """
    grid = _chained(model)
    with record(model, "blocks.*.attention") as attentions, record(model, "norm") as norm:
        logits = model(images)
        layers = tuple(attentions[f"blocks.{index}.attention"] for index in range(len(model.blocks())))
        return _attended(model, grid, logits, layers, norm["norm"])


def attend_to_class(model: Model, images: Images, target: int | None) -> ClassAttention:
    """Run prepared images through a network, with gradients, and keep its attention and how a class depends on it.

    Raises:
        ModelError: The attention of such a network makes no chain from the answer to the patches.
    """
    grid = _chained(model)
    with _unfused(model) as layers, record(model, "norm") as norm:
        logits = model(images.clone().requires_grad_())  # a graph, even if every weight is frozen
        gradients = torch.autograd.grad(_explained(logits, target), layers)
    values = (tuple(layer.detach() for layer in layers), norm["norm"].detach())
    attended = _attended(model, grid, logits.detach(), *values)
    return ClassAttention(attended, tuple(gradient.float().cpu() for gradient in gradients))


def _explained(logits: Logits, target: int | None) -> Float[Tensor, ""]:
    """Return the logit of a class, or each image's largest, summed over the images, which do not touch each other."""
    return (logits.amax(dim=1) if target is None else logits[:, target]).sum()


def heads_on_grids(model: Model) -> tuple[int, ...]:
    """Return the heads of each layer of attention, first layer first; none where the attention of one lies on no grid."""
    with_attention = [(index, block) for index, block in enumerate(model.blocks()) if hasattr(block, "attention")]
    chained = not model.config.obstacle_to("rollout")
    if not (chained or all(model.attention_grids(index, model.config.image_size) for index, _ in with_attention)):
        return ()
    return tuple(block.attention.num_heads for _, block in with_attention)  # type: ignore[union-attr, misc]


def attend_in_layer(model: Model, images: Images, layer: int | None) -> LayerAttention:
    """Run prepared images through a network and keep where one layer looks.

    Raises:
        ModelError: The network has no attention, or not so many layers of it.
    """
    blocks = [index for index, block in enumerate(model.blocks()) if hasattr(block, "attention")]
    if not blocks:
        raise ModelError(f"{describe(model.config)} has no attention to show.")
    number = len(blocks) if layer is None else layer
    if not 1 <= number <= len(blocks):
        raise ModelError(
            f"{describe(model.config)} has {len(blocks)} layers of attention, counted from 1; there is no layer {layer}."
        )
    if not model.config.obstacle_to("rollout"):
        attended = attend(model, images)
        rows = torch.einsum("bq,bhqk->bhk", attended.pooling, attended.attentions[number - 1])
        maps = rows[:, :, attended.num_prefix_tokens :].reshape(*rows.shape[:2], *attended.grid)
        return LayerAttention(attended.logits, maps, number, len(blocks))
    logits, maps = _layer_by_grid(model, images, blocks[number - 1])
    return LayerAttention(logits.float().cpu(), maps.float().cpu(), number, len(blocks))


def _layer_by_grid(
    model: Model, images: Images, block: int
) -> tuple[Logits, Float[Tensor, "batch heads rows columns"]]:
    """Return where a layer of a network that shrinks its map looks: its class token, or the mean of its queries."""
    name = f"blocks.{block}.attention"
    with record(model, name) as attention:
        logits = model(images)
    grids = model.attention_grids(block, (images.shape[2], images.shape[3]))
    if grids is None:
        raise ModelError(f"{describe(model.config)} has attention that lies on no grid, so that it cannot be shown.")
    weights, (rows, columns) = attention[name], grids[1]
    prefix = weights.shape[-1] - rows * columns
    seen = weights[:, :, 0] if prefix else weights.mean(dim=2)
    return logits, seen[:, :, prefix:].reshape(*seen.shape[:2], rows, columns)


def _chained(model: Model) -> PatchGrid:
    """Return where the tokens lie through which attention can be followed."""
    grid: PatchGrid | None = model.config.patch_grid
    if (reason := model.config.obstacle_to("rollout")) or grid is None:
        raise ModelError(
            f"{describe(model.config)} cannot be explained by attention rollout or relevance: {reason}; "
            f"{argument('method', 'grad-cam')} explains it."
        )
    return grid


@contextlib.contextmanager
def _unfused(model: Model) -> Iterator[list[Tensor]]:
    """Let the blocks' attention compute by plain products, and keep its probabilities, first layer first."""
    layers: list[Tensor] = []

    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> Tensor:  # noqa: ANN401
        mixed, probabilities = module.unfused(  # type: ignore[operator]
            inputs[0], num_queries=named.get("num_queries"), rotation=named.get("rotation")
        )
        layers.append(probabilities)
        return mixed

    handles = [
        block.attention.register_forward_hook(hook, with_kwargs=True)  # type: ignore[union-attr]
        for block in model.blocks()
    ]
    try:
        yield layers
    finally:
        for handle in handles:
            handle.remove()


def _attended(
    model: Model,
    grid: PatchGrid,
    logits: Logits,
    layers: tuple[Tensor, ...],
    tokens: Float[Tensor, "batch outputs dim"],
) -> Attended:
    with torch.no_grad():
        shares = model.token_shares(tokens, layers[0].shape[-1])
    return Attended(
        logits=logits.float().cpu(),
        attentions=tuple(layer.float().cpu() for layer in layers),
        pooling=shares.float().cpu(),
        num_prefix_tokens=grid.prefix,
        grid=grid.sides,
        stride=grid.stride,
    )


def last_maps(model: Model, images: Images, target: int | None) -> ClassMaps:
    """Run prepared images through a network, with gradients, and keep the last feature maps.

    The maps are what the last block gives, or of a hybrid what its convolutions hand to the transformer. Of others that
    answer from tokens (Vision Transformers, T2T-ViT, CvT) they are the tokens as they enter the attention of the last block,
    after its first norm: behind it, those that the answer is not read from no longer matter.

    Raises:
        ModelError: The network has no feature map.
    """
    name = model.maps_at
    with record(model, name) as recorded:
        logits = model(images.clone().requires_grad_())  # a graph, even if every weight is frozen
    values = recorded[name]
    maps = _as_maps(model, values.detach(), images)
    gradient = torch.autograd.grad(_explained(logits, target), values)[0]
    gradients = _as_maps(model, gradient, images)
    return ClassMaps(logits.detach().float().cpu(), maps.float().cpu(), gradients.float().cpu())


def _as_maps(model: Model, values: Tensor, images: Images) -> Maps:
    """Return maps as they are, and tokens as maps, those before the grid's left out."""
    if values.ndim == 4:
        return values
    grids = model.attention_grids(len(model.blocks()) - 1, (images.shape[2], images.shape[3]))
    if values.ndim != 3 or grids is None:
        raise ModelError(f"{describe(model.config)} cannot be explained by Grad-CAM: it ends in no feature map.")
    rows, columns = grids[0]
    return values[:, values.shape[1] - rows * columns :].transpose(1, 2).reshape(len(values), -1, rows, columns)

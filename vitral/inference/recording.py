"""What explanations need of a network's attention, in torch: of all layers or one, and with the gradients of a class."""

import contextlib
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.advice import argument
from vitral.errors import ModelError
from vitral.inference.predictor import Attended, ClassAttention, LayerAttention
from vitral.models.coatnet import CoAtNet
from vitral.models.cvt import KEY_STRIDE, CvT
from vitral.models.model import Images, Logits, Model
from vitral.models.naming import describe
from vitral.models.record import record
from vitral.models.t2t import STRIDE, T2TViT
from vitral.models.vit import ViT

NO_ATTENTION = "it has no attention"
Shares = Float[Tensor, "batch tokens"]


def has_attention(model: Model) -> bool:
    """Tell whether a network is explained by its attention: whether it is a Vision Transformer, hybrids included."""
    return isinstance(model, ViT)


def as_transformer(model: Model) -> ViT:
    """Return the network as the Vision Transformer that it is.

    Raises:
        ModelError: it is none.
    """
    if not isinstance(model, ViT):
        raise ModelError(f"A {type(model).__name__} has no attention to show; only Vision Transformers have.")
    return model


def no_rollout(model: Model) -> str:
    """Return why the attention of a network cannot be followed from the answer to the image; empty if it can be."""
    if isinstance(model, ViT | T2TViT):
        return ""
    if isinstance(model, CvT):
        return "its keys are of fewer positions than its queries, and every stage has tokens of its own"
    if isinstance(model, CoAtNet):
        return "it pools between the layers of attention, after stages of convolutions that have none"
    return NO_ATTENTION


def attend(model: Model, images: Images) -> Attended:
    """Run prepared images through a network and keep its attention.

    Of T2T-ViT that of the backbone, whose tokens the token layers have mixed from the image.

    Raises:
        ModelError: the attention of such a network makes no chain from the answer to the patches.
    """
    chained = _chained(model)
    with record(chained, "blocks.*.attention") as attentions, record(chained, "norm") as norm:
        logits = chained(images)
        layers = tuple(attentions[f"blocks.{index}.attention"] for index in range(len(chained.blocks())))
        return _attended(chained, logits, layers, norm["norm"])


def attend_to_class(model: Model, images: Images, target: int | None) -> ClassAttention:
    """Run prepared images through a network, with gradients, and keep its attention and how a class depends on it.

    Raises:
        ModelError: the attention of such a network makes no chain from the answer to the patches.
    """
    chained = _chained(model)
    with _unfused(chained) as layers, record(chained, "norm") as norm:
        logits = chained(images.clone().requires_grad_())  # a graph, even if every weight is frozen
        gradients = torch.autograd.grad(explained(logits, target), layers)
    attended = _attended(chained, logits.detach(), tuple(layer.detach() for layer in layers), norm["norm"].detach())
    return ClassAttention(attended, tuple(gradient.float().cpu() for gradient in gradients))


def explained(logits: Logits, target: int | None) -> Float[Tensor, ""]:
    """Return the logit of a class, or each image's largest, summed over the images, which do not touch each other."""
    return (logits.amax(dim=1) if target is None else logits[:, target]).sum()


def attend_in_layer(model: Model, images: Images, layer: int | None) -> LayerAttention:
    """Run prepared images through a network and keep where one layer looks.

    Raises:
        ModelError: the network has no attention, or not so many layers of it.
    """
    names = [f"blocks.{index}" for index, block in enumerate(model.blocks()) if hasattr(block, "attention")]
    if not names:
        raise ModelError(f"{describe(model.config)} has no attention to show.")
    number = len(names) if layer is None else layer
    if not 1 <= number <= len(names):
        raise ModelError(
            f"{describe(model.config)} has {len(names)} layers of attention, counted from 1; there is no layer {layer}."
        )
    if isinstance(model, ViT | T2TViT):
        attended = attend(model, images)
        rows = torch.einsum("bq,bhqk->bhk", attended.pooling, attended.attentions[number - 1])
        maps = rows[:, :, attended.num_prefix_tokens :].reshape(*rows.shape[:2], *attended.grid)
        return LayerAttention(attended.logits, maps, number, len(names))
    logits, maps = _layer_by_grid(model, images, names[number - 1])
    return LayerAttention(logits.float().cpu(), maps.float().cpu(), number, len(names))


def _layer_by_grid(model: Model, images: Images, name: str) -> tuple[Logits, Float[Tensor, "batch heads rows columns"]]:
    """Return where a layer of a network that shrinks its map looks: its class token, or the mean of its queries."""
    with record(model, f"{name}.attention") as attention, contextlib.ExitStack() as stack:
        pattern = "stages.*.embedding" if isinstance(model, CvT) else name
        maps = stack.enter_context(record(model, pattern))
        logits = model(images)
        weights, grid = attention[f"{name}.attention"], _key_grid(model, name, maps)
    prefix = weights.shape[-1] - grid[0] * grid[1]
    rows = weights[:, :, 0] if prefix else weights.mean(dim=2)
    return logits, rows[:, :, prefix:].reshape(*rows.shape[:2], *grid)


def _key_grid(model: Model, name: str, maps: dict[str, Tensor]) -> tuple[int, int]:
    if not isinstance(model, CvT):
        return maps[name].shape[2], maps[name].shape[3]
    block = int(name.rpartition(".")[2])
    stage = next(stage for stage, end in enumerate(accumulate(model.config.depths)) if block < end)
    rows, columns = maps[f"stages.{stage}.embedding"].shape[2:]
    return -(-rows // KEY_STRIDE), -(-columns // KEY_STRIDE)


def _chained(model: Model) -> ViT | T2TViT:
    if not isinstance(model, ViT | T2TViT):
        raise ModelError(
            f"{describe(model.config)} cannot be explained by attention rollout or relevance: {no_rollout(model)}; "
            f"{argument('method', 'grad-cam')} explains it."
        )
    return model


@contextlib.contextmanager
def _unfused(model: ViT | T2TViT) -> Iterator[list[Tensor]]:
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
    model: ViT | T2TViT, logits: Logits, layers: tuple[Tensor, ...], tokens: Float[Tensor, "batch outputs dim"]
) -> Attended:
    layers = tuple(layer.float().cpu() for layer in layers)
    if isinstance(model, T2TViT):
        pooling, prefix, stride = torch.zeros(layers[0].shape[::3]), 1, (STRIDE, STRIDE)
        pooling[:, 0] = 1.0
    else:
        with torch.no_grad():
            pooling = _pooling(model, tokens, num_tokens=layers[0].shape[-1])
        prefix, stride = model.config.num_prefix_tokens, model.config.stride
    return Attended(
        logits=logits.float().cpu(),
        attentions=layers,
        pooling=pooling.float().cpu(),
        num_prefix_tokens=prefix,
        grid=model.config.grid,
        stride=stride,
    )


def _pooling(model: ViT, tokens: Float[Tensor, "batch outputs dim"], *, num_tokens: int) -> Shares:
    prefix = model.config.num_prefix_tokens
    shares = torch.zeros(len(tokens), num_tokens, device=tokens.device)
    if model.config.pooling == "token":
        read = model.config.num_pooled_tokens  # the class token; with a distillation token the mean of both heads
        shares[:, :read] = 1.0 / read
    elif model.config.pooling in ("gap", "token-gap"):
        shares[:, prefix:] = 1.0 / (num_tokens - prefix)
        if model.config.class_token:  # both halves of what the head reads count the same
            shares /= 2
            shares[:, 0] = 0.5
    else:
        probe = model.map_head.probe.expand(len(tokens), -1, -1)
        weights = model.map_head.attention.probabilities(probe, tokens[:, prefix:])  # (batch, heads, 1, patches)
        shares[:, prefix:] = weights.mean(dim=1)[:, 0]
    return shares

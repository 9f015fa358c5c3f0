"""What explanations need from a network in torch: its attention, or its last feature maps with their gradients."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.errors import ModelError
from vitral.inference.predictor import Attended, ClassMaps
from vitral.models.cvt import CvT
from vitral.models.model import Images, Model
from vitral.models.record import record
from vitral.models.t2t import T2TViT
from vitral.models.vit import ViT

Maps = Float[Tensor, "batch channels rows columns"]
Reader = Callable[[], tuple[Callable[[Tensor], Maps], Tensor]]


def has_attention(model: Model) -> bool:
    """Tell whether a network can be explained by its attention: whether it is a Vision Transformer, hybrids included."""
    return isinstance(model, ViT)


def as_transformer(model: Model) -> ViT:
    """Return the network as the Vision Transformer that it is.

    Raises:
        ModelError: it is none.
    """
    if not isinstance(model, ViT):
        raise ModelError(f"A {type(model).__name__} has no attention to show; only Vision Transformers have.")
    return model


def attend(model: Model, images: Images) -> Attended:
    """Run prepared images through a network and keep its attention.

    Raises:
        ModelError: the network is no Vision Transformer.
    """
    transformer = as_transformer(model)
    config = transformer.config
    with record(transformer, "blocks.*.attention") as attentions, record(transformer, "norm") as norm:
        logits = transformer(images)
        layers = tuple(attentions[f"blocks.{index}.attention"].float().cpu() for index in range(config.depth))
        pooling = _pooling(transformer, norm["norm"], num_tokens=layers[0].shape[-1])
    return Attended(
        logits=logits.float().cpu(),
        attentions=layers,
        pooling=pooling.float().cpu(),
        num_prefix_tokens=config.num_prefix_tokens,
        grid=config.grid,
        stride=config.stride,
    )


def _pooling(
    model: ViT, tokens: Float[Tensor, "batch outputs dim"], *, num_tokens: int
) -> Float[Tensor, "batch tokens"]:
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


def last_maps(model: Model, images: Images) -> ClassMaps:
    """Run prepared images through a network, with gradients, and keep the last feature maps.

    The maps are what the last block gives. Of a network that reads its answer from a class token, the other tokens no
    longer matter there; its maps are the tokens as they enter the attention of the last block (after its first norm).

    Raises:
        ModelError: the network ends in no feature map.
    """
    with _watched(model) as read:
        logits = model(images.clone().requires_grad_())  # a graph, even if every weight is frozen
        as_maps, recorded = read()
        maps = as_maps(recorded.detach())
        # The images of a batch do not touch each other, so one sum gives each its own gradient.
        gradient = torch.autograd.grad(logits.amax(dim=1).sum(), recorded)[0]
    return ClassMaps(logits.detach().float().cpu(), maps.float().cpu(), as_maps(gradient).float().cpu())


@contextlib.contextmanager
def _watched(model: Model) -> Iterator[Reader]:
    """Watch the last maps; after a pass the reader gives them as recorded, and how such a tensor becomes maps."""
    last = f"blocks.{len(model.blocks()) - 1}"
    if not isinstance(model, CvT | T2TViT):
        with record(model, last) as recorded:
            yield lambda: (_as_maps, recorded[last])
        return
    name = f"{last}.norm1"
    with record(model, name) as recorded, contextlib.ExitStack() as stack:
        embedded = stack.enter_context(record(model, "stages.*.embedding")) if isinstance(model, CvT) else {}

        def read() -> tuple[Callable[[Tensor], Maps], Tensor]:
            grid = model.config.grid if isinstance(model, T2TViT) else embedded[max(embedded)].shape[2:]
            return lambda tokens: tokens[:, 1:].transpose(1, 2).unflatten(2, tuple(grid)), recorded[name]

        yield read


def _as_maps(recorded: Tensor) -> Maps:
    if recorded.ndim != 4:
        raise ModelError("The network has neither attention to show nor a last feature map, so it cannot be explained.")
    return recorded

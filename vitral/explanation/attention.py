"""What the explanations read from a network: its attention, and how its head pools the tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.errors import ModelError
from vitral.models.model import Images, Logits, Model
from vitral.models.record import record
from vitral.models.vit import ViT


@dataclass(frozen=True)
class Attended:
    """One pass of a batch through a network.

    Attributes:
        logits: the network's answer.
        attentions: probabilities of each layer, first layer first, each (batch, heads, tokens, tokens).
        pooling: the share of each output token in the pooled representation, summing to 1.
    """

    logits: Logits
    attentions: tuple[Float[Tensor, "batch heads tokens tokens"], ...]
    pooling: Float[Tensor, "batch tokens"]


def attend(model: Model, images: Images) -> Attended:
    """Run prepared images through a network in evaluation mode and keep its attention.

    Raises:
        ModelError: the network is no Vision Transformer.
    """
    transformer = as_transformer(model)
    training = model.training
    model.eval()
    try:
        with (
            torch.inference_mode(),
            record(transformer, "blocks.*.attention") as attentions,
            record(transformer, "norm") as norm,
        ):
            logits = transformer(images)
            layers = tuple(attentions[f"blocks.{index}.attention"] for index in range(transformer.config.depth))
            pooling = _pooling(transformer, norm["norm"], num_tokens=layers[0].shape[-1])
    finally:
        model.train(training)
    return Attended(logits=logits, attentions=layers, pooling=pooling)


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


def _pooling(
    model: ViT, tokens: Float[Tensor, "batch outputs dim"], *, num_tokens: int
) -> Float[Tensor, "batch tokens"]:
    prefix = model.config.num_prefix_tokens
    shares = torch.zeros(len(tokens), num_tokens, device=tokens.device)
    if model.config.pooling == "token":
        read = model.config.num_pooled_tokens  # the class token; with a distillation token the mean of both heads
        shares[:, :read] = 1.0 / read
    elif model.config.pooling == "gap":
        shares[:, prefix:] = 1.0 / (num_tokens - prefix)
    else:
        probe = model.map_head.probe.expand(len(tokens), -1, -1)
        weights = model.map_head.attention.probabilities(probe, tokens[:, prefix:])  # (batch, heads, 1, patches)
        shares[:, prefix:] = weights.mean(dim=1)[:, 0]
    return shares

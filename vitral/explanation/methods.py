"""How an image is explained: the methods, which of them a network allows, and what each computes, one value a patch or cell.

Attention rollout (paper appendix D.8; arXiv 2005.00928), class-specific relevance (arXiv 2103.15679), Grad-CAM
(arXiv 1610.02391), and the exact contributions of a linear layer on the maps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.advice import argument
from vitral.errors import ModelError, did_you_mean
from vitral.inference.predictor import Attended, Predictor
from vitral.models.layers import Maps
from vitral.models.model import NO_ATTENTION, Images, Logits

Attention = Float[Tensor, "batch heads tokens tokens"]
Rollout = Float[Tensor, "batch tokens tokens"]
Choice = Literal["auto", "rollout", "attention", "relevance", "grad-cam"]
Method = Literal["attention rollout", "attention", "class-specific relevance", "Grad-CAM", "weight times input"]
Values = Float[Tensor, "batch rows columns"]
NAMES: dict[str, Method] = {
    "rollout": "attention rollout",
    "attention": "attention",
    "relevance": "class-specific relevance",
    "grad-cam": "Grad-CAM",
}
OF_A_CLASS = ("class-specific relevance", "Grad-CAM", "weight times input")
OF_ATTENTION = ("attention rollout", "attention", "class-specific relevance")


def attention_rollout(attentions: Sequence[Attention]) -> Rollout:
    """Multiply the attention through the layers.

    Per layer the weights W are averaged over the heads, and half of the identity stands for the residual connection:
    A = 0.5 W + 0.5 I. Its rows sum to 1, as those of W do. The result is A of the last layer times that of the one
    before, and so on down to the first.

    Args:
        attentions: The attention probabilities of each layer, first layer first.

    Returns:
        In row i how much of each input token reaches output token i; rows sum to 1.
    """
    assert attentions, "rollout needs at least one layer"
    means = (attention.float().mean(dim=1) for attention in attentions)
    rollout, *others = (0.5 * mean + 0.5 * torch.eye(mean.shape[-1], device=mean.device) for mean in means)
    for layer in others:
        rollout = layer @ rollout
    return rollout


def patch_relevance(
    rollout: Rollout, *, grid: tuple[int, int], num_prefix_tokens: int, weights: Float[Tensor, "batch tokens"]
) -> Float[Tensor, "batch rows columns"]:
    """Return how much each patch reaches the pooled output, as a grid.

    Args:
        rollout: The rolled-out attention.
        grid: Rows and columns of patches.
        num_prefix_tokens: Tokens before the patches, class token and registers: their columns are dropped.
        weights: The share of each output token in the pooled output, summing to 1 over the tokens.
    """
    pooled = torch.einsum("bo,boi->bi", weights, rollout)
    return pooled[:, num_prefix_tokens:].reshape(-1, *grid)


def class_relevance(attentions: Sequence[Attention], gradients: Sequence[Attention]) -> Rollout:
    """Accumulate the attention that speaks for a class through the layers, by the rule for self-attention.

    Per layer the probabilities A are weighed by their gradients and the positive ones averaged over the heads (equation 5):
    M = mean over heads of max(0, gradient A). The relevance starts at the identity and grows by R = R + M R (equation 6).
    Returned is R less that identity, because a token itself does not tell where the class is seen. It is accumulated
    without it, because small numbers would lose their digits beside a 1.

    Returns:
        In row i how much each input token counts for the class by way of output token i.
    """
    assert attentions, "relevance needs at least one layer"
    batch, _, tokens, _ = attentions[0].shape
    relevance = torch.zeros(batch, tokens, tokens)
    for attention, gradient in zip(attentions, gradients, strict=True):
        speaking = (gradient * attention).relu().mean(dim=1)
        relevance = relevance + speaking @ relevance + speaking
    return relevance


def class_activation(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Weigh each channel by its gradient's mean over the cells (equation 1), sum, and keep what is positive (2).

    All 0 where nothing speaks for the class.
    """
    weights = gradients.mean(dim=(2, 3), keepdim=True)
    return (weights * maps).sum(dim=1).relu()


def contributions(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Return what each cell adds to the class's logit, or takes from it: weight times input, summed over the channels.

    Exact for a linear layer on the maps, because the gradients are its weights: with the bias the cells sum to the logit.
    """
    return (gradients * maps).sum(dim=1)


@dataclass(frozen=True)
class Relevances:
    """What a method gives.

    Attributes:
        values: One value a patch or cell: at least 0, but of "weight times input".
        part: The part of the network that they are of, such as "layer 12, mean of 3 heads"; empty if the whole.
    """

    logits: Logits
    values: Values
    part: str = ""


def method_for(predictor: Predictor) -> Method:
    """Return how a network is explained if no method is named."""
    if predictor.has_attention:
        return "class-specific relevance"  # without the bright tile of rollout: docs/explanations.md
    return "weight times input" if predictor.explained_by == "weights" else "Grad-CAM"


def choose_method(
    predictor: Predictor,
    choice: str = "auto",
    *,
    of_class: bool = False,
    layer: int | None = None,
    head: int | None = None,
) -> Method:
    """Return the method that a choice means for a network.

    "auto" is attention where a layer or head is named; else class-specific relevance for Vision Transformers, weight times
    input for linear models, Grad-CAM for others.

    Raises:
        ModelError: There is no such method, or it does not know what is named.
    """
    if choice != "auto" and choice not in NAMES:
        known = ("auto", *NAMES)
        raise ModelError(f"There is no method '{choice}'; there are {', '.join(known)}.{did_you_mean(choice, known)}")
    part = layer is not None or head is not None
    method = NAMES[choice] if choice != "auto" else "attention" if part else method_for(predictor)
    if part and method != "attention":
        raise ModelError(
            f"{argument('layer')} and {argument('head')} belong to {argument('method', 'attention')}; {method} takes all of "
            "them."
        )
    if of_class and method not in OF_A_CLASS:
        raise ModelError(
            f"{method.capitalize()} shows what reaches the answer, whatever the class; to explain a class by "
            f"{argument('label')}, take {argument('method', 'relevance')} or {argument('method', 'grad-cam')}."
        )
    return method


def why_not_attention(predictor: Predictor, method: Method) -> str:
    """Return why a network that attends is explained by Grad-CAM, and not by its attention; empty where that is no surprise."""
    reason = predictor.no_rollout
    if method != "Grad-CAM" or not reason or reason == NO_ATTENTION:
        return ""
    return f"{predictor.describe()} is not explained by its attention: {reason}"


def compute(
    predictor: Predictor,
    images: Images,
    method: Method,
    *,
    target: int | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> Relevances:
    """Return what a method gives for prepared images.

    Args:
        predictor: Computes the network.
        images: The prepared images.
        method: What determines the maps.
        target: The logit that is explained; None for each image's largest.
        layer: The layer of "attention", counted from 1 among the layers that have attention; None for the last.
        head: The head of "attention", counted from 1; None for the mean of all.

    Raises:
        ModelError: The network does not allow the method, or has no such layer or head.
    """
    if predictor.no_rollout == NO_ATTENTION and method in OF_ATTENTION:
        refusal = f"{predictor.describe()} cannot be explained by {method}: {NO_ATTENTION}"
        raise ModelError(f"{refusal}; {method_for(predictor)} explains it ({argument('method', 'auto')}).")
    if method == "attention":
        return _attention(predictor, images, layer, head)
    if method == "attention rollout":
        attended = predictor.attention(images)
        return Relevances(attended.logits, _pooled(attended, attention_rollout(attended.attentions)))
    if method == "class-specific relevance":
        followed = predictor.class_attention(images, target)
        attended = followed.attended
        return Relevances(attended.logits, _pooled(attended, class_relevance(attended.attentions, followed.gradients)))
    seen = predictor.class_maps(images, target)
    weigh = class_activation if method == "Grad-CAM" else contributions
    return Relevances(seen.logits, weigh(seen.maps, seen.gradients))


def _pooled(attended: Attended, followed: Float[Tensor, "batch tokens tokens"]) -> Values:
    return patch_relevance(
        followed, grid=attended.grid, num_prefix_tokens=attended.num_prefix_tokens, weights=attended.pooling
    )


def _attention(predictor: Predictor, images: Images, layer: int | None, head: int | None) -> Relevances:
    """Return where one layer looks: one head, or the mean of all."""
    seen = predictor.layer_attention(images, layer)
    heads = seen.maps.shape[1]
    part = f"layer {seen.layer} of {seen.num_layers}"
    if head is None:
        return Relevances(seen.logits, seen.maps.mean(dim=1), f"{part}, mean of {heads} heads")
    if not 1 <= head <= heads:
        raise ModelError(f"{part.capitalize()} has {heads} heads, counted from 1; there is no head {head}.")
    return Relevances(seen.logits, seen.maps[:, head - 1], f"{part}, head {head} of {heads}")

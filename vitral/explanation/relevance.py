"""Class-specific relevance: the attention that speaks for a class, followed from the answer to the image (arXiv 2103.15679)."""

from collections.abc import Sequence

import torch

from vitral.explanation.rollout import Attention, Rollout


def class_relevance(attentions: Sequence[Attention], gradients: Sequence[Attention]) -> Rollout:
    """Accumulate the attention that speaks for a class through the layers, by the rule for self-attention.

    Per layer the probabilities A are weighed by their gradients and the positive ones averaged over the heads (equation 5):
    M = mean over heads of max(0, gradient A). The relevance starts at the identity and grows by R = R + M R (equation 6).
    Returned is R less that identity: what a token is of itself says nothing of where the class is seen. It is accumulated
    without it, for small numbers would lose their digits beside a 1.

    Args:
        attentions: the attention probabilities of each layer, first layer first.
        gradients: of the class's logit by them.

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

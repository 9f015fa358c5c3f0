"""Multi-head self-attention (paper appendix A)."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models import layers
from vitral.models.layers import Linear, Tokens, packed_attention
from vitral.models.position import RelativeGrid, Rotation, rotate

Heads = Float[Tensor, "batch heads tokens head_dim"]
Mask = Bool[Tensor, "batch #heads #queries keys"]
Bias = Float[Tensor, "#batch heads queries keys"]


def attention_scores(
    query: Float[Tensor, "batch heads queries head_dim"],
    key: Float[Tensor, "batch heads keys head_dim"],
    scale: float | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """Return query times key, scaled (equation 6 before its softmax); `scale` is 1/sqrt(head_dim) if None."""
    return (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.transpose(-2, -1)


def attend(
    query: Float[Tensor, "batch heads queries head_dim"],
    key: Float[Tensor, "batch heads keys head_dim"],
    value: Float[Tensor, "batch heads keys head_dim"],
    *,
    dropout: float = 0.0,
    scale: float | None = None,
    mask: Mask | None = None,
    bias: Bias | None = None,
) -> Float[Tensor, "batch heads queries head_dim"]:
    """Return the values mixed by the softmax of the scores (equations 6 and 7), by the kernel that is fastest where it runs.

    The fused CPU kernel's backward pass is several times slower than the plain products in bfloat16, so training there
    takes the plain ones; everything else takes the fused kernel.

    Args:
        query: One vector a query and head.
        key: One vector a token and head.
        value: One vector a token and head.
        dropout: Rate on the probabilities.
        scale: The scale of the scores; 1/sqrt(head_dim) if None.
        mask: Which keys each query may attend to, at least one; all if None.
        bias: What is added to the scores; nothing if None.
    """
    if not layers.trains_in_bf16_on_cpu(query):
        whole = None if bias is None else bias.expand(*query.shape[:3], -1)
        added = whole if whole is None or mask is None else whole.masked_fill(~mask, -math.inf)
        return functional.scaled_dot_product_attention(
            query, key, value, mask if added is None else added, dropout, scale=scale
        )
    scores = attention_scores(query, key, scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    probabilities = functional.dropout(scores.softmax(dim=-1), dropout, training=dropout > 0)
    return probabilities @ value


EVERY_TOKEN = "Relative positions need every token: none can be dropped, merged or added."


class Attention(nn.Module):
    """Multi-head self-attention (equations 5-8).

    Args:
        dim: Width of a token.
        num_heads: Heads; each has `dim / num_heads` channels.
        qkv_bias: Whether the query, key and value projections have biases, as in the paper; T2T-ViT's have none.
        relative: Number of tokens that have relative positions; None for none. A query's product with the embedding of its
            distance to a key, in tokens, is added to its score of that key (paper appendix D.4, whose code is not published:
            that heads share the embeddings, and that a class token counts as the first token, is unverified).
        grid: Rows and columns of the patches that have relative positions in both directions; None for none.
        prefix: How many tokens come before these patches.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        relative: int | None = None,
        grid: tuple[int, int] | None = None,
        prefix: int = 0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_dropout = 0.0  # rate on the probabilities
        self.qkv = Linear(dim, 3 * dim, bias=qkv_bias)
        self.out = Linear(dim, dim)
        self.dropout = nn.Dropout(0.0)
        self.relative = None if relative is None else nn.Parameter(torch.empty(2 * relative - 1, dim // num_heads))
        self.relative_grid = None if grid is None else RelativeGrid(num_heads, grid, prefix=prefix)

    def forward(
        self,
        tokens: Tokens,
        *,
        num_queries: int | None = None,
        mask: Mask | None = None,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "batch queries dim"]:
        """Return the mixed tokens.

        Args:
            tokens: All tokens, which keys and values are taken of.
            num_queries: How many of them, from the first on, are mixed; all if None.
            mask: Which tokens each of these may attend to; all if None.
            rotation: How far queries and keys are turned by where they lie; not at all if None.
        """
        return self.dropout(self.out(self.mix(tokens, num_queries, mask, rotation)))

    def mix(
        self, tokens: Tokens, num_queries: int | None, mask: Mask | None, rotation: Rotation | None
    ) -> Float[Tensor, "batch queries dim"]:
        """Return the mixed tokens before the output projection; the arguments are those of `forward`."""
        rate = self.attention_dropout if self.training else 0.0
        plain = mask is None and rotation is None and self.relative is None
        if num_queries is None and plain and rate == 0.0:
            projected = self.qkv(tokens)
            if layers.trains_in_bf16_on_cpu(projected):
                added = self._of_grid(projected.shape[1], projected.dtype)
                return packed_attention(projected, self.num_heads, added)
            query, key, value = self._split(projected, 3)
        else:
            query, key, value = self.project(tokens, num_queries, rotation)
        bias = self._bias(query, key)
        return attend(query, key, value, dropout=rate, mask=mask, bias=bias).transpose(1, 2).flatten(2)

    def _bias(self, query: Heads, key: Heads) -> Bias | None:
        """Return what relative positions add to the scores of queries, which are the first tokens; None without them."""
        queries, keys = query.shape[2], key.shape[2]
        if (added := self._of_grid(keys, query.dtype)) is not None:
            return added[None, :, :queries]
        if self.relative is None:
            return None
        if 2 * keys - 1 != len(self.relative):
            raise ModelError(EVERY_TOKEN)
        distance = torch.arange(queries, device=query.device)[:, None] - torch.arange(keys, device=query.device)
        of_distances = (query * query.shape[-1] ** -0.5) @ self.relative.to(query.dtype).T
        index = (distance + keys - 1).expand(*of_distances.shape[:2], -1, -1)
        return of_distances.gather(3, index)

    def _of_grid(self, tokens: int, dtype: torch.dtype) -> Float[Tensor, "heads tokens tokens"] | None:
        """Return what relative positions in both directions add to the scores of all queries; None without them."""
        if self.relative_grid is None:
            return None
        if tokens != self.relative_grid.tokens:
            raise ModelError(EVERY_TOKEN)
        return self.relative_grid().to(dtype)

    def _scores(self, query: Heads, key: Heads) -> Float[Tensor, "batch heads queries keys"]:
        scores, bias = attention_scores(query, key), self._bias(query, key)
        return scores if bias is None else scores + bias

    def probabilities(
        self, tokens: Tokens, rotation: Rotation | None = None
    ) -> Float[Tensor, "batch heads tokens tokens"]:
        """Return the attention probabilities, rows summing to one: fused kernels never give them."""
        query, key, _ = self.project(tokens, None, rotation)
        return self._scores(query, key).float().softmax(dim=-1)

    def unfused(
        self, tokens: Tokens, *, num_queries: int | None = None, rotation: Rotation | None = None
    ) -> tuple[Float[Tensor, "batch queries dim"], Float[Tensor, "batch heads tokens tokens"]]:
        """Return the mixed tokens, without dropout, and the probabilities that mixed them, in one graph.

        By plain products, so that the gradient by the probabilities can be taken.
        """
        query, key, value = self.project(tokens, None, rotation)
        probabilities = self._scores(query, key).float().softmax(dim=-1)
        mixed = (probabilities.to(value.dtype) @ value).transpose(1, 2).flatten(2)
        return self.out(mixed[:, :num_queries]), probabilities

    def project(self, tokens: Tokens, num_queries: int | None, rotation: Rotation | None) -> tuple[Heads, Heads, Heads]:
        """Return the queries of the first `num_queries` tokens, and keys and values of all; see `forward`."""
        if num_queries is None:
            query, key, value = self._split(self.qkv(tokens), 3)
        else:
            dim = self.qkv.in_features
            (query,) = self._split(self.qkv.part(tokens[:, :num_queries], 0, dim), 1)
            key, value = self._split(self.qkv.part(tokens, dim), 2)
        if rotation is None:
            return query, key, value
        return rotate(query, rotation), rotate(key, rotation), value

    def _split(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        batch, tokens, _ = projected.shape
        return projected.view(batch, tokens, parts, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def init_weights(self, generator: torch.Generator) -> None:
        """Xavier-uniform over each of query, key, value and output on its own: limit sqrt(3 / dim); biases zero."""
        limit = math.sqrt(3.0 / self.out.in_features)
        with torch.no_grad():
            for layer in (self.qkv, self.out):
                layer.weight.uniform_(-limit, limit, generator=generator)
                if layer.bias is not None:
                    layer.bias.zero_()
        self.init_relative(generator)

    def init_relative(self, generator: torch.Generator) -> None:
        """Draw relative positions as those at the input are, normal with deviation 0.02; those of a grid begin local."""
        if self.relative is not None:
            nn.init.normal_(self.relative, std=0.02, generator=generator)
        if self.relative_grid is not None:
            self.relative_grid.init_weights()

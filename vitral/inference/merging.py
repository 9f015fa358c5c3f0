"""Token merging (ToMe, arXiv 2210.09461): in every block pairs of like tokens become one, so that later blocks compute fewer.

Written from the paper's section 3; a published network needs no training for it, and gives other answers.
"""

import threading
from typing import Unpack, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.inference.packed import PackedBlock, Reads
from vitral.models.attention import Attention, Bias, Heads, Mask, attend
from vitral.models.blocks import Block
from vitral.models.families import describe
from vitral.models.layers import Losses, Tokens
from vitral.models.model import Model
from vitral.models.position import Rotation

Sizes = Float[Tensor, "batch tokens 1"]


class _Pass(threading.local):
    """What the blocks of one forward pass tell each other; several threads may compute at once."""

    sizes: Sizes | None = None  # how many patches each token stands for; None before any were merged
    keys: Float[Tensor, "batch tokens head_dim"] | None = None  # of the last attention, the mean over its heads


class MergingAttention(nn.Module):
    """Attention in which a token counts as often as it has patches (proportional attention, section 3.2)."""

    def __init__(self, attention: Attention, state: _Pass) -> None:
        super().__init__()
        self.attention, self.state = attention, state

    @property
    def out(self) -> nn.Module:
        """The output projection."""
        return self.attention.out

    def forward(
        self,
        tokens: Tokens,
        *,
        num_queries: int | None = None,
        mask: Mask | None = None,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "batch queries dim"]:
        """Return the mixed tokens; the arguments are those of `Attention`."""
        return cast(Tensor, self.out(self.mix(tokens, num_queries, mask, rotation)))

    def mix(
        self, tokens: Tokens, num_queries: int | None, mask: Mask | None, rotation: Rotation | None
    ) -> Float[Tensor, "batch queries dim"]:
        """Return the mixed tokens before the output projection."""
        query, key, value = self.attention.project(tokens, num_queries, rotation)
        self.state.keys = key.mean(dim=1)
        bias = _counted(self.state.sizes, query)
        return attend(query, key, value, mask=mask, bias=bias).transpose(1, 2).flatten(2)


def _counted(sizes: Sizes | None, query: Heads) -> Bias | None:
    """Return what is added to the scores of each key: the logarithm of its token's size."""
    if sizes is None:
        return None
    added = sizes.to(query.dtype).log().transpose(1, 2)[:, None]
    return added.expand(-1, query.shape[1], query.shape[2], -1)


class MergingBlock(nn.Module):
    """A block that merges tokens between its attention and its MLP, so that it has `count` fewer afterwards."""

    def __init__(self, block: Block | PackedBlock, state: _Pass, *, count: int, distilled: bool, first: bool) -> None:
        super().__init__()
        self.block, self.state = block, state
        self.count, self.distilled, self.first = count, distilled, first

    def forward(self, tokens: Tokens, **how: Unpack[Reads]) -> tuple[Float[Tensor, "batch queries dim"], Losses]:
        """Return the tokens after the block."""
        if self.first:
            self.state.sizes = None
        tokens = self.block.attended(tokens, **how)
        if how.get("num_queries") is None:  # else these are all that is read
            assert self.state.keys is not None, "the attention has left them"
            tokens, self.state.sizes = merged(
                tokens, self.state.sizes, self.state.keys, count=self.count, distilled=self.distilled
            )
        return self.block.transformed(tokens, how.get("part"))


def merged(
    tokens: Tokens,
    sizes: Sizes | None,
    keys: Float[Tensor, "batch tokens head_dim"],
    *,
    count: int,
    distilled: bool = False,
) -> tuple[Tokens, Sizes | None]:
    """Return fewer tokens and how many patches each stands for: bipartite soft matching (section 3.1).

    Tokens at even places (the class token among them) are matched with the likest at odd places, by the cosine of their keys;
    the `count` best matches become one, the mean by size. The others keep their order, those at even places first.

    Args:
        tokens: The tokens of a block, class token first.
        sizes: The sizes of these; None where all are 1.
        keys: The keys of their attention, the mean over the heads.
        count: Number of tokens to merge; at most half of those that may be merged are.
        distilled: Whether the second token is a distillation token, which nothing is merged into.
    """
    count = min(count, (tokens.shape[1] - 1 - distilled) // 2)
    if count <= 0:
        return tokens, sizes
    likeness = functional.normalize(keys.float(), dim=-1)
    scores = likeness[:, ::2] @ likeness[:, 1::2].transpose(1, 2)
    scores[:, 0] = -torch.inf
    if distilled:
        scores[:, :, 0] = -torch.inf
    best, match = scores.max(dim=-1)
    order = best.argsort(dim=-1, descending=True)
    gone, remaining = order[:, :count], order[:, count:].sort(dim=-1).values
    into = match.gather(1, gone)
    # In float32: bfloat16 counts to 256.
    sizes = torch.ones_like(tokens[:, :, :1], dtype=torch.float32) if sizes is None else sizes

    def gather_in(values: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch fewer width"]:
        """Return the sums of what is merged."""
        even, odd, width = values[:, ::2], values[:, 1::2], values.shape[-1]
        moved = even.gather(1, gone[..., None].expand(-1, -1, width))
        odd = odd.scatter_add(1, into[..., None].expand(-1, -1, width), moved)
        even = even.gather(1, remaining[..., None].expand(-1, -1, width))
        if distilled:
            return torch.cat([even[:, :1], odd[:, :1], even[:, 1:], odd[:, 1:]], dim=1)
        return torch.cat([even, odd], dim=1)

    totals = gather_in(sizes)
    return (gather_in(tokens * sizes) / totals).to(tokens.dtype), totals


def check_merging(network: Model) -> None:
    """Refuse a network whose tokens cannot be merged, by a ModelError that says why."""
    if reason := network.config.obstacle_to("merging"):
        raise ModelError(f"The tokens of {describe(network.config)} cannot be merged: {reason}. Leave merging out.")


def merge_tokens(network: Model, count: int) -> Model:
    """Let a network, plain or packed, merge so many tokens in each block but the last; in place.

    Args:
        network: A Vision Transformer that reads its class token; of a distilled one both tokens are kept.
        count: The paper's r, at least 1.

    Raises:
        ModelError: Its tokens cannot be merged.
    """
    check_merging(network)
    state, names = _Pass(), {id(module): name for name, module in network.named_modules()}
    grid = network.config.patch_grid
    for index, block in enumerate(network.blocks()):
        assert isinstance(block, Block | PackedBlock), "a Vision Transformer has no others"
        plain = block.block if isinstance(block, PackedBlock) else block
        plain.attention = MergingAttention(plain.attention, state)  # type: ignore[assignment]
        merging = MergingBlock(block, state, count=count, distilled=grid.prefix > 1, first=index == 0)
        network.set_submodule(names[id(block)], merging)
    return network

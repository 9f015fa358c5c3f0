"""Procedural warm-up: sequences of nested brackets, in place of images (arXiv 2511.13945).

A word of k-Dyck is a sequence of k kinds of brackets in which every bracket is closed, the last opened first. Its symbols go
through a table of random vectors that never learns, in the place of the patches' embedding; some are hidden, and the network
says which. Unverified: the share that is hidden, and how the words are drawn. Here half is hidden, as of masked patches, and
where both are possible a bracket opens as often as one closes.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from vitral.models.layers import BatchPart, TokenGrid, init_linear, seeded
from vitral.models.model import token_model

NEEDS = "The procedural warm-up needs a Vision Transformer, which this network is not"


def draw_words(count: int, length: int, kinds: int, rng: np.random.Generator) -> Int64[np.ndarray, "count length"]:
    """Return words of an even length: symbol i opens a bracket of kind i, and symbol `kinds` + i closes it.

    Of an odd length the last symbol is one more opening bracket.
    """
    words = np.empty((count, length), dtype=np.int64)
    opening = rng.random((count, length)) < 0.5
    drawn = rng.integers(0, kinds, (count, length))
    even = length - length % 2
    for row in range(count):
        stack: list[int] = []
        for place in range(even):
            must_open, must_close = not stack, len(stack) == even - place
            if must_open or (opening[row, place] and not must_close):
                stack.append(int(drawn[row, place]))
                words[row, place] = stack[-1]
            else:
                words[row, place] = kinds + stack.pop()
        if even < length:
            words[row, even] = drawn[row, even]
    return words


class ProceduralWarmup(nn.Module):
    """A Vision Transformer that reads words instead of patches, and a head that says which symbols are hidden.

    Args:
        network: The model to warm up.
        kinds: Number of kinds of brackets (k); there are twice as many symbols.
        share: The share of the symbols that are hidden.
        seed: The seed of the table and the head.

    Raises:
        ModelError: The model is no Vision Transformer.
    """

    def __init__(self, network: nn.Module, *, kinds: int, share: float, seed: int) -> None:
        super().__init__()
        self.network = token_model(network, "replacing", NEEDS)
        self.kinds, self.share = kinds, share
        self.grid = self.network.config.patch_grid
        self.length, dim = math.prod(self.grid.sides), self.grid.dim
        self.table: Tensor
        self.head = nn.Linear(dim, 2 * kinds)
        generator = seeded(network, seed)
        device = next(network.parameters()).device
        table = torch.empty(2 * kinds + 1, dim, device=device).normal_(std=dim**-0.5, generator=generator)
        self.register_buffer("table", table)  # the last row stands for what is hidden
        self.to(device)
        with torch.no_grad():
            init_linear(self.head, generator)

    def forward(
        self,
        words: Int64[Tensor, "batch symbols"],
        hidden: Bool[Tensor, "batch symbols"],
        part: BatchPart | None = None,
    ) -> Float[Tensor, "batch symbols kinds"]:
        """Return the logits of every symbol, hidden ones having been replaced."""
        seen = torch.where(hidden, 2 * self.kinds, words)
        tokens = TokenGrid(self.table[seen], self.grid.sides)
        encoded = self.network.normalize(self.network.transform(self.network.embed(tokens), part=part))
        return self.head(encoded.patches)

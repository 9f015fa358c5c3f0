"""The decoder of RF-DETR: queries that look at a few places of a map around the box that each of them refines.

It is LW-DETR's (arXiv 2406.03459) with the deformable attention of Deformable DETR (arXiv 2010.04159, equation 2), whose
bilinear samples are gathered by their four neighbours: a graph of gathers runs wherever exported networks do, where
grid_sample does not.
"""

import math
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.attention import Attention, attend
from vitral.models.layers import Linear, Tokens, init_linear, init_torch_default

Queries = Float[Tensor, "batch queries dim"]
References = Float[Tensor, "batch queries 4"]  # middle x, middle y, width, height, in shares of the view
TEMPERATURE = 10_000.0


def refined(references: Float[Tensor, "*boxes 4"], deltas: Float[Tensor, "*boxes 4"]) -> Float[Tensor, "*boxes 4"]:
    """Return boxes moved by shares of their sides and scaled by exponentials ("bbox_reparam")."""
    moved = deltas[..., :2] * references[..., 2:] + references[..., :2]
    return torch.cat([moved, deltas[..., 2:].exp() * references[..., 2:]], dim=-1)


def sine_embedding(references: References, dim: int) -> Float[Tensor, "batch queries four_dim"]:
    """Return sines and cosines of each coordinate, `dim` channels each: y first, then x, width and height."""
    steps = torch.arange(dim, device=references.device) // 2
    angles = references[..., [1, 0, 2, 3], None] * (2 * math.pi / TEMPERATURE ** (2 * steps / dim))
    return torch.stack([angles[..., 0::2].sin(), angles[..., 1::2].cos()], dim=-1).flatten(2)


class BoxMlp(nn.Module):
    """Linear layers with ReLU between, by the widths in, between, and out."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(*pair) for pair in zip(widths[:-1], widths[1:], strict=True))

    def forward(self, values: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch out"]:
        """Return what the last layer gives."""
        for layer in self.layers[:-1]:
            values = functional.relu(layer(values))
        return cast(Tensor, self.layers[-1](values))

    def init_weights(self, generator: torch.Generator, *, last: bool = True) -> None:
        """Draw the layers as torch does; the last one is 0 instead where `last` is false: boxes begin at their references."""
        for layer in cast(list[Linear], list(self.layers)):
            init_torch_default(layer, generator)
        if not last:
            nn.init.zeros_(cast(Linear, self.layers[-1]).weight)
            nn.init.zeros_(cast(Linear, self.layers[-1]).bias)


class DeformableAttention(nn.Module):
    """Each head of a query mixes a few places of the map, around the box that the query refines."""

    def __init__(self, dim: int, num_heads: int, points: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.points = points
        self.offsets = Linear(dim, num_heads * points * 2)
        self.weights = Linear(dim, num_heads * points)
        self.value = Linear(dim, dim)
        self.out = Linear(dim, dim)

    def forward(self, queries: Queries, references: References, memory: Tokens, grid: tuple[int, int]) -> Queries:
        """Return what each query sees; `memory` is the map, row by row, of so many rows and columns."""
        batch, count, _ = queries.shape
        values = self.value(memory).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        shape = (batch, count, self.num_heads, self.points)
        weights = self.weights(queries).view(shape).softmax(dim=-1)
        boxes = references[:, :, None, None]
        places = boxes[..., :2] + self.offsets(queries).view(*shape, 2) / self.points * boxes[..., 2:] * 0.5
        seen = sampled(values, places.transpose(1, 2).flatten(2, 3), grid)
        seen = seen.reshape(*seen.shape[:2], count, self.points, -1)
        mixed = (seen * weights.transpose(1, 2)[..., None]).sum(dim=3)
        return self.out(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Offsets in a direction of each head's own, further out for each point; even weights (Deformable DETR)."""
        angles = torch.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        directions = torch.stack([angles.cos(), angles.sin()], dim=-1)
        directions = directions / directions.abs().amax(dim=-1, keepdim=True)
        offsets = directions[:, None] * torch.arange(1, self.points + 1)[:, None]
        nn.init.zeros_(self.offsets.weight)
        self.offsets.bias.copy_(offsets.flatten())
        nn.init.zeros_(self.weights.weight)
        nn.init.zeros_(self.weights.bias)
        init_linear(self.value, generator)
        init_linear(self.out, generator)


def sampled(
    values: Float[Tensor, "batch heads places dim"], at: Float[Tensor, "batch heads points 2"], grid: tuple[int, int]
) -> Float[Tensor, "batch heads points dim"]:
    """Return a map's values at x and y in shares of it, bilinear between the middles of its places, 0 outside."""
    rows, columns = grid
    x, y = at[..., 0] * columns - 0.5, at[..., 1] * rows - 0.5
    left, top = x.detach().floor(), y.detach().floor()
    result = values.new_zeros(())
    for column, row in ((left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)):
        share = (1 - (x - column).abs()) * (1 - (y - row).abs())
        inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
        index = (row.clamp(0, rows - 1) * columns + column.clamp(0, columns - 1)).long()
        corner = values.gather(2, index[..., None].expand(-1, -1, -1, values.shape[-1]))
        result = result + corner * (share * inside)[..., None]
    return result


class DecoderLayer(nn.Module):
    """Attention among the queries of each group, deformable attention to the map, an MLP; a norm after each."""

    def __init__(self, dim: int, num_heads: int, sampling_heads: int, points: int, mlp_dim: int) -> None:
        super().__init__()
        self.attention = Attention(dim, num_heads)
        self.norm1 = nn.LayerNorm(dim)
        self.sampling = DeformableAttention(dim, sampling_heads, points)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = Linear(dim, mlp_dim)
        self.fc2 = Linear(mlp_dim, dim)
        self.norm3 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(0.0)

    def forward(
        self,
        queries: Queries,
        positions: Queries,
        references: References,
        memory: Tokens,
        grid: tuple[int, int],
        groups: int,
    ) -> Queries:
        """Return the queries after the layer; those of a group see each other alone."""
        queries = self.norm1(queries + self.dropout(self._among(queries, positions, groups)))
        seen = self.sampling(queries + positions, references, memory, grid)
        queries = self.norm2(queries + self.dropout(seen))
        hidden = self.fc2(self.dropout(functional.relu(self.fc1(queries))))
        return self.norm3(queries + self.dropout(hidden))

    def _among(self, queries: Queries, positions: Queries, groups: int) -> Queries:
        attention, (batch, count, dim) = self.attention, queries.shape
        heads = (batch * groups, count // groups, attention.num_heads, -1)
        placed = attention.qkv.part(queries + positions, 0, 2 * dim).chunk(2, dim=2)
        projected = (*placed, attention.qkv.part(queries, 2 * dim))
        query, key, value = (tokens.reshape(heads).transpose(1, 2) for tokens in projected)
        rate = attention.attention_dropout if self.training else 0.0
        mixed = attend(query, key, value, dropout=rate).transpose(1, 2).reshape(batch, count, dim)
        return attention.out(mixed)

    def init_weights(self, generator: torch.Generator) -> None:
        """Linear layers Xavier-uniform; deformable attention as its own class says."""
        self.attention.init_weights(generator)
        self.sampling.init_weights(generator)
        init_linear(self.fc1, generator)
        init_linear(self.fc2, generator)


class BoxDecoder(nn.Module):
    """Layers that refine queries; the boxes that they refer to stay the same ("lite_refpoint_refine")."""

    def __init__(self, layers: list[DecoderLayer], dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(dim)
        self.positions = BoxMlp(2 * dim, dim, dim)

    def forward(
        self, queries: Queries, references: References, memory: Tokens, grid: tuple[int, int], groups: int
    ) -> list[Queries]:
        """Return the normed queries after each layer."""
        positions = self.positions(sine_embedding(references, self.dim // 2).to(queries.dtype))
        after = []
        for layer in self.layers:
            queries = layer(queries, positions, references, memory, grid, groups)
            after.append(self.norm(queries))
        return after

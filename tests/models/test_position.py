"""Relative positions in rows and columns: their formula, where heads look at first, and other grids."""

import itertools

import pytest
import torch

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.attention import Attention
from vitral.models.position import RelativeGrid, neighbours


def drawn(heads: int, grid: tuple[int, int], prefix: int) -> RelativeGrid:
    positions = RelativeGrid(heads, grid, prefix=prefix)
    with torch.no_grad():
        positions.table.normal_(generator=torch.Generator().manual_seed(0))
    return positions


@every_case("prefix", [0, 2])
def test_the_term_is_the_heads_for_rows_and_columns_from_key_to_query(prefix: int) -> None:
    grid = (2, 3)
    positions = drawn(4, grid, prefix)
    added = positions()
    places = list(itertools.product(range(grid[0]), range(grid[1])))
    for head, (i, query), (j, key) in itertools.product(range(4), enumerate(places), enumerate(places)):
        way = query[0] - key[0] + grid[0] - 1, query[1] - key[1] + grid[1] - 1
        assert added[head, prefix + i, prefix + j] == positions.table[head, way[0], way[1]]
    assert not added[:, :prefix].any()
    assert not added[:, :, :prefix].any()


def test_each_head_begins_as_convits_with_a_neighbour_of_its_own() -> None:
    """ConViT (arXiv 2103.10697, equation 5): the score of a way d is -alpha (|d|^2 - 2 D.d), with D the head's neighbour."""
    grid, alpha = (5, 7), 1.0
    positions = RelativeGrid(8, grid, prefix=0)
    positions.init_weights()
    shares = positions().softmax(dim=-1).reshape(8, *grid, *grid)
    looked = set()
    for head in range(8):
        row, column = divmod(int(shares[head, 2, 3].argmax()), grid[1])
        neighbour = row - 2, column - 3
        looked.add(neighbour)
        scores = torch.tensor(
            [
                -alpha * ((d := (y - 2, x - 3))[0] ** 2 + d[1] ** 2 - 2 * (neighbour[0] * d[0] + neighbour[1] * d[1]))
                for y in range(grid[0])
                for x in range(grid[1])
            ]
        )
        torch.testing.assert_close(shares[head, 2, 3].flatten(), scores.softmax(dim=0))
    assert looked == {(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)} - {(0, 0)}


@every_case("count", [1, 3, 4, 8, 12, 16])
def test_neighbours_are_the_nearest_places_each_once(count: int) -> None:
    found = neighbours(count)
    assert len(set(found)) == count
    assert (0, 0) not in found
    farthest = max(row**2 + column**2 for row, column in found)
    nearer = [
        place for place in itertools.product(range(-5, 6), repeat=2) if 0 < place[0] ** 2 + place[1] ** 2 < farthest
    ]
    assert set(nearer) <= set(found)


@every_case("queries", [None, 1])
@every_case("precision", [torch.float32, torch.bfloat16])
def test_the_attention_adds_it_to_every_score(queries: int | None, precision: torch.dtype) -> None:
    layer = Attention(8, 2, grid=(2, 2), prefix=1).train()
    layer.init_weights(torch.Generator().manual_seed(0))
    assert layer.relative_grid is not None
    with torch.no_grad():
        layer.relative_grid.table.normal_(generator=torch.Generator().manual_seed(2))
    tokens = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
    query, key, value = layer.qkv(tokens).reshape(3, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    share = (query @ key.transpose(2, 3) / 2 + layer.relative_grid()).softmax(dim=-1)
    expected = layer.out((share @ value).transpose(1, 2).flatten(2))[:, :queries]
    with torch.autocast("cpu", dtype=precision, enabled=precision == torch.bfloat16):
        given = layer(tokens, num_queries=queries)
    exact = precision == torch.float32
    torch.testing.assert_close(given.float(), expected, rtol=1e-4 if exact else 0.05, atol=1e-6 if exact else 0.02)
    torch.testing.assert_close(layer.probabilities(tokens), share)
    layer.zero_grad()
    with torch.autocast("cpu", dtype=precision, enabled=precision == torch.bfloat16):
        layer(tokens, num_queries=queries).float().square().sum().backward()
    gradient = layer.relative_grid.table.grad
    layer.zero_grad()
    expected.square().sum().backward()
    assert gradient is not None
    wanted = layer.relative_grid.table.grad
    torch.testing.assert_close(gradient, wanted, rtol=1e-3 if exact else 0.1, atol=1e-5 if exact else 0.05)


def test_another_grid_keeps_what_a_head_looks_at_in_the_image() -> None:
    positions = RelativeGrid(4, (4, 4), prefix=0)
    positions.init_weights()
    before = positions().reshape(4, 4, 4, 16)
    positions.resize((4, 4))
    assert torch.equal(positions().reshape(4, 4, 4, 16), before)
    positions.resize((8, 8))
    assert positions().shape == (4, 64, 64)
    for head, (row, column) in enumerate(neighbours(4)):
        looked = divmod(int(positions()[head].reshape(8, 8, 64)[4, 4].argmax()), 8)
        assert (looked[0] - 4) * row >= 0
        assert (looked[1] - 4) * column >= 0
        assert looked != (4, 4)


def test_other_tokens_are_refused() -> None:
    layer = Attention(8, 2, grid=(2, 2))
    layer.init_weights(torch.Generator().manual_seed(0))
    with pytest.raises(ModelError, match="Relative positions need every token"):
        layer(torch.zeros(1, 3, 8))

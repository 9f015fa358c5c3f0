"""Words of nested brackets: every one that is drawn is closed in order, and all of them can be drawn."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.catalog import VARIANTS
from vitral.models.families import build, replace
from vitral.models.layers import BatchPart, TokenGrid
from vitral.models.vit import ViT
from vitral.objectives.masked_patches import masked_patch_loss
from vitral.objectives.procedural import ProceduralWarmup, draw_words


def closed(word: list[int], kinds: int) -> bool:
    stack: list[int] = []
    for symbol in word:
        if symbol < kinds:
            stack.append(symbol)
        elif not stack or stack.pop() != symbol - kinds:
            return False
    return not stack


@every_case(("length", "kinds"), [(2, 1), (16, 3), (64, 64), (196, 64)])
def test_every_bracket_is_closed_in_order(length: int, kinds: int) -> None:
    words = draw_words(50, length, kinds, np.random.default_rng(0))
    assert words.shape == (50, length)
    assert all(closed(word, kinds) for word in words.tolist())
    assert set(words.flatten().tolist()) <= set(range(2 * kinds))


def test_of_an_odd_length_one_symbol_stays_open() -> None:
    words = draw_words(50, 49, 4, np.random.default_rng(0))
    assert all(closed(word[:-1], 4) and word[-1] < 4 for word in words.tolist())


def test_every_word_can_be_drawn() -> None:
    every = {word for word in itertools.product(range(4), repeat=4) if closed(list(word), 2)}
    drawn = Counter(map(tuple, draw_words(4000, 4, 2, np.random.default_rng(1)).tolist()))
    assert set(drawn) == every
    assert len(every) == 8  # two shapes of nesting, two brackets of two kinds each
    nested = sum(count for word, count in drawn.items() if word[1] < 2)
    assert nested / 4000 == pytest.approx(0.5, abs=0.03)


def made(seed: int = 1) -> ProceduralWarmup:
    network = build(replace(VARIANTS["vit-mu16"], image_size=(64, 64), num_classes=3, depth=1), seed=0)
    return ProceduralWarmup(network, kinds=5, share=0.5, seed=seed)


def test_the_network_reads_words_in_the_place_of_patches() -> None:
    module = made()
    words = torch.from_numpy(draw_words(3, 16, 5, np.random.default_rng(0)))
    hidden = torch.rand(words.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    logits = module(words, hidden)
    assert logits.shape == (3, 16, 10)
    other = torch.where(hidden, (words + 1) % 10, words)
    assert torch.equal(module(other, hidden), logits)  # what is hidden cannot be seen
    shown = torch.where(hidden, words, (words + 1) % 10)
    assert not torch.equal(module(shown, hidden), logits)


def test_the_table_never_learns_and_the_blocks_do() -> None:
    module = made()
    words = torch.from_numpy(draw_words(3, 16, 5, np.random.default_rng(0)))
    hidden = torch.zeros(words.shape, dtype=torch.bool)
    hidden[:, ::2] = True
    loss, right = masked_patch_loss(module(words, hidden), hidden, words)
    expected = functional.cross_entropy(module(words, hidden)[:, ::2].flatten(0, 1), words[:, ::2].flatten())
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert 0 <= float(right) <= 1
    loss.backward()  # type: ignore[no-untyped-call]
    learned = {name for name, value in module.named_parameters() if value.grad is not None}
    assert "table" in dict(module.named_buffers())
    assert any("attention" in name for name in learned)
    assert not any("patch_embedding" in name or name == "network.head.weight" for name in learned)
    assert torch.equal(made().table, module.table)
    assert not torch.equal(made(seed=2).table, module.table)


def test_only_a_vision_transformer_reads() -> None:
    network = build(replace(VARIANTS["resnet-10"], image_size=(32, 32), num_classes=3), seed=0)
    with pytest.raises(ModelError, match=r"^The procedural warm-up needs a Vision Transformer"):
        ProceduralWarmup(network, kinds=5, share=0.5, seed=0)


@every_case(("size", "length"), [((64, 32), 8), ((32, 64), 8), ((48, 32), 6)])
def test_a_word_is_as_long_as_the_patches_are_many(size: tuple[int, int], length: int) -> None:
    network = build(replace(VARIANTS["vit-mu16"], image_size=size, num_classes=3, depth=1), seed=0)
    module = ProceduralWarmup(network, kinds=5, share=0.5, seed=1)
    assert module.length == length
    words = torch.from_numpy(draw_words(2, length, 5, np.random.default_rng(0)))
    assert module(words, torch.zeros_like(words, dtype=torch.bool)).shape == (2, length, 10)


def test_the_table_has_a_row_for_each_symbol_and_one_for_what_is_hidden_each_about_as_long_as_1() -> None:
    module = made()
    assert module.table.shape == (11, module.network.config.dim)
    assert float(module.table.norm(dim=1).mean()) == pytest.approx(1.0, abs=0.1)


def test_a_network_of_rotary_positions_reads_too() -> None:
    config = replace(
        VARIANTS["vit-mu16"], image_size=(64, 64), num_classes=3, depth=1, position="none", rotary="dinov3"
    )
    module = ProceduralWarmup(build(config, seed=0), kinds=5, share=0.5, seed=1)
    words = torch.from_numpy(draw_words(3, 16, 5, np.random.default_rng(0)))
    assert module(words, torch.zeros_like(words, dtype=torch.bool)).shape == (3, 16, 10)


def test_a_part_of_a_batch_loses_the_branches_that_it_would_lose_in_the_whole() -> None:
    config = replace(VARIANTS["vit-mu16"], image_size=(64, 64), num_classes=3, depth=3, stochastic_depth=0.5)
    network = build(config, seed=0).train()
    assert isinstance(network, ViT)
    module = ProceduralWarmup(network, kinds=5, share=0.5, seed=1)
    words, part = torch.from_numpy(draw_words(4, 16, 5, np.random.default_rng(0))), BatchPart(5, 9)
    shown = torch.zeros_like(words, dtype=torch.bool)
    torch.manual_seed(3)
    logits = module(words, shown, part)
    torch.manual_seed(3)
    tokens = network.embed(TokenGrid(module.table[words], network.config.grid))
    encoded = network.normalize(network.transform(tokens, part=part))
    torch.testing.assert_close(logits, module.head(encoded.patches))
    torch.manual_seed(3)
    assert not torch.allclose(module(words, shown), logits)


def test_what_is_said_right_is_counted_of_the_hidden_symbols_alone() -> None:
    words = torch.tensor([[0, 3, 1, 2], [2, 2, 0, 1]])
    hidden = torch.tensor([[True, True, True, False], [True, False, False, False]])
    said = torch.tensor([[0, 3, 1, 0], [1, 0, 1, 0]])  # three of the hidden four, and none of the others
    assert float(masked_patch_loss(functional.one_hot(said, 4).float(), hidden, words)[1]) == 0.75

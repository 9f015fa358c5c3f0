"""Tokens between a backbone's steps: dropped, masked, appended, of several sizes; and heads that the backbone does not know."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.cases import every_case
from tests.models.test_contract import CONFIGS, images, make
from vitral.errors import ModelError
from vitral.models.families import build
from vitral.models.layers import FeatureMaps, TokenGrid
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig

CONFIG = ViTConfig(image_size=(16, 16), patch_size=(4, 4), dim=32, depth=4, mlp_dim=64, num_heads=2, num_classes=3)


def network(**fields: object) -> ViT:
    model = build(dataclasses.replace(CONFIG, **fields), seed=3)  # type: ignore[arg-type]
    assert isinstance(model, ViT)
    return model


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@every_case("name", CONFIGS)
def test_every_backbone_gives_maps_that_a_dense_head_can_read(name: str) -> None:
    model = make(name)
    encoded = model.encode(images(model))
    assert isinstance(encoded, TokenGrid | FeatureMaps)
    batch, channels, rows, columns = encoded.maps.shape
    assert batch == 2
    assert rows * columns > 1
    dense = nn.Conv2d(channels, 5, 1)
    assert dense(encoded.maps).shape == (2, 5, rows, columns)
    if isinstance(encoded, TokenGrid):
        assert torch.equal(encoded.maps.flatten(2).transpose(1, 2), encoded.patches)
        assert encoded.prefix + rows * columns == encoded.tokens.shape[1]


def test_the_steps_of_the_forward_pass_make_the_whole() -> None:
    model = network(registers=2)
    z = model.embed(model.patches(drawn(2, 3, 16, 16)))
    assert (z.prefix, z.suffix, z.grid) == (3, 0, (4, 4))
    halves = model.transform(model.transform(z, stop=2), start=2)
    assert torch.equal(halves.tokens, model.transform(z).tokens)
    encoded = model.normalize(halves)
    assert torch.equal(encoded.tokens, model.encode(drawn(2, 3, 16, 16)).tokens)
    torch.testing.assert_close(model.pool(encoded), model.features(drawn(2, 3, 16, 16)))


def test_dropped_patches_are_as_if_no_token_attended_to_them() -> None:
    model = network(registers=1)
    z = model.embed(model.patches(drawn(2, 3, 16, 16)))
    kept = torch.stack([torch.arange(16)[:6], torch.arange(16)[10:]])
    dropped = model.transform(z.keep(kept))
    mask = torch.zeros(2, 1, 1, 18, dtype=torch.bool)
    mask[:, :, :, :2] = True
    mask[:, 0, 0].scatter_(1, kept + 2, torch.ones(2, 6, dtype=torch.bool))
    masked = model.transform(z, mask=mask)
    torch.testing.assert_close(dropped.tokens[:, :2], masked.tokens[:, :2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dropped.patches, masked.keep(kept).patches, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(masked.tokens, model.transform(z).tokens, atol=1e-3)
    with pytest.raises(ModelError, match="make no feature map"):
        _ = dropped.maps


def test_images_of_several_sizes_go_through_in_one_batch() -> None:
    large, small = network(pooling="gap"), network(pooling="gap")
    small.resize((8, 12))
    first = large.embed(large.patches(drawn(1, 3, 16, 16)))
    second = small.embed(small.patches(drawn(1, 3, 8, 12, seed=1)))
    lengths = [first.tokens.shape[1], second.tokens.shape[1]]
    padded = functional.pad(second.tokens, (0, 0, 0, lengths[0] - lengths[1]), value=9.0)
    mask = torch.arange(lengths[0])[None] < torch.tensor(lengths)[:, None]
    both = TokenGrid(torch.cat([first.tokens, padded]), None)
    mixed = large.transform(both, mask=mask[:, None, None]).tokens
    torch.testing.assert_close(mixed[:1], large.transform(first).tokens, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mixed[1:, : lengths[1]], small.transform(second).tokens, rtol=1e-4, atol=1e-5)


class QueryHead(nn.Module):
    """EoMT's shape (arXiv 2503.19108): queries join the tokens before the last blocks; a class and a mask each come out.

    In those blocks a query attends to the patches of the mask that it has so far, as in the paper's masked attention.
    """

    def __init__(self, backbone: ViT, *, queries: int, classes: int, last_blocks: int) -> None:
        super().__init__()
        dim = backbone.config.dim
        self.backbone = backbone
        self.first = backbone.config.depth - last_blocks
        self.queries = nn.Parameter(0.02 * drawn(1, queries, dim))
        self.class_head = nn.Linear(dim, classes)
        self.mask_head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, inputs: Tensor, *, masked: bool = False) -> tuple[Tensor, Tensor]:
        z = self.backbone.transform(self.backbone.embed(self.backbone.patches(inputs)), stop=self.first)
        z = z.append(self.queries.expand(len(inputs), -1, -1))
        for block in range(self.first, self.backbone.config.depth):
            mask = self.attention_mask(z) if masked else None
            z = self.backbone.transform(z, start=block, stop=block + 1, mask=mask)
        return self.read(z)

    def read(self, z: TokenGrid) -> tuple[Tensor, Tensor]:
        encoded = self.backbone.normalize(z)
        queries = encoded.appended
        return self.class_head(queries), torch.einsum("bqd,bdrc->bqrc", self.mask_head(queries), encoded.maps)

    def attention_mask(self, z: TokenGrid) -> Tensor:
        seen = self.read(z)[1].detach().flatten(2) > 0
        seen = seen | ~seen.any(dim=2, keepdim=True)
        length, (rows, columns) = z.tokens.shape[1], z.grid or (0, 0)
        mask = torch.ones(len(z.tokens), 1, length, length, dtype=torch.bool)
        mask[:, 0, length - z.suffix :, z.prefix : z.prefix + rows * columns] = seen
        return mask


def test_a_head_of_queries_needs_nothing_of_the_backbone_but_its_steps() -> None:
    model = network(registers=1)
    before = model(drawn(2, 3, 16, 16))
    head = QueryHead(model, queries=5, classes=4, last_blocks=2).train()
    logits, masks = head(drawn(2, 3, 16, 16), masked=True)
    assert (logits.shape, masks.shape) == ((2, 5, 4), (2, 5, 4, 4))
    torch.stack([logits.square().mean(), masks.square().mean()]).sum().backward()  # type: ignore[no-untyped-call]
    read = {name for name, parameter in head.named_parameters() if parameter.grad is not None}
    assert {name for name, _ in head.named_parameters()} - read == {"backbone.head.weight", "backbone.head.bias"}
    assert torch.equal(model(drawn(2, 3, 16, 16)), before)
    assert set(head.backbone.state_dict()) == set(network(registers=1).state_dict())


def test_a_head_of_queries_learns_where_a_thing_is() -> None:
    torch.manual_seed(0)
    head = QueryHead(network(depth=3), queries=2, classes=2, last_blocks=2).train()
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3)

    def scenes(count: int, seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        truth = torch.rand(count, 4, 4, generator=generator) < 0.3
        bright = truth.repeat_interleave(4, 1).repeat_interleave(4, 2)[:, None].float()
        return bright + 0.3 * torch.randn(count, 3, 16, 16, generator=generator), truth

    for step in range(60):
        pixels, truth = scenes(16, step)
        logits, masks = head(pixels, masked=step % 2 == 0)
        wanted = torch.stack([truth, ~truth], dim=1).float()
        loss = functional.binary_cross_entropy_with_logits(masks, wanted)
        kinds = torch.arange(2).expand(len(pixels), -1)
        loss = loss + functional.cross_entropy(logits.flatten(0, 1), kinds.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    pixels, truth = scenes(64, 999)
    with torch.no_grad():
        logits, masks = head.eval()(pixels)
    union = ((masks[:, 0] > 0) | truth).sum()
    assert float(((masks[:, 0] > 0) & truth).sum() / union) > 0.9
    assert bool((logits.argmax(dim=2) == torch.arange(2)).all())

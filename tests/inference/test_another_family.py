"""The joint's proof: families of networks that no room knows get all that they say they can, and one line where they cannot."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.explanation.explain import explain
from vitral.explanation.network import analyze
from vitral.exporting.export import export
from vitral.images.preprocessing import PHOTOS
from vitral.inference.merging import merge_tokens
from vitral.inference.native import NativeAspect
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.attention import Mask
from vitral.models.blocks import Block
from vitral.models.catalog import VARIANTS
from vitral.models.families import FAMILIES, Family, build, count_macs
from vitral.models.layers import BatchPart, FeatureMaps, TokenGrid
from vitral.models.model import Images, Model, ModelConfig, PatchGrid, Positions, TokenModel, Use
from vitral.models.position import sincos_table
from vitral.models.record import record
from vitral.objectives.masked_autoencoder import MaskedAutoencoder
from vitral.objectives.masked_patches import MaskedPatchPrediction
from vitral.objectives.procedural import ProceduralWarmup

PATCH = 8
DIM = 16
OF_ONE_SIZE = "its positions are those of one size"


@dataclass(frozen=True, kw_only=True, slots=True)
class WeaveConfig(ModelConfig):
    """A network of tokens that says of each use whether it can."""

    image_size: tuple[int, int] = (32, 40)
    num_classes: int = 3

    @property
    def patch_grid(self) -> PatchGrid:
        """Patches of 8x8 pixels behind a class token."""
        return PatchGrid((self.image_size[0] // PATCH, self.image_size[1] // PATCH), (PATCH, PATCH), prefix=1, dim=DIM)

    @property
    def known_macs(self) -> int:
        """A number that no count gives."""
        return 42

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use: of one use only."""
        return OF_ONE_SIZE if use == "packing" else ""


class Weave(TokenModel):
    """The network of one `WeaveConfig`: patches, a class token, fixed positions, two blocks."""

    config: WeaveConfig
    position: Tensor

    def __init__(self, config: WeaveConfig) -> None:
        super().__init__()
        self.config = config
        self.cut = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.empty(1, 1, DIM))
        self.register_buffer("position", sincos_table(config.patch_grid.sides, DIM))
        self.layers = nn.ModuleList(Block(DIM, 2, 2 * DIM) for _ in range(2))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, config.num_classes)

    def patches(self, images: Images) -> TokenGrid:
        """Cut images into patches."""
        return TokenGrid(self.cut(images).flatten(2).transpose(1, 2), self.config.patch_grid.sides)

    def embed(self, patches: TokenGrid) -> TokenGrid:
        """Put the class token before the patches and add the positions."""
        tokens = torch.cat(
            [self.class_token.expand(patches.tokens.shape[0], -1, -1), patches.tokens + self.position], dim=1
        )
        return TokenGrid(tokens, patches.grid, prefix=1)

    def transform(
        self,
        z: TokenGrid,
        *,
        start: int = 0,
        stop: int | None = None,
        num_queries: int | None = None,
        mask: Mask | None = None,
        part: BatchPart | None = None,
    ) -> TokenGrid:
        """Return the tokens after the blocks."""
        tokens = z.tokens
        for block in self.blocks()[start:stop]:
            tokens, _ = block(tokens, mask=mask, part=part)
        return z.with_tokens(tokens)

    def normalize(self, z: TokenGrid) -> TokenGrid:
        """Return the tokens after the norm."""
        return z.with_tokens(self.norm(z.tokens))

    def encode(self, images: Images, part: BatchPart | None = None) -> TokenGrid:
        """Return the tokens."""
        return self.normalize(self.transform(self.embed(self.patches(images)), part=part))

    def features(self, images: Images, part: BatchPart | None = None) -> Tensor:
        """Return the class token."""
        return self.pool(self.encode(images, part))

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Tensor:
        """Return the class token."""
        assert isinstance(encoded, TokenGrid)
        return encoded.tokens[:, 0]

    @property
    def maps_at(self) -> str:
        """Where the tokens enter the last attention."""
        return "blocks.1.norm1"

    def patch_filters(self) -> Tensor:
        """Return the filters."""
        return self.cut.weight

    def positions(self) -> Positions:
        """Return the waves."""
        return Positions(self.position[0], "fixed")

    def blocks(self) -> list[nn.Module]:
        """Return the blocks."""
        return list(self.layers)

    def apply_rates(self) -> None:
        """Do nothing."""

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw everything."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            parameter.normal_(std=0.3, generator=generator)
        self.position.copy_(sincos_table(self.config.patch_grid.sides, DIM))


@dataclass(frozen=True, kw_only=True, slots=True)
class PaneConfig(ModelConfig):
    """A convolution that says nothing of itself."""

    image_size: tuple[int, int] = (32, 40)
    num_classes: int = 3


class Pane(Model):
    """The network of one `PaneConfig`: what every family has to define, and no more."""

    config: PaneConfig

    def __init__(self, config: PaneConfig) -> None:
        super().__init__()
        self.config = config
        self.convolution = nn.Conv2d(3, 4, 5, 4)
        self.head = nn.Linear(4, config.num_classes)

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the maps."""
        return FeatureMaps(self.convolution(images))

    def features(self, images: Images, part: BatchPart | None = None) -> Tensor:
        """Return the mean."""
        return self.encode(images, part).maps.relu().mean(dim=(2, 3))

    def blocks(self) -> list[nn.Module]:
        """Return the convolution."""
        return [self.convolution]

    def apply_rates(self) -> None:
        """Do nothing."""

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw everything."""
        for parameter in self.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register both families for the time of a test, each by one row."""
    for name, config, network in (("weave", WeaveConfig, Weave), ("pane", PaneConfig, Pane)):
        monkeypatch.setitem(FAMILIES, name, Family(name, config, network, ()))
        monkeypatch.setitem(VARIANTS, name, config())
    yield
    count_macs.cache_clear()


def weave() -> Classifier:
    return Classifier(build(WeaveConfig()), PHOTOS.with_size((32, 40)))


def pane() -> Classifier:
    return Classifier(build(PaneConfig()), PHOTOS.with_size((32, 40)))


def photo() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8)


IMAGES = torch.randn(2, 3, 32, 40, generator=torch.Generator().manual_seed(0))


def test_its_attention_is_recorded_and_followed() -> None:
    model = weave().model
    with record(model, "blocks.*.attention") as attention, torch.no_grad():
        model(IMAGES)
    assert [tuple(layer.shape) for layer in attention.values()] == 2 * [(2, 2, 21, 21)]
    attended = TorchPredictor(model).attention(IMAGES)
    for recorded, layer in zip(attention.values(), attended.attentions, strict=True):
        torch.testing.assert_close(recorded, layer)
    assert (attended.grid, attended.stride, attended.num_prefix_tokens) == ((4, 5), (8, 8), 1)
    assert attended.pooling[0].tolist() == [1.0] + 20 * [0.0]
    seen = TorchPredictor(model).layer_attention(IMAGES, 1)
    torch.testing.assert_close(seen.maps.flatten(2), attended.attentions[0][:, :, 0, 1:])


@every_case("method", ["rollout", "relevance", "attention", "grad-cam"])
def test_it_is_explained_by_every_method(method: str) -> None:
    found = explain(weave(), photo(), method=method)  # type: ignore[arg-type]
    assert found.relevance.shape == (4, 5)
    assert found.relevance.max() > 0


def test_its_class_maps_are_the_tokens_that_enter_the_last_attention() -> None:
    model = weave().model
    maps = TorchPredictor(model).class_maps(IMAGES, 1)
    with record(model, "blocks.1.norm1") as recorded, torch.no_grad():
        model(IMAGES)
    torch.testing.assert_close(maps.maps.flatten(2).transpose(1, 2), recorded["blocks.1.norm1"][:, 1:])
    assert bool(maps.gradients.any())


def test_it_is_analyzed(tmp_path: Path) -> None:
    Image.fromarray(photo()).save(tmp_path / "photo.png")
    found = analyze(weave(), tmp_path, listener=ignore)
    assert found.patch_filters is not None
    assert found.patch_filters.shape == (16, 8, 8, 3)
    assert found.position_similarity is not None
    assert found.position_similarity.shape == (4, 5, 4, 5)
    assert found.position_kind == "fixed"
    assert found.attention_distance is not None
    assert found.missing == ()


def test_it_learns_without_labels() -> None:
    rows, hidden = MaskedPatchPrediction(weave().model, share=0.5, seed=0)(IMAGES)
    assert (tuple(rows.shape), tuple(hidden.shape)) == ((2, 20, 512), (2, 20))
    rebuilt, hidden = MaskedAutoencoder(weave().model, share=0.75, depth=1, width=8, heads=2, seed=0)(IMAGES)
    assert (tuple(rebuilt.shape), int(hidden.sum())) == ((2, 20, 8 * 8 * 3), 30)
    words = torch.zeros(2, 20, dtype=torch.long)
    assert ProceduralWarmup(weave().model, kinds=4, share=0.5, seed=0)(words, words.bool()).shape == (2, 20, 8)


def test_its_tokens_are_merged() -> None:
    model = weave().model
    lengths: list[int] = []
    norm = model.get_submodule("layers.1.norm1")
    norm.register_forward_hook(lambda module, taken, given: lengths.append(given.shape[1]))
    with torch.no_grad():
        plain = model(IMAGES)
        merged = merge_tokens(model, 3)(IMAGES)
    assert lengths == [21, 18]
    assert 0 < float((merged - plain).abs().max()) < math.inf


@pytest.mark.long
def test_it_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert export(weave(), tmp_path / "exported", listener=ignore).holds


def test_it_is_counted_by_its_own_formula() -> None:
    assert count_macs(WeaveConfig()) == 42
    assert count_macs(PaneConfig()) == 3 * 4 * 25 * 7 * 9 + 4 * 3


def test_it_is_refused_by_its_own_reason() -> None:
    with pytest.raises(ModelError, match=rf"^weave .*: {OF_ONE_SIZE}\.$"):
        NativeAspect(weave().model)


def test_what_says_nothing_is_explained_by_its_last_maps() -> None:
    found = explain(pane(), photo())
    assert (found.method, found.relevance.shape) == ("Grad-CAM", (7, 9))


REFUSED: dict[str, Callable[[], object]] = {
    "attention rollout": lambda: explain(pane(), photo(), method="rollout"),
    "attention": lambda: explain(pane(), photo(), method="attention"),
    "layer": lambda: TorchPredictor(pane().model).layer_attention(IMAGES),
    "relevance": lambda: TorchPredictor(pane().model).class_attention(IMAGES),
    "analysis": lambda: analyze(pane(), listener=ignore),
    "merging": lambda: merge_tokens(pane().model, 1),
    "packing": lambda: NativeAspect(pane().model),
    "masking": lambda: MaskedPatchPrediction(pane().model, share=0.5, seed=0),
    "dropping": lambda: MaskedAutoencoder(pane().model, share=0.5, depth=1, width=8, heads=2, seed=0),
    "replacing": lambda: ProceduralWarmup(pane().model, kinds=4, share=0.5, seed=0),
}


def test_what_says_nothing_is_refused_in_one_line() -> None:
    for name, use in REFUSED.items():
        with pytest.raises(ModelError) as raised:
            use()
        said = str(raised.value)
        assert "\n" not in said, name
        assert any(reason in said for reason in ("Vision Transformer", "no attention")), f"{name}: {said}"

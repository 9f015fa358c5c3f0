"""Every method against its formula written out anew, on tiny networks of every family; and which family allows which."""

import dataclasses
import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import every_case
from tests.explanation.networks import MAPPED, SIZE, random_network
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError
from vitral.explanation.explain import explain
from vitral.explanation.methods import Choice
from vitral.images.preprocessing import Preprocessing
from vitral.models.coatnet import CoAtNet
from vitral.models.convolution import WhitenedStemConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.layers import TokenGrid
from vitral.models.model import Model, ModelConfig
from vitral.models.position import Rotation, rotate
from vitral.models.resnet import StemConfig
from vitral.models.t2t import T2TViT
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig

VIT = ViTConfig(patch_size=(8, 8), dim=16, depth=3, mlp_dim=24, num_heads=2, **SIZE)
CONFIGS: dict[str, ModelConfig] = {
    "vit": VIT,
    "distilled": dataclasses.replace(VIT, distilled=True, registers=2),
    "gap": dataclasses.replace(VIT, pooling="gap"),
    "token-gap": dataclasses.replace(VIT, pooling="token-gap"),
    "map": dataclasses.replace(VIT, pooling="map", layer_scale=0.5),
    "rotary": dataclasses.replace(VIT, rotary="dinov3", position="none"),
    "experts": dataclasses.replace(VIT, experts=ExpertsConfig(blocks=(1,), num_experts=2)),
    "r-vit": dataclasses.replace(VIT, stem=StemConfig(stages=(1,)), patch_size=(2, 2)),
    "conv-vit": dataclasses.replace(
        VIT,
        stem=WhitenedStemConfig(patch=2, step=2, widths=(8, 8)),
        patch_size=(1, 1),
        pooling="gap",
    ),
    **MAPPED,
}
CHAINED = ("vit", "distilled", "gap", "token-gap", "map", "rotary", "experts", "r-vit", "conv-vit", "t2t")
HYBRIDS = ("r-vit", "conv-vit")


def classifier_of(name: str) -> Classifier:
    return Classifier(random_network(CONFIGS[name]), Preprocessing(image_size=(32, 48)), ["ant", "bee", "cat", "dog"])


def photo() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


class ByHand:
    """A network whose attention is computed head by head, each table of probabilities kept for its gradient."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tables: list[list[Tensor]] = []  # by layer and head
        for block in model.blocks() if type(model) in (ViT, T2TViT) else ():
            block.attention.forward = partial(self.mix, block.attention)  # type: ignore[union-attr]

    def mix(
        self,
        layer: Any,  # noqa: ANN401
        tokens: Tensor,
        *,
        num_queries: int | None = None,
        mask: None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        queries, keys, values = layer.qkv(tokens).chunk(3, dim=-1)
        dim = tokens.shape[-1] // layer.num_heads
        self.tables.append([])
        mixed = []
        for head in range(layer.num_heads):
            part = slice(head * dim, (head + 1) * dim)
            query, key = queries[:, :, part], keys[:, :, part]
            if rotation is not None:
                query, key = (rotate(one[:, None], rotation)[:, 0] for one in (query, key))
            scores = torch.einsum("bqd,bkd->bqk", query, key).div(math.sqrt(dim)).exp()
            table = scores / scores.sum(dim=-1, keepdim=True)
            table.retain_grad()
            self.tables[-1].append(table)
            mixed.append(table @ values[:, :, part])
        result: Tensor = layer.out(torch.cat(mixed, dim=-1))
        return result[:, :num_queries]

    def __call__(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


def shares(name: str, model: Model, images: Tensor) -> np.ndarray:
    """Return what each token counts in the answer."""
    tokens = 24 + {"distilled": 4, "gap": 0, "conv-vit": 0, "map": 0}.get(name, 1) if name != "t2t" else 7
    weights = np.zeros(tokens)
    if name == "distilled":
        weights[:2] = 0.5
    elif name in ("gap", "conv-vit"):
        weights[:] = 1 / tokens
    elif name == "token-gap":
        weights[0], weights[1:] = 0.5, 0.5 / (tokens - 1)
    elif name == "map":
        assert isinstance(model, ViT)
        pool = model.map_head.attention
        query = pool.query(model.map_head.probe)[0, 0].view(2, 8)
        keys = pool.key(model.encode(images).patches)[0].view(tokens, 2, 8)
        scores = torch.einsum("hd,khd->hk", query, keys) / math.sqrt(8)
        weights[:] = scores.softmax(dim=-1).mean(dim=0).detach().numpy()
    else:
        weights[0] = 1.0
    return weights


def doubled(name: str) -> tuple[Classifier, Tensor, ByHand]:
    """Return a classifier in double precision, its prepared image, and the same network by hand."""
    classifier = classifier_of(name)
    precision = torch.float32 if name == "r-vit" else torch.float64  # its standardised convolutions are float32's
    classifier.model.to(precision)
    images = classifier.preprocessing(photo())[None].to(precision)
    return classifier, images, ByHand(random_network(CONFIGS[name]).to(precision))


def same(found: np.ndarray, expected: np.ndarray, name: str = "") -> None:
    assert expected.max() > 0, "a map of zeros would test nothing"
    tolerance = 1e-5 if name == "r-vit" else 1e-6
    np.testing.assert_allclose(found / expected.max(), expected / expected.max(), rtol=0, atol=tolerance)


@every_case("name", CHAINED)
def test_rollout_is_its_formula(name: str) -> None:
    classifier, images, by_hand = doubled(name)
    by_hand(images.requires_grad_())
    rolled = np.eye(by_hand.tables[0][0].shape[-1])
    for heads in by_hand.tables:
        mean = np.mean([head[0].detach().numpy() for head in heads], axis=0)
        rolled = (0.5 * mean + 0.5 * np.eye(len(mean))) @ rolled
    row = shares(name, by_hand.model, images) @ rolled
    explanation = explain(classifier, photo(), method="rollout")
    same(explanation.relevance.flatten(), row[-explanation.relevance.size :], name)


@every_case("label", [None, "cat"])
@every_case("name", CHAINED)
def test_relevance_is_its_formula(name: str, label: str | None) -> None:
    classifier, images, by_hand = doubled(name)
    logits = by_hand(images.requires_grad_())
    target = int(logits[0].argmax()) if label is None else classifier.class_names.index(label)
    logits[0, target].backward()  # type: ignore[no-untyped-call]
    tokens = by_hand.tables[0][0].shape[-1]
    relevance = np.eye(tokens)
    for heads in by_hand.tables:
        products = [(head.grad[0] * head[0]).detach().numpy() for head in heads if head.grad is not None]
        assert len(products) == len(heads)
        relevance += np.mean([np.maximum(product, 0) for product in products], axis=0) @ relevance
    row = shares(name, by_hand.model, images) @ (relevance - np.eye(tokens))
    explanation = explain(classifier, photo(), method="relevance", label=label)
    same(explanation.relevance.flatten(), row[-explanation.relevance.size :], name)
    assert explanation.label == classifier.class_names[target]
    assert explanation.method == "class-specific relevance"


@every_case("name", CHAINED)
def test_one_layer_and_one_head_are_the_networks_own(name: str) -> None:
    classifier, images, by_hand = doubled(name)
    by_hand(images.requires_grad_())
    layers = len(by_hand.tables)
    tables = [[head[0].detach().numpy() for head in heads] for heads in by_hand.tables]
    weights = shares(name, by_hand.model, images)
    for layer, head in itertools.product((1, layers), (1, 2)):
        shown = explain(classifier, photo(), layer=layer, head=head)
        assert (shown.method, shown.part) == ("attention", f"layer {layer} of {layers}, head {head} of 2")
        same(shown.relevance.flatten(), (weights @ tables[layer - 1][head - 1])[-shown.relevance.size :], name)
    shown = explain(classifier, photo(), method="attention")
    assert shown.part == f"layer {layers} of {layers}, mean of 2 heads"
    same(shown.relevance.flatten(), (weights @ np.mean(tables[-1], axis=0))[-shown.relevance.size :], name)


@every_case("label", [None, "cat"])
@every_case("name", HYBRIDS)
def test_grad_cam_of_a_hybrid_is_of_what_its_convolutions_hand_on(name: str, label: str | None) -> None:
    classifier, images, _ = doubled(name)
    model = classifier.model
    assert isinstance(model, ViT)
    assert model.stem is not None
    maps = model.stem(images).detach().requires_grad_()
    patches = TokenGrid(model.patch_embedding(maps).flatten(2).transpose(1, 2), model.config.grid)
    logits = model.head(model.pool(model.normalize(model.transform(model.embed(patches)))))[0]
    target = int(logits.argmax()) if label is None else 2
    logits[target].backward()
    assert maps.grad is not None
    weights = maps.grad[0].mean(dim=(1, 2))
    expected = sum(weight * channel for weight, channel in zip(weights, maps[0].detach(), strict=True))
    shown = explain(classifier, photo(), method="grad-cam", label=label)
    assert isinstance(expected, Tensor)
    same(shown.relevance, np.maximum(expected.numpy(), 0), name)
    assert (shown.method, shown.label) == ("Grad-CAM", classifier.class_names[target])


def test_a_layer_of_cvt_is_shown_on_the_grid_of_its_keys() -> None:
    classifier, images, _ = doubled("cvt")
    stages: Any = classifier.model.stages
    with torch.no_grad():
        second = stages[1](stages[0](images).maps)
        stage = stages[2]
        grid = stage.embedding(second.maps).shape[2:]
        tokens = stage.norm(stage.embedding(second.maps).flatten(2).transpose(1, 2))
        tokens = torch.cat([stage.class_token, tokens], dim=1)
        tokens = stage.layers[0](tokens, tuple(grid))
        layer = stage.layers[1].attention
        normed = stage.layers[1].norm1(tokens)
        keys = layer.key_map(normed[:, 1:].transpose(1, 2).unflatten(2, tuple(grid)))
        keys = layer.key(torch.cat([normed[:, :1], keys], dim=1))[0].view(-1, 4, 8)
        query = layer.query(normed[:, 0])[0].view(4, 8)
        rows = (torch.einsum("hd,khd->hk", query, keys) * 32**-0.5).softmax(dim=-1)[:, 1:].numpy()
    shown = explain(classifier, photo(), method="attention", head=3)
    assert (shown.part, shown.relevance.shape) == ("layer 4 of 4, head 3 of 4", (1, 2))  # a grid of 2 by 3, halved
    same(shown.relevance.flatten(), rows[2])
    early = explain(classifier, photo(), layer=1)
    assert (early.part, early.relevance.shape) == ("layer 1 of 4, mean of 1 heads", (4, 6))
    assert early.relevance.sum() == pytest.approx(1.0, abs=1e-6)  # no class token, so that nothing is left out


def test_a_layer_of_coatnet_is_the_mean_of_its_queries() -> None:
    classifier, images, _ = doubled("coatnet")
    model = classifier.model
    assert isinstance(model, CoAtNet)
    with torch.no_grad():
        maps = model.stem2(nn.functional.gelu(model.stem_norm(model.stem1(images))))
        *others, last = model.blocks()
        for earlier in others:
            maps = earlier(maps)
        block: Any = last
        tokens = block.norm1(maps.permute(0, 2, 3, 1)).flatten(1, 2)
        query, key, _ = block.attention.qkv(tokens)[0].view(-1, 3, 2, 8).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(8)
        rows, columns = maps.shape[2:]
        for one, other in itertools.product(range(rows * columns), repeat=2):
            down, right = one // columns - other // columns, one % columns - other % columns
            scores[:, one, other] += block.attention.bias[:, down + rows - 1, right + columns - 1]
        expected = scores.softmax(dim=-1).mean(dim=1).view(2, rows, columns).numpy()
    shown = explain(classifier, photo(), layer=3, head=2)
    assert shown.part == "layer 3 of 3, head 2 of 2"  # the convolutions are not counted
    same(shown.relevance, expected[1])


@every_case("name", CONFIGS)
@every_case("label", [None, "bee"])
def test_auto_explains_every_family(name: str, label: str | None) -> None:
    classifier = classifier_of(name)
    shown = explain(classifier, photo(), label=label)
    predicted = classifier.predict(photo())[0]
    if name not in CHAINED or name == "t2t":
        assert shown.method == "Grad-CAM"
    else:
        assert shown.method == "class-specific relevance"
    assert shown.label == (label or predicted.label)
    assert shown.top[0][0] == predicted.label
    expected = dict(predicted.top)[shown.label]
    assert shown.probability == pytest.approx(expected, abs=1e-5)


@every_case(
    ("name", "method", "said"),
    [
        ("cvt", "rollout", "CvT cannot be .* keys are of fewer positions than its queries"),
        ("cvt", "relevance", "CvT cannot be .* keys are of fewer positions than its queries"),
        ("coatnet", "rollout", "CoAtNet cannot be .* it pools between the layers of attention"),
        ("coatnet", "relevance", "CoAtNet cannot be .* it pools between the layers of attention"),
        ("resnet", "rollout", "resnet-10.* cannot be .* it has no attention"),
        ("resnet", "relevance", "resnet-10.* cannot be .* it has no attention"),
        (
            "resnet",
            "attention",
            "resnet-10.* by attention: it has no attention; Grad-CAM explains it .`method='auto'`.",
        ),
        ("vit", "gradcam", "no method 'gradcam'.* Did you mean 'grad-cam'"),
    ],
)
def test_what_a_family_does_not_allow_is_said_with_the_reason(name: str, method: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ModelError, match=said) as raised:
        explain(classifier_of(name), photo(), method=method)
    assert "\n" not in str(raised.value)


@every_case(
    ("asked", "said"),
    [
        ({"layer": 4}, "3 layers of attention, counted from 1; there is no layer 4"),
        ({"layer": 0}, "there is no layer 0"),
        ({"head": 3}, "Layer 3 of 3 has 2 heads, counted from 1; there is no head 3"),
        ({"head": -1}, "there is no head -1"),
        ({"method": "rollout", "layer": 1}, "belong to `method='attention'`"),
        ({"method": "relevance", "head": 1}, "belong to `method='attention'`"),
        ({"method": "rollout", "label": "cat"}, "whatever the class"),
        ({"method": "attention", "label": "cat"}, "whatever the class"),
        ({"label": "zebra"}, "no class 'zebra'. Its classes are ant, bee, cat, dog"),
        ({"label": "catt"}, "no class 'catt'. Did you mean 'cat'"),
    ],
)
def test_what_does_not_fit_the_network_is_one_line(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        explain(classifier_of("vit"), photo(), **asked)


def test_why_attention_was_not_taken_is_said_where_one_would_ask() -> None:
    reasons = {
        name: explain(classifier_of(name), photo()).reason for name in ("cvt", "coatnet", "resnet", "vit", "t2t")
    }
    assert reasons.pop("cvt").startswith("CvT is not explained by its attention: its keys")
    assert reasons.pop("coatnet").startswith("CoAtNet is not explained by its attention: it pools")
    assert set(reasons.values()) == {""}


def test_a_map_of_a_class_speaks_for_that_class() -> None:
    maps = [explain(classifier_of("vit"), photo(), label=label).relevance for label in ("ant", "bee")]
    assert not np.allclose(maps[0] / maps[0].sum(), maps[1] / maps[1].sum(), atol=0.01)


def test_the_network_is_left_as_it_was() -> None:
    classifier = classifier_of("vit")
    model = classifier.model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    methods: tuple[Choice, ...] = ("relevance", "attention")
    for method in methods:
        explain(classifier, photo(), method=method)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())

"""A network's analysis against the formulas written out anew, and the folder that it is written to."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, StorageError
from vitral.explanation.network import analyze, attention_distance, patch_filters, position_similarity
from vitral.images.preprocessing import Preprocessing
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.resnet import ResNetConfig, StemConfig
from vitral.models.t2t import T2TConfig
from vitral.models.vit_config import ViTConfig
from vitral.report.pages import FILES, write_network

T2T = T2TConfig(image_size=(32, 48), num_classes=3, dim=16, depth=2, mlp_dim=24, num_heads=2)


def network(config: Any) -> Model:  # noqa: ANN401  # of any family
    """Build a network all of whose weights are random."""
    model = build(config)
    model.init_weights(0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def photos(folder: Path, count: int) -> Path:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("family", ["vit", "t2t"])
def test_distances_are_their_formula(tiny_config: ViTConfig, family: str) -> None:
    vit = dataclasses.replace(tiny_config, patch_size=(4, 6), image_size=(8, 18), registers=1)
    config: Any = vit if family == "vit" else T2T
    rows, columns, (down, right), prefix = (2, 3, (4, 6), 2) if family == "vit" else (2, 3, (16, 16), 1)
    predictor = TorchPredictor(network(config))
    images = torch.randn(3, 3, *config.image_size, generator=torch.Generator().manual_seed(0))
    tables = [layer.double().numpy() for layer in predictor.attention(images).attentions]
    expected = np.zeros((2, 2))
    for layer, head, image in itertools.product(range(2), range(2), range(3)):
        for query, key in itertools.product(range(rows * columns), repeat=2):
            away = math.hypot((query // columns - key // columns) * down, (query % columns - key % columns) * right)
            weight = tables[layer][image, head, prefix + query, prefix + key]
            expected[layer, head] += weight * away / (rows * columns) / 3
    np.testing.assert_allclose(attention_distance(predictor, images).pixels, expected, rtol=0, atol=1e-6)


def test_filters_are_the_eigenvectors_of_their_covariance(tiny_config: ViTConfig) -> None:
    model = network(dataclasses.replace(tiny_config, dim=64))
    weight: Any = model.patch_embedding.weight  # type: ignore[union-attr]
    covariance = np.cov(weight.detach().double().flatten(1).numpy(), rowvar=False)
    _, vectors = np.linalg.eigh(covariance)
    found = patch_filters(model)
    assert found is not None
    assert found.shape == (28, 4, 4, 3)
    for image, vector in zip(found, vectors.T[::-1], strict=False):  # eigh begins with the smallest
        sign = np.sign(vector[np.abs(vector).argmax()])
        expected = (sign * vector).reshape(3, 4, 4).transpose(1, 2, 0)
        expected = (expected - expected.min()) / np.ptp(expected)
        np.testing.assert_allclose(image, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["vit", "t2t"])
def test_similarities_are_cosines(tiny_config: ViTConfig, family: str) -> None:
    model: Any = network(dataclasses.replace(tiny_config, image_size=(8, 12)) if family == "vit" else T2T)
    table = (model.position.embedding if family == "vit" else model.position)[0, 1:].detach().double().numpy()
    similarity = position_similarity(model)
    assert similarity is not None
    for one, other in itertools.product(range(6), repeat=2):
        cosine = table[one] @ table[other] / np.linalg.norm(table[one]) / np.linalg.norm(table[other])
        assert similarity[one // 3, one % 3, other // 3, other % 3] == pytest.approx(cosine, abs=1e-6)


def test_the_folder_has_page_drawings_figures_and_arrays(tiny_config: ViTConfig, tmp_path: Path) -> None:
    classifier = Classifier(network(tiny_config), Preprocessing(image_size=(16, 16)))
    analysis = analyze(classifier, photos(tmp_path / "photos", 5))
    write_network(analysis, tmp_path / "out", classifier="<b>mine</b>")
    write_network(analysis, tmp_path / "out", classifier="<b>mine</b>")  # its own is replaced
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    arrays = np.load(tmp_path / "out" / "network.npz")
    assert {name: arrays[name].shape for name in arrays.files} == {
        "patch_filters": (16, 4, 4, 3),
        "position_similarity": (4, 4, 4, 4),
        "attention_distance": (2, 2),
    }
    figures = json.loads((tmp_path / "out" / "network.json").read_text())
    assert figures["num_images"] == 5
    np.testing.assert_allclose(figures["attention_distance"], arrays["attention_distance"], rtol=1e-6)
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<script" not in page
    assert "<b>mine" not in page
    for name in ("positions.svg", "distances.svg"):
        drawing = (tmp_path / "out" / name).read_text()
        assert drawing.startswith("<?xml")
        assert "var(--" not in drawing
    with Image.open(tmp_path / "out" / "filters.png") as drawn:
        assert drawn.format == "PNG"


def test_a_folder_of_the_users_is_not_touched(tiny_config: ViTConfig, tmp_path: Path) -> None:
    analysis = analyze(Classifier(network(tiny_config), Preprocessing(image_size=(16, 16))))
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StorageError, match="thesis.txt"):
        write_network(analysis, tmp_path, classifier="x")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_page_of_the_users_is_replaced_only_if_allowed(tiny_config: ViTConfig, tmp_path: Path) -> None:
    analysis = analyze(Classifier(network(tiny_config), Preprocessing(image_size=(16, 16))))
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(StorageError, match="already exists"):
        write_network(analysis, tmp_path, classifier="x")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("index.html", "mine")]
    write_network(analysis, tmp_path, classifier="x", overwrite=True)
    write_network(analysis, tmp_path, classifier="x")  # now it is our own
    assert "network analysis" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("changes", "kind", "said", "never"),
    [
        ({}, "learned", "that has learned where patches lie", "fixed"),
        ({"position": "learned-2d"}, "learned", "that has learned where patches lie", "fixed"),
        ({"position": "sincos-2d"}, "fixed", "It is fixed, of sines and cosines", "has learned"),
        ({"position_at": "layers"}, "learned", "2 tables of it, one a block; this is the first block's", "fixed"),
        (
            {"position": "sincos-2d", "position_at": "layers"},
            "fixed",
            "It is fixed, of sines and cosines",
            "has learned",
        ),
        ({"position": "none"}, "", "no position embedding to compare", "learned"),
        (None, "fixed", "It is fixed, of sines and cosines", "has learned"),
    ],
)
def test_the_page_says_only_what_is_so_of_the_positions(
    tiny_config: ViTConfig, tmp_path: Path, changes: dict[str, Any] | None, kind: str, said: str, never: str
) -> None:
    config: Any = T2T if changes is None else dataclasses.replace(tiny_config, **changes)
    analysis = analyze(Classifier(network(config), Preprocessing(image_size=config.image_size)))
    assert analysis.position_kind == analysis.to_json().get("position_kind", "") == kind
    write_network(analysis, tmp_path / "out", classifier="mine")
    page = (tmp_path / "out" / "index.html").read_text()
    assert said in page
    assert never not in page
    several = kind == "learned" and (changes or {}).get("position_at") == "layers"  # fixed ones are all the same
    assert ("tables of it" in page) == several == ("position_tables" in analysis.to_json())
    assert "three panels" not in page
    panels = [name for name, part in (("patch filters", config is not T2T), ("position embeddings", kind)) if part]
    assert f"{' and '.join(panels).capitalize()} of the network of <bdi>mine</bdi>, as in" in page


def test_what_a_network_has_not_is_said(tiny_config: ViTConfig) -> None:
    hybrid = dataclasses.replace(
        tiny_config, patch_size=(1, 1), image_size=(32, 32), stem=StemConfig(stages=()), position="none"
    )
    analysis = analyze(Classifier(network(hybrid), Preprocessing(image_size=(32, 32))))
    assert [sentence.split()[1] for sentence in analysis.missing] == ["patches", "is", "far"]
    assert analysis.arrays() == {}
    resnet = ResNetConfig(stages=(1,), bottleneck=False, image_size=(32, 32), num_classes=3)
    with pytest.raises(ModelError, match="neither patches nor position embeddings"):
        analyze(Classifier(network(resnet), Preprocessing(image_size=(32, 32))))

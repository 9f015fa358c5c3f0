"""Images of none of the classes: what a classifier remembers, in its folder and out of it, and what it says by that."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.covariance import LedoitWolf

import vitral
from tests.cases import every_case
from vitral.classifier.bulk.predict_to_file import predict_to_file
from vitral.classifier.classifier import Classifier
from vitral.classifier.convert import convert
from vitral.classifier.folder import read, save
from vitral.classifier.novelty import DISTANCES, Distance, KnownImages, Novelty, Space, whitening
from vitral.errors import VitralError
from vitral.events import Event, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.weights.containers import write_safetensors

LIMIT = Novelty("mahalanobis", 5.0, 0.05, 0.1, 0.2, "b", 0.9, 40, learned=False)


def images(count: int, *, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8))


@pytest.fixture
def classifier(tiny_config: ViTConfig) -> Classifier:
    """A classifier that remembers noise."""
    made = Classifier(build(tiny_config, seed=0), PHOTOS.with_size(16), ("a", "b", "c"))
    torch.nn.init.normal_(made.model.head.weight, generator=torch.Generator().manual_seed(0))
    seen = torch.stack([made.preprocessing(image) for image in images(60)])
    labels = torch.arange(60) % 3
    made.remember(KnownImages(made.predictor.features(seen), labels, torch.arange(60) >= 48), LIMIT)
    return made


def test_whitening_is_the_inverse_of_the_shrunk_covariance_within_the_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    for count, width in ((300, 8), (20, 30)):
        features = torch.randn(count, width, generator=generator, dtype=torch.float64) * torch.linspace(0.1, 3, width)
        labels = torch.arange(count) % 3
        within = features.clone()
        for label in range(3):
            within[labels == label] -= features[labels == label].mean(dim=0)
        found = whitening(features + 5.0 * labels[:, None], labels)
        expected = LedoitWolf(assume_centered=True).fit(within.numpy()).precision_
        assert np.allclose((found @ found.T).numpy(), expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_distances_are_as_their_formulas_say() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(50, 4, generator=generator), torch.arange(50) % 2 * 2  # one class has no image
    space = Space(KnownImages(features, labels, torch.zeros(50, dtype=torch.bool)))
    query, matrix = torch.randn(3, 4, generator=generator), space.whitening.float()
    means = torch.stack([features[labels == label].mean(dim=0) for label in (0, 2)])
    away = (query[:, None] - means) @ matrix
    assert torch.allclose(space.novelty(query, "mahalanobis"), away.norm(dim=2).min(dim=1).values, rtol=1e-4)
    placed, known = (query - features.mean(dim=0)) @ matrix, (features - features.mean(dim=0)) @ matrix
    cosines = torch.nn.functional.cosine_similarity(placed[:, None], known[None], dim=2)
    assert torch.allclose(space.novelty(query, "cosine"), 1 - cosines.max(dim=1).values, atol=1e-5)


@every_case("distance", DISTANCES)
def test_images_that_are_all_alike_are_at_no_distance_from_one_another(distance: Distance) -> None:
    labels = torch.arange(20) % 2
    space = Space(KnownImages(torch.ones(20, 4), labels, torch.zeros(20, dtype=torch.bool)))
    assert torch.isfinite(space.novelty(torch.ones(1, 4), distance)).all()
    assert (space.novelty(torch.tensor([[1.0, 2.0, 0.0, 1.0]]), distance) > 0.9).all()


def test_answers_stay_to_the_bit_and_say_what_is_of_none_of_the_classes(classifier: Classifier, tmp_path: Path) -> None:
    known = classifier.known_images
    assert known is not None
    new = images(6, seed=1)
    told = classifier.predict(new, listener=ignore)
    prepared = torch.stack([classifier.preprocessing(image) for image in new])
    far = known.space.novelty(classifier.predictor.features(prepared), "mahalanobis") / LIMIT.threshold
    assert [one.novelty for one in told] == pytest.approx(far.tolist())
    assert [one.known for one in told] == [value <= 1 for value in far.tolist()]
    assert told[0].to_json()["known"] is told[0].known
    again = vitral.load(save(classifier, tmp_path / "kept"), listener=ignore)
    assert [one.novelty for one in again.predict(new, listener=ignore)] == pytest.approx(far.tolist(), rel=0.01)
    classifier.remember(None)
    plain = classifier.predict(new, listener=ignore)
    assert [one.top for one in plain] == [one.top for one in told]
    assert plain[0].novelty is None
    assert "known" not in plain[0].to_json()


def test_a_file_of_predictions_has_two_columns_more(classifier: Classifier, tmp_path: Path) -> None:
    for number, image in enumerate(images(3, seed=1)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    out = tmp_path / "told.jsonl"
    predict_to_file(classifier, sorted(map(str, tmp_path.glob("*.png"))), out, listener=ignore)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    expected = classifier.predict(images(3, seed=1), listener=ignore)
    assert [row["known"] for row in rows] == [one.known for one in expected]
    assert [row["novelty"] for row in rows] == pytest.approx([one.novelty for one in expected])


def spoil(classifier: Classifier, change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    """Return what writes other tensors into a folder, under the mark of its weights."""

    def write(folder: Path) -> None:
        known = classifier.known_images
        assert known is not None
        tensors = known.tensors()
        change(tensors)
        weights = json.loads((folder / "classifier.json").read_text())["weights_sha256"]
        write_safetensors(tensors, folder / "features.safetensors", {"weights.safetensors": weights})

    return write


def of_other_weights(folder: Path) -> None:
    write_safetensors({"features": torch.zeros(1)}, folder / "features.safetensors", {"weights.safetensors": "0"})


@every_case(
    "change",
    [
        lambda tensors: tensors.pop("labels"),
        lambda tensors: tensors.update(features=torch.zeros(60, 3)),
        lambda tensors: tensors.update(features=tensors["features"] * torch.nan),
        lambda tensors: tensors.update(labels=torch.full((60,), 3.0)),
        lambda tensors: tensors.update(labels=torch.full((60,), -1.0)),
        lambda tensors: tensors.update(labels=torch.zeros(())),
        lambda tensors: tensors.update(held_out=torch.ones(60)),
        None,
        b"no tensors",
    ],
)
def test_what_is_damaged_or_of_other_weights_is_not_used(
    change: Callable[[dict[str, torch.Tensor]], object] | bytes | None, classifier: Classifier, tmp_path: Path
) -> None:
    folder = save(classifier, tmp_path / "kept")
    if isinstance(change, bytes):
        (folder / "features.safetensors").write_bytes(change)
    else:
        (of_other_weights if change is None else spoil(classifier, change))(folder)
    again = read(folder)
    assert again.novelty is None
    assert again.known_images is None
    assert not again.tells_novelty


def test_a_network_that_changes_forgets(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "kept")
    said: list[Event] = []
    assert vitral.load(folder, image_size=24, listener=said.append).novelty is None
    assert any("none of the classes" in str(event) for event in said)
    merged = vitral.load(folder, merge=1, listener=said.append)
    assert not merged.tells_novelty
    assert merged.predict(images(1), listener=ignore)[0].known is None
    trained = vitral.load(folder, listener=ignore)
    assert trained.novelty == LIMIT
    with torch.no_grad():
        trained.model.head.weight.add_(1)
    assert trained.novelty is None
    assert not (save(trained, tmp_path / "trained") / "features.safetensors").exists()
    replaced = vitral.load(folder, listener=ignore)
    replaced.model = build(replaced.model.config, seed=1)
    assert replaced.novelty is None


def test_other_formats_say_that_they_do_not_keep_it(classifier: Classifier, tmp_path: Path) -> None:
    own = convert(classifier, tmp_path / "own", format="vitral", listener=ignore)
    assert vitral.load(own.path, listener=ignore).novelty == LIMIT
    assert LIMIT.sentence() in (own.path / "README.md").read_text()
    theirs = convert(classifier, tmp_path / "theirs.safetensors", format="timm", listener=ignore)
    assert any("none of the classes" in note for note in theirs.notes)


@every_case("values", [{"threshold": 0.0}, {"area": 1.5}, {"distance": "far"}, {"refused": "0"}])
def test_a_limit_that_cannot_be_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(VitralError):
        Novelty.from_json({**LIMIT.to_json(), **values})

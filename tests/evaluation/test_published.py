"""A classifier on published datasets, as a user types it, beside a reference of a few lines."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.published.written import (
    CIFAR10,
    cifar10_files,
    imagenet_archives,
    jpeg,
    pixels,
    real_json,
    v2_files,
    write,
)
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.images.decode import read_image
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig


def saved(config: ViTConfig, folder: Path, names: list[str] | None, count: int) -> Classifier:
    model = ViT(config)
    model.init_weights(0)
    model.replace_head(count)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if name.startswith("head"):  # of zeros it would name one class for all images
            parameter.data.normal_(generator=generator)
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)), names)
    save(classifier, folder)
    return classifier


def answers(classifier: Classifier, images: list[np.ndarray]) -> list[int]:
    return [int(classifier.probabilities(classifier.preprocessing(image)[None]).argmax()) for image in images]


def scored(capsys: pytest.CaptureFixture[str], data: str, classifier: Path) -> dict[str, float]:
    capsys.readouterr()
    assert main(["evaluate", "--data", data, "--classifier", str(classifier), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_reassessed_labels_as_their_authors_count_them(
    tiny_config: ViTConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier = saved(tiny_config, tmp_path / "classifier", None, 1000)
    predictions = answers(classifier, [read_image(jpeg(900 + number)) for number in range(1, 6)])
    # One of several labels is right, none is there, one label that is wrong, the one label that is right, two that are wrong.
    wrong = (predictions[2] + 1) % 1000
    real = [sorted({predictions[0], 5, 800}), [], [wrong], [predictions[3]], [wrong, (wrong + 1) % 1000]]
    if predictions[4] in real[4]:
        real[4] = [(predictions[4] + 7) % 1000]
    write(tmp_path / "imagenet", {**imagenet_archives(), "real.json": real_json(real)})
    scores = scored(capsys, f"imagenet-real:{tmp_path / 'imagenet'}", tmp_path / "classifier")
    is_correct = [prediction in real[index] for index, prediction in enumerate(predictions) if real[index]]
    assert scores["top1"] == pytest.approx(np.mean(is_correct), abs=1e-12) == 0.5
    assert scores["num_examples"] == 4


def test_imagenet_and_its_second_version_by_index(
    tiny_config: ViTConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier = saved(tiny_config, tmp_path / "classifier", None, 1000)
    write(tmp_path / "v2", v2_files())
    write(tmp_path / "imagenet", imagenet_archives())
    predictions = answers(classifier, [read_image(jpeg(900 + number)) for number in range(1, 6)])
    scores = scored(capsys, f"imagenet:{tmp_path / 'imagenet'}", tmp_path / "classifier")
    truth = (0, 999, 1, 0, 999)
    assert scores["top1"] == np.mean([one == other for one, other in zip(predictions, truth, strict=True)])
    scores = scored(capsys, f"imagenet-v2:{tmp_path / 'v2'}", tmp_path / "classifier")
    assert scores["num_examples"] == 8


def test_cifar_by_name_in_any_order(tiny_config: ViTConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(CIFAR10, reverse=True)
    classifier = saved(tiny_config, tmp_path / "classifier", names, 10)
    write(tmp_path / "cifar", cifar10_files())
    scores = scored(capsys, f"cifar10:{tmp_path / 'cifar'}", tmp_path / "classifier")
    predictions = answers(classifier, [pixels(500 + number) for number in range(20)])
    right = [names[prediction] == CIFAR10[number % 10] for number, prediction in enumerate(predictions)]
    assert scores["top1"] == pytest.approx(np.mean(right))
    assert len(set(predictions)) > 1


def test_classes_that_do_not_match_are_one_line(
    tiny_config: ViTConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tiny_config, tmp_path / "classifier", ["cat", "horse", "zebra"], 3)
    write(tmp_path / "cifar", cifar10_files())
    data = f"cifar10:{tmp_path / 'cifar'}"
    assert main(["evaluate", "--data", data, "--classifier", str(tmp_path / "classifier")]) != 0
    line = capsys.readouterr().err.strip().splitlines()[-1]
    for fact in ("cat, horse, zebra", "bird, cat, deer, … (10 in all)", "bird, deer, dog, … (8 in all)", "has zebra."):
        assert fact in line

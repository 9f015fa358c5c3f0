"""Scoring a classifier on real files: every image once, classes by name."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.open import open_data
from vitral.errors import DataError
from vitral.evaluation.evaluate import evaluate, predict_probabilities
from vitral.events import Event, Progress
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.tasks.metrics import Evaluation

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220)}


def colour_classifier(config: ViTConfig, names: Sequence[str]) -> Classifier:
    """Build a network whose logits are the mean red, green and blue of an image, in the order of `names`."""
    model = ViT(config)
    model.init_weights(0)
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)), names)
    channels = [list(COLOURS).index(name) for name in names]
    # The network itself is replaced by arithmetic on its input, so that every prediction is known.
    model.forward = lambda images: 5 * images.mean(dim=(2, 3))[:, channels]  # type: ignore[method-assign]
    return classifier


def write_colours(folder: Path, counts: dict[str, int]) -> Path:
    """Write images of one colour each into a test split."""
    for name, count in counts.items():
        for split in ("train", "test"):
            (folder / split / name).mkdir(parents=True)
            for index in range(count):
                pixels = np.full((9, 12, 3), COLOURS[name], dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{index}.png")
    return folder


def test_classes_are_matched_by_name(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_colours(tmp_path / "photos", {"red": 3, "green": 2, "blue": 4})
    for names in (["red", "green", "blue"], ["green", "blue", "red"]):
        evaluation = evaluate(colour_classifier(tiny_config, names), folder)
        assert isinstance(evaluation, Evaluation)
        assert evaluation.top1 == 1.0
        assert evaluation.class_names == tuple(names)
        assert dict(zip(names, evaluation.support, strict=True)) == {"red": 3, "green": 2, "blue": 4}


def test_a_class_without_images_shifts_nothing(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_colours(tmp_path / "photos", {"red": 3, "blue": 2})
    classifier = colour_classifier(tiny_config, ["blue", "green", "red"])
    by_path = evaluate(classifier, folder)
    by_data = evaluate(classifier, open_data(folder))
    assert by_path == by_data
    assert isinstance(by_path, Evaluation)
    assert by_path.recall == (1.0, None, 1.0)
    assert by_path.support == (2, 0, 3)


def test_an_unknown_class_is_named(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_colours(tmp_path / "photos", {"red": 3, "blue": 2})
    classifier = colour_classifier(tiny_config, ["red", "green", "blue"])
    classifier.class_names = ("red", "green", "blues")
    for data in (folder, open_data(folder)):
        with pytest.raises(DataError, match=r"'blue' .*Did you mean 'blues'"):
            evaluate(classifier, data)


def test_an_unknown_split_is_named(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_colours(tmp_path / "photos", {"red": 3, "blue": 2})
    with pytest.raises(DataError, match="no split 'tests'.*Did you mean 'test'"):
        evaluate(colour_classifier(tiny_config, ["red", "green", "blue"]), folder, split="tests")


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_each_image_counts_once(tiny_config: ViTConfig, batch_size: int) -> None:
    model = ViT(tiny_config)
    model.init_weights(0)
    model.replace_head(10)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)), [str(digit) for digit in range(10)])
    source = open_digits().splits["validation"]
    events: list[Event] = []
    probabilities, labels = predict_probabilities(classifier, source, batch_size=batch_size, listener=events.append)
    assert labels.tolist() == source.labels().tolist()
    assert events[-1] == Progress("evaluate", len(source), len(source))
    last = classifier.probabilities(classifier.preprocessing(source.image(len(source) - 1))[None])
    torch.testing.assert_close(probabilities[-1], last[0])


def test_a_finite_source_is_taken_whole(tiny_config: ViTConfig) -> None:
    source = open_digits().splits["validation"]
    model = ViT(tiny_config)
    model.init_weights(0)
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)))
    _, labels = predict_probabilities(classifier, source, limit=10)
    assert len(labels) == len(source)

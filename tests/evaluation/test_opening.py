"""What is said or refused before a classifier is asked: drawn splits, images that may have several right labels."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.evaluation.test_compare import SHADES, shade_classifier
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.source import DataSet
from vitral.data.subset import DRAWN_ANEW, Subset
from vitral.errors import DataError
from vitral.evaluation.aspects import aspects
from vitral.evaluation.compare import compare
from vitral.evaluation.corruptions import robustness
from vitral.evaluation.opening import open_split
from vitral.events import Event, Message, ignore
from vitral.models.vit_config import ViTConfig
from vitral.tasks.any_right_label import ANY_RIGHT_LABEL
from vitral.tasks.task import Label


class Several(Subset):
    """Images of several classes."""

    def label(self, index: int) -> Label:
        return (0, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda classifier, data: aspects(classifier, data, listener=ignore),
        lambda classifier, data: robustness(classifier, data, listener=ignore),
        lambda classifier, data: compare(classifier, classifier, data, listener=ignore),
    ],
    ids=["aspects", "robustness", "compare"],
)
def test_images_that_may_have_several_right_labels_are_refused(
    tiny_config: ViTConfig, ask: Callable[[Classifier, DataSet], object]
) -> None:
    digits = open_digits()
    splits = {name: Several(source, range(3)) for name, source in digits.splits.items()}
    data = dataclasses.replace(digits, splits=splits, class_names=tuple(SHADES), task=ANY_RIGHT_LABEL)
    with pytest.raises(DataError, match="digits .*several right labels"):
        ask(shade_classifier(tiny_config, list(SHADES)), data)


@pytest.mark.parametrize(
    ("folders", "split", "validation", "said"),
    [
        (("train",), None, False, True),
        (("train",), "train", False, False),
        (("train", "test"), None, False, False),
        (("train", "test"), None, True, True),
        (("train", "test"), "validation", False, True),
        (("train", "val"), None, False, False),
    ],
)
def test_that_the_validation_split_may_have_been_learned_is_said_where_it_is_used(
    tiny_config: ViTConfig, tmp_path: Path, folders: tuple[str, ...], split: str | None, validation: bool, said: bool
) -> None:
    random = np.random.default_rng(0)
    for folder in folders:
        for name in SHADES:
            (tmp_path / folder / name).mkdir(parents=True)
            for number in range(20):
                pixels = random.integers(0, 256, (8, 8, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / folder / name / f"{number}.png")
    events: list[Event] = []
    open_split(
        tmp_path,
        [shade_classifier(tiny_config, list(SHADES))],
        split=split,
        classes=None,
        skip_bad_images=False,
        listener=events.append,
        validation=validation,
    )
    assert (DRAWN_ANEW in [event.text for event in events if isinstance(event, Message)]) == said

"""What is refused before a classifier is asked: images that may have several right labels."""

import dataclasses
from collections.abc import Callable

import pytest

from tests.evaluation.test_compare import SHADES, shade_classifier
from vitral.classifier.classifier import Classifier
from vitral.data.digits import open_digits
from vitral.data.source import DataSet
from vitral.data.subset import Subset
from vitral.errors import DataError
from vitral.evaluation.aspects import aspects
from vitral.evaluation.compare import compare
from vitral.evaluation.corruptions import robustness
from vitral.events import ignore
from vitral.models.vit_config import ViTConfig
from vitral.tasks.any_label import ANY_LABEL
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
    data = dataclasses.replace(digits, splits=splits, class_names=tuple(SHADES), task=ANY_LABEL)
    with pytest.raises(
        DataError, match="Images of digits may have several right labels; only images that have one class"
    ):
        ask(shade_classifier(tiny_config, list(SHADES)), data)

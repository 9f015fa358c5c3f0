"""One order of classes everywhere."""

import numpy as np
import pytest

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.inference.ranking import check_finite, rank


def test_the_most_probable_classes_come_first() -> None:
    probabilities = np.array([0.125, 0.5, 0.0, 0.25])
    assert rank(probabilities, 3) == [(1, 0.5), (3, 0.25), (0, 0.125)]
    assert rank(probabilities, 1) == [(1, 0.5)]
    assert rank(probabilities, 9) == [(1, 0.5), (3, 0.25), (0, 0.125), (2, 0.0)]


def test_of_equally_probable_classes_the_first_comes_first() -> None:
    # Many: sorts and partial sorts that are not stable keep the order of a few.
    probabilities = np.full(2000, 0.25)
    probabilities[1990] = 0.5
    assert [index for index, _ in rank(probabilities, 6)] == [1990, 0, 1, 2, 3, 4]
    assert [index for index, _ in rank(probabilities, 2000)] == [1990, *range(1990), *range(1991, 2000)]


@every_case("top", [0, -1])
def test_no_class_at_all_cannot_be_asked_for(top: int) -> None:
    with pytest.raises(ModelError, match=f"not {top}; set top"):
        rank(np.array([0.5, 0.5]), top)


@every_case("value", ["nan", "inf", "-inf"])
def test_the_first_image_whose_values_are_no_numbers_is_named(value: str) -> None:
    values = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
    check_finite(values, ["a", "b", "c"])
    values[1, 1] = values[2, 0] = float(value)
    with pytest.raises(ModelError, match="'b'.*damaged"):
        check_finite(values, ["a", "b", "c"])

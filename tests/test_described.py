"""Dataclasses from JSON values of anyone's: what fits is read, and what does not is named."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.cases import every_case
from vitral.described import LATER, read_described
from vitral.errors import ModelError, VitralError


@dataclass(frozen=True)
class Part:
    sizes: tuple[int, ...]
    kind: Literal["a", "b"] = field(default="a", metadata=LATER)


@dataclass(frozen=True)
class Whole:
    width: int
    rate: float
    part: Part | None = None
    name: str | None = field(default=None, metadata=LATER)


GOOD: dict[str, Any] = {"width": 3, "rate": 1, "part": {"sizes": [1, 2]}}


def test_what_was_written_is_read_with_its_parts() -> None:
    whole = read_described(Whole, GOOD, "It")
    assert whole == Whole(3, 1.0, Part((1, 2)))
    again = read_described(Whole, dataclasses.asdict(whole), "It")
    assert again == whole
    assert read_described(Whole, {**GOOD, "part": None, "name": "x"}, "It") == Whole(3, 1.0, None, "x")


@every_case(
    ("values", "message"),
    [
        (None, "It is described by its fields, not by None"),
        ([1], r"not by \[1\]"),
        ({**GOOD, "widthh": 3}, "unknown field 'widthh'. Did you mean 'width'"),
        ({"width": 3, "part": None}, "It lacks the field 'rate'"),
        ({"width": 3, "rate": 0.1}, "It lacks the field 'part'"),
        ({**GOOD, "width": 3.5}, "It's 'width' cannot be 3.5"),
        ({**GOOD, "width": True}, "It's 'width' cannot be True"),
        ({**GOOD, "rate": float("nan")}, "It's 'rate' cannot be nan"),
        ({**GOOD, "part": 7}, "It's 'part' cannot be 7"),
        ({**GOOD, "part": {"sizes": ["x"]}}, r"It's 'sizes' cannot be \['x'\]"),
        ({**GOOD, "part": {"sizes": [], "kind": "c"}}, "It's 'kind' cannot be 'c'"),
        ({**GOOD, "width": "9" * 1000}, "It's 'width' cannot be '9{59}…"),
    ],
)
def test_what_does_not_fit_is_named(values: object, message: str) -> None:
    with pytest.raises(VitralError, match=message):
        read_described(Whole, values, "It")
    with pytest.raises(ModelError):
        read_described(Whole, values, "It", ModelError)

"""What a user may write after --set, and where it goes."""

from typing import Any

import pytest

from tests.cases import every_case
from vitral.described import override, spelled
from vitral.errors import RecipeError, WeightsError


@every_case(
    ("text", "value"),
    [
        ("0.01", 0.01),
        ("1_000", 1000),
        ("true", True),
        ("[1, 3]", [1, 3]),
        ("{ p = 0.5 }", {"p": 0.5}),  # TOML
        ('{"p": 0.5}', {"p": 0.5}),  # JSON
        ("null", None),  # which TOML has no word for
        ("bf16", "bf16"),
        ("none", "none"),
        ('"8"', "8"),
        ("", ""),
        ("a = b", "a = b"),
        ("[" * 10_000, "[" * 10_000),
    ],
)
def test_a_value_is_what_toml_or_json_calls_it_and_else_a_word(text: str, value: object) -> None:
    assert spelled(text) == value
    assert type(spelled(text)) is type(value)


def test_changes_go_where_their_keys_say_and_the_last_holds() -> None:
    values: dict[str, Any] = {"optimizer": {"lr": 0.1, "name": "sgd"}, "steps": 10}
    for change in ("optimizer.lr=0.01", "a.b.c=x=y", "steps=20", "steps = 30"):
        override(values, change, error=RecipeError, example="")
    assert values == {"optimizer": {"lr": 0.01, "name": "sgd"}, "steps": 30, "a": {"b": {"c": "x=y"}}}


@every_case("change", ["steps", "=3", " =3", "", "optimizer.=3"])
def test_what_is_no_change_is_refused_with_one_that_is(change: str) -> None:
    values: dict[str, Any] = {"steps": 10}
    with pytest.raises(WeightsError, match="write KEY=VALUE, such as num_heads=8"):
        override(values, change, error=WeightsError, example="num_heads=8")
    assert values == {"steps": 10}


def test_a_value_has_no_settings_of_its_own() -> None:
    with pytest.raises(RecipeError, match="'steps.many' names no setting: 'steps' is a value"):
        override({"steps": 10}, "steps.many=3", error=RecipeError, example="")

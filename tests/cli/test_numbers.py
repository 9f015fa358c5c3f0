"""Numbers on the command line are read where they say what is meant, and refused by the flag's name otherwise."""

from typing import get_args

import pytest
from cyclopts import CoercionError

from tests.cases import every_case
from vitral.cli.commands import COMMANDS
from vitral.cli.main import app, main
from vitral.errors import RecipeError
from vitral.training.settings.recipe import build_recipe

STRANGE = ("32.9", "2.0", "0x20", "0b11", "1_000", "٣", "３", "1,5", "1e1", "inf", "nan", "none", "null", "two", "true")
WHOLE = (
    ("finetune", "--data", "digits", "--image-size"),
    ("finetune", "--data", "digits", "--seed"),
    ("pretrain", "--seed"),
    ("predict", "x.png", "--top"),
    ("predict", "x.png", "--merge"),
    ("explain", "x.png", "--layer"),
    ("study", "positions", "--runs"),
    ("vtab", "net", "--data", "x", "--test-images"),
    ("bench", "net", "--rounds"),
    ("robustness", "--data", "digits", "--images"),
)
DECIMAL = (("calibrate", "--data", "digits", "--accuracy"), ("quantize", "--data", "digits", "--loss"))
NO_DECIMAL = ("0x20", "0,9", "1_0.5", "٠.٩", "inf", "-inf", "nan", "none", "NULL", "1e999", "a")


@every_case("command", WHOLE)
def test_a_whole_number_is_one(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for word in STRANGE:
        assert main([*command, word]) == 2, word
        line = capsys.readouterr().err
        assert command[-1] in line, word
        assert len(line.splitlines()) == 1, word


@every_case("command", DECIMAL)
def test_a_decimal_is_one(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    for word in NO_DECIMAL:
        assert main([*command, word]) == 2, word
        line = capsys.readouterr().err
        assert command[-1] in line, word
        assert word in line, word


def test_none_is_no_value_of_an_option_that_lists_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("predict", "x.png", "--engine"), ("finetune", "--data", "digits", "--classes")):
        assert main([*words, "none"]) == 2
        assert words[-1] in capsys.readouterr().err


@every_case(
    ("words", "name", "value"),
    (
        (("calibrate", "--data", "digits", "--accuracy", ".5"), "accuracy", 0.5),
        (("calibrate", "--data", "digits", "--accuracy", "9e-1"), "accuracy", 0.9),
        (("calibrate", "--data", "digits", "--accuracy", "1"), "accuracy", 1.0),
        (("predict", "x.png", "--top", "+12"), "top", 12),
        (("predict", "x.png", "--engine", "auto"), "engine", "auto"),
        (("vtab", "net", "--data", "x", "--test-images", "all"), "test_images", "all"),
        (("vtab", "net", "--data", "x", "--test-images", "20"), "test_images", 20),
    ),
)
def test_what_people_write_is_read(words: tuple[str, ...], name: str, value: object) -> None:
    _, given, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    found = given.arguments[name]
    assert found == value
    assert type(found) is type(value)


def test_every_number_of_every_command_is_read_so() -> None:
    numbers = 0
    for command in COMMANDS:
        options = app[command].assemble_argument_collection()
        flags = {option.name for option in options if option.name.startswith("--")}
        named = {"--data"} | {option.name for option in options if option.required}
        data = [part for name in sorted(named & flags) for part in (name, "x")]
        needed = ["x" for option in options if option.required and option.name not in flags]
        for option in options:
            if option.name in flags and {int, float} & {option.hint, *get_args(option.hint)}:
                numbers += 1
                for word in ("0x20", "none", "٣"):
                    words = [command, *needed, option.name, word, *data]
                    with pytest.raises(CoercionError, match=option.name):
                        app.parse_args(words, exit_on_error=False, print_error=False)
    assert numbers > 20


@every_case("key", ("seed", "optimizer.lr", "batch_size"))
def test_a_recipe_takes_no_switch_for_a_number(key: str) -> None:
    section, _, leaf = key.rpartition(".")
    values = {section: {leaf: True}} if section else {leaf: True}
    with pytest.raises(RecipeError, match=f"'{key}'"):
        build_recipe({"steps": 5, **values}, "mine")

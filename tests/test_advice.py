"""Only the command line knows a flag or a command: messages name arguments and functions, which it says in its own words."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitral
from tests.cases import every_case
from vitral.advice import argument, call, function, in_words
from vitral.cli.commands import COMMANDS
from vitral.cli.main import main
from vitral.cli.wording import WORDS, command_of_function
from vitral.errors import VitralError
from vitral.serving.server import serve
from vitral.training.request import Request

ROOT = Path(vitral.__file__).parent
SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if "cli" not in path.relative_to(ROOT).parts]
SOURCES.remove(ROOT / "classifier" / "space.py")  # which writes a command line
SOURCES += sorted(ROOT.parent.glob("packages/*/vitral_*/*.py"))
_NAMED = """
accuracy baselines budget classes classifier collect data data_changed engine group head image_size label layer loss max_pixels
method model offline open out overrides overwrite precision quick recipe resume runs seed skip_bad_images source split starts
sweep teacher time token transfer write
"""
ARGUMENTS = frozenset(_NAMED.split())  # that messages may name
OWN_FLAGS = {"--from", "--set", "--no-baselines", *(f"--{name.replace('_', '-')}" for name in ARGUMENTS)}
A_COMMAND = re.compile(rf"\bvitral ({'|'.join(COMMANDS)})\b")
IMPORTED = re.compile(r"from vitral import|import vitral")


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a file, its docstrings too, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@every_case("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_nothing_below_the_command_line_names_a_flag_or_a_command(path: Path) -> None:
    for line, text in strings(path):
        flags = OWN_FLAGS & set(re.findall(r"--[a-z][a-z-]*", text))
        assert not flags, f"{path}:{line} names {flags}: say argument(...), see vitral/advice.py"
        commands = A_COMMAND.search(text)
        assert commands is None, f"{path}:{line} names a command: say function(...), see vitral/advice.py"


def named(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("argument", "function"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant):
                yield node.func.id, str(first.value)


def test_what_messages_name_is_known_to_the_command_line_and_to_python() -> None:
    every = {kind_and_name for path in SOURCES for kind_and_name in named(path)}
    assert {name for kind, name in every if kind == "argument"} <= set(ARGUMENTS)
    assert {command_of_function(name) for kind, name in every if kind == "function"} <= set(COMMANDS)
    assert len(every) > 10
    parameters = {
        name
        for one in (
            vitral.finetune,
            vitral.distill,
            vitral.pretrain,
            vitral.starts,
            vitral.explain,
            vitral.calibrate,
            vitral.evaluate,
            vitral.load,
            vitral.study,
            vitral.quantize,
            vitral.tune,
            serve,
        )
        for name in inspect.signature(one).parameters
    }
    assert {name for kind, name in every if kind == "argument"} <= parameters | {"classifier", "max_pixels"}


def test_no_message_is_made_when_a_module_is_imported() -> None:
    """It would be in the words of whoever imported it first."""
    made = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in outside_functions(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("argument", "function", "call")
    ]
    assert not made


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from outside_functions(child)


def messages() -> list[str]:
    asked = Request("fine-tune", "my photos", source="b`16.npz", overrides=("steps=9",), baselines=False)
    return [
        f"choose another {argument('out')}, or say {argument('overwrite', True)}.",
        argument("source", "my photos/x.npz"),
        argument("overrides", ["steps=9", "name=a`b"]),
        argument("baselines", False),
        f"{function('list_models')} lists them",
        f"try {call(asked.call())}",
        call(Request("pre-train", None, model="vit-b16", time=600, sweep=True).call()),
        "Do " + call("vitral.study('position', 'my photos', budget='laptop', runs=3)") + ".",
    ]


def test_the_command_line_names_flags_and_commands() -> None:
    with in_words(WORDS):
        assert messages() == [
            "choose another --out, or say --overwrite.",
            "--from 'my photos/x.npz'",
            "--set steps=9 --set 'name=a`b'",
            "--no-baselines",
            "'vitral models' lists them",
            "try vitral finetune 'my photos' --from 'b`16.npz' --set steps=9 --no-baselines",
            "vitral pretrain --model vit-b16 --time 10m --sweep",
            "Do vitral study position 'my photos' --budget laptop --runs 3.",
        ]


def test_python_names_arguments_and_functions_before_and_after() -> None:
    before = messages()
    assert before[:5] == [
        "choose another `out`, or say `overwrite=True`.",
        "`source='my photos/x.npz'`",
        "`overrides=['steps=9', 'name=a`b']`",
        "`baselines=False`",
        "`list_models()` lists them",
    ]
    with pytest.raises(VitralError, match="--out"), in_words(WORDS):
        raise VitralError(argument("out"))
    assert messages() == before


def test_one_mistake_is_told_to_each_in_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "letter.txt").write_text("mine")
    with pytest.raises(VitralError, match="choose another `out`, or say `overwrite=True`"):
        vitral.finetune("digits", out="run")
    assert main(["finetune", "--data", "digits", "--out", "run"]) == 1
    assert "choose another --out, or say --overwrite." in capsys.readouterr().err


def test_what_was_asked_is_typed_in_python_too() -> None:
    overrides = ("steps=9",)
    request = Request("fine-tune", "photos", source="b16.npz", overrides=overrides, time="90s", baselines=False)
    assert request.call() == (
        "vitral.finetune('photos', source='b16.npz', overrides=['steps=9'], time='90s', baselines=False)"
    )
    assert Request("pre-train", None, model="vit-b16", time=600, baselines=False).call() == (
        "vitral.pretrain(model='vit-b16', time='10m')"
    )

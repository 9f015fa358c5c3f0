"""The commands, their flags, their help and its examples."""

import importlib
import shlex

import pytest
from cyclopts import App
from rich.console import Console

from tests.cases import every_case
from vitral.cli.commands import COMMANDS
from vitral.cli.main import app, arranged, main

# A new flag is a decision: everything that a recipe can say belongs there.
FLAGS = {
    "demo": "--json --out",
    "check": "--classes --classifier --data --from --group --json --report --source --strict --overwrite",
    "pretrain": (
        "--classes --data --data-changed --group --image-size --json --model --out --plan --recipe --resume --seed --set"
        " --skip-bad-images --strict --time --verbose -v --overwrite"
    ),
    "finetune": (
        "--classes --data --data-changed --from --group --image-size --json --no-baselines --offline --out --quick --recipe"
        " --resume --runs --seed --set --skip-bad-images --strict --source --time --verbose -v --overwrite"
    ),
    "plan": (
        "--classes --data --data-changed --from --group --image-size --json --no-baselines --offline --out --quick --recipe"
        " --resume --seed --set --skip-bad-images --strict --source --time --overwrite"
    ),
    "starts": (
        "--classes --data --from --group --image-size --json --offline --out --seed --skip-bad-images --strict --source --time"
        " --overwrite"
    ),
    "sweep": (
        "--classes --data --data-changed --from --group --image-size --json --no-baselines --offline --out --quick --recipe"
        " --resume --seed --set --skip-bad-images --strict --source --time --verbose -v --overwrite"
    ),
    "evaluate": (
        "--by --classes --classifier --data --engine --frozen --json --merge --precision --report --skip-bad-images --strict"
        " --split --overwrite"
    ),
    "fix": "--apply --classes --classifier --data --json --out --report --table --undo --overwrite",
    "compare": "--classes --data --json --skip-bad-images --strict --split",
    "add": "--classes --classifier --data --json --out --skip-bad-images --strict --to --overwrite",
    "select": "--classifier --count --json --out --skip-bad-images --strict --overwrite",
    "calibrate": "--accuracy --classes --classifier --data --json --skip-bad-images --strict --write",
    "quantize": "--classes --classifier --data --json --loss --skip-bad-images --strict --write",
    "tune": "--classes --classifier --data --json --latency --overwrite --plot --skip-bad-images --strict --write",
    "aspects": "--classes --classifier --data --json --skip-bad-images --strict",
    "robustness": "--classes --classifier --data --images --json --skip-bad-images --strict --split",
    "table": "--format --json",
    "vtab": "--classifier --data --json --out --protocol --runs --tasks --test-images --time",
    "study": "--budget --data --json --out --plan --runs --skip-bad-images --strict --time --transfer",
    "predict": (
        "--classifier --engine --json --merge --native-aspect --out --precision --skip-bad-images --sort-into"
        " --strict --top --verbose -v --overwrite"
    ),
    "bench": "--batch-sizes --classifier --compile --image-size --json --merge --overwrite --plot --rounds",
    "explain": (
        "--classifier --data --faithful --head --json --label --layer --method --network --out --report --style --worst-first"
        " --overwrite"
    ),
    "distill": (
        "--classes --data --data-changed --group --image-size --json --out --recipe --resume --seed --set --skip-bad-images"
        " --strict --student --time --overwrite"
    ),
    "convert": "--format --image-size --set --json --overwrite",
    "export": (
        "--classifier --data --format --image-size --json --layers --merge --out --page --precision --verbose --overwrite"
    ),
    "serve": "--collect --deadline --deterministic --engine --host --max-bytes --open --port --precision --token",
    "push": "--format --json --private --space",
    "runs": "--json",
    "status": "--json",
    "info": "--json --verbose -v",
    "schema": "--json",
    "models": "--weights --json",
    "recipes": "--json",
}


@every_case("command", COMMANDS)
def test_help_has_its_own_examples_and_names_its_flags(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert text.count("Examples:") == 1
    assert not any(f"[default: {nothing}]" in text for nothing in ("False", "None", "()"))
    for flag in FLAGS[command].split():
        assert f"{flag} " in text
    examples = [line.strip() for line in out.split("Examples:")[1].splitlines() if line.startswith("  vitral ")]
    assert examples
    for example in examples:
        assert shlex.split(example)[1] == command


@every_case("command", COMMANDS)
def test_every_example_can_be_typed_as_it_stands(command: str) -> None:
    for line, purpose in COMMANDS[command].examples:
        program, *tokens = shlex.split(line)
        assert program == "vitral"
        function, _, _ = app.parse_args(arranged(tokens), exit_on_error=False, print_error=False)
        assert function.__name__ == tokens[0]
        assert purpose
        assert max(len(f"  {line}"), len(f"      {purpose}")) <= 80, "it would be broken on a terminal"


def test_the_list_of_commands_says_what_each_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    shown = {
        name: f"{name} ({', '.join(command.also)})" if command.also else name for name, command in COMMANDS.items()
    }
    places = [text.index(f" {shown[name]} {command.line} ") for name, command in COMMANDS.items()]
    assert places == sorted(places)
    for name, command in COMMANDS.items():
        documented = getattr(importlib.import_module(f"vitral.cli.{name}"), name).__doc__
        assert documented.splitlines()[0] == command.line


def test_the_commands_and_their_flags_are_the_agreed_ones() -> None:
    others = {name for described in COMMANDS.values() for name in described.also}
    assert {name for name in app if not name.startswith("-")} - others == set(FLAGS) == set(COMMANDS)
    for command, flags in FLAGS.items():
        parsed = app[command]
        assert isinstance(parsed, App)
        collected = parsed.assemble_argument_collection(default_parameter=app.default_parameter)
        arguments = [argument for argument in collected if argument.parse]  # others are for Python alone
        found = {name for argument in arguments for name in argument.names if name.startswith("-")}
        assert found == set(flags.split()), command


def test_help_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        app, "_console", Console(width=80)
    )  # one is made once in a process, as wide as the terminal then
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    examples = lines[lines.index("Examples:") + 1 :]
    assert all(line.startswith("  vitral ") for line in examples[: examples.index("")])


def test_a_text_of_several_lines_in_its_source_breaks_where_the_terminal_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_console", Console(width=1000))
    for name in ("finetune", "evaluate", "predict"):
        parsed = app[name]
        assert isinstance(parsed, App)
        collected = parsed.assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
        texts = [argument.parameter.help or "" for argument in collected if argument.parse and argument.show]
        assert any("\n" in text for text in texts)
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert [text for text in texts if " ".join(text.split()) not in shown] == []

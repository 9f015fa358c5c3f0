"""Write llms.txt, which tells programs what the commands take: `python -m tests.cli.write_llms`."""

from pathlib import Path

from cyclopts import App

from vitral.cli.commands import COMMANDS, EXIT_STATUSES, GROUPS
from vitral.cli.main import app

FILE = Path(__file__).parents[2] / "llms.txt"
HEAD = """# Vitral

> Image classifiers from a folder of photos: train, evaluate, explain, export. Python and PyTorch; one command line, `vitral`.

Every command prints JSON with --json on standard output, progress and messages on standard error; `vitral schema COMMAND`
prints the JSON schema of that. Nothing is asked at a prompt. Data is a folder with one sub-folder per class, an archive or a
table. Classifiers are folders: runs/NAME as training left them; left out, the newest run in runs/ is meant.

Exit statuses:
"""


def llms() -> str:
    """Return the text, made from the commands."""
    parts = [HEAD, *(f"- {status}: {meaning}\n" for status, meaning in EXIT_STATUSES.items())]
    for group in GROUPS:
        parts.append(f"\n## {group}\n")
        parts += [_described(name) for name, command in COMMANDS.items() if command.group == group]
    return "".join(parts)


def _described(name: str) -> str:
    command, parsed = COMMANDS[name], app[name]
    assert isinstance(parsed, App)
    also = f" (also: {', '.join(command.also)})" if command.also else ""
    lines = [f"### vitral {name}{also}", "", command.help(), "", *_options(parsed), ""]
    lines += [f"    {line}  # {purpose}" for line, purpose in command.examples]
    return "\n".join(["", *lines, ""])


def _options(parsed: App) -> list[str]:
    """Return a line for each name that a command takes, with a flag or without."""
    collected = parsed.assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
    shown = [argument for argument in collected if argument.parse and argument.show and argument.parameter.help]
    return [
        f"- `{', '.join(argument.names)}`: {' '.join((argument.parameter.help or '').split())}" for argument in shown
    ]


if __name__ == "__main__":
    FILE.write_text(llms(), encoding="utf-8")

"""`vitral schema`: what a program can rely on: the form of every command's JSON, and the exit statuses."""

from typing import Any

from vitral.cli.commands import COMMANDS, EXIT_STATUSES, command_named
from vitral.cli.console import print_json, print_lines
from vitral.cli.process import importing
from vitral.errors import VitralError, did_you_mean

WITHOUT = ("schema", "serve")  # the commands that have none: this one, and one that answers programs in its own forms


def schema(command: str | None = None, /, *, json: bool = False) -> None:
    """Print the JSON schema of what a command prints with --json.

    Args:
        command: The command; those that have a schema, and the exit statuses, if left out.
        json: Print the list as JSON for programs, too; a schema is JSON in any case.
    """
    if command is None:
        _list(json=json)
        return
    name = command_named(command)
    if not name or name in WITHOUT:
        hint = did_you_mean(command, COMMANDS)
        raise VitralError(f"There is no schema of '{command}'.{hint} 'vitral schema' lists those that there are.")
    with importing():
        from vitral.cli.schemas import schema as schema_of

    print_json(schema_of(name))


def _list(*, json: bool) -> None:
    listed: dict[str, Any] = {
        "commands": [name for name in COMMANDS if name not in WITHOUT],
        "exit_statuses": [{"status": status, "meaning": meaning} for status, meaning in EXIT_STATUSES.items()],
    }
    if json:
        print_json(listed)
        return
    print_lines("Commands with --json:", f"  {', '.join(listed['commands'])}", "Exit statuses:")
    print_lines(*(f"  {status}  {meaning}" for status, meaning in EXIT_STATUSES.items()))

"""`vitral finetune --runs N`: one recipe with several seeds."""

import shlex
from collections.abc import Mapping
from typing import Any

from vitral.cli.console import ConsoleListener, print_json, print_line
from vitral.cli.wording import flag
from vitral.errors import StudyError
from vitral.studies.repeated import repeat
from vitral.torchrun import is_main
from vitral.training.planning.request import ask


def repeat_runs(
    data: str | None,
    runs: int,
    asked: Mapping[str, Any],
    switches: Mapping[str, object],
    *,
    json: bool,
) -> None:
    """Repeat a fine-tuning and print its score with the standard deviation.

    Args:
        data: the data's name, path or address.
        runs: how many.
        asked: the flags by the names of their arguments.
        switches: the other flags, of which only --no-baselines can go with --runs.
        json: whether to print JSON for programs.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    for name, value in switches.items():
        if name != "no_baselines" and value not in (None, False):
            raise StudyError(f"{flag('runs')} repeats one training, so {flag(name)} cannot go with it.")
    beside = ("out", "resume", "offline", "started")  # a study goes on in its folder by itself
    settings = {name: value for name, value in asked.items() if name not in beside}
    with ConsoleListener() as listener:
        request = ask("fine-tune", data, **settings, baselines=not switches["no_baselines"])
        result = repeat(request, runs, asked["out"], offline=asked["offline"], listener=listener)
    if json:
        print_json(result.to_json())
        return
    if not is_main():
        return
    for line in result.lines():
        print_line(line)
    folder = shlex.quote(str(result.folder))
    print_line(f"Runs        {result.folder}")
    print_line("Next:")
    print_line(f"  vitral table {folder}")

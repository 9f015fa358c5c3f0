"""`vitral finetune --runs N`: one recipe with several seeds."""

import shlex

from vitral.cli.console import ConsoleListener, print_result
from vitral.cli.training_options import FinetuneOptions
from vitral.cli.wording import flag
from vitral.studies.trainings import repeat


def repeat_runs(options: FinetuneOptions, runs: int, *, json: bool) -> None:
    """Repeat a fine-tuning and print its score with the standard deviation.

    Args:
        options: The request; a study continues in its folder by itself.
        runs: How many.
        json: Whether to print JSON for programs.
    """
    options.refuse(f"{flag('runs')} repeats one training", "data_changed", "overwrite")
    request = options.request()
    with ConsoleListener() as listener:
        result = repeat(request, runs, listener=listener)
    command = f"  vitral table {shlex.quote(str(result.folder))}"
    print_result(result, json=json, below=[f"Runs        {result.folder}", "Next:", command])

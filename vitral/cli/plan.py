"""`vitral plan`: what a fine-tuning would do, with every reason and the cost."""

from vitral.cli.process import began, importing
from vitral.cli.training_options import FinetuneOptions, Json
from vitral.training.request import Request


def plan(options: FinetuneOptions | None = None, *, json: Json = False) -> None:
    """Say what a fine-tuning would do, why, how long it takes and where the time goes; nothing is written.

    Args:
        options: The request.
        json: Print JSON for programs.
    """
    print_plan((options or FinetuneOptions()).request(), json=json)


def print_plan(request: Request, *, json: bool) -> None:
    """Print what a training command would do."""
    with importing():
        from vitral.cli.console import ConsoleListener, print_json, print_lines
        from vitral.training.preview import plan_request

    with ConsoleListener() as listener:
        run = plan_request(request, started=began(), listener=listener)
        if json:
            print_json(run.to_json())
        else:
            print_lines(*run.lines())

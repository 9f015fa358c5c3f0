"""What a training command would do, printed."""

from vitral.cli.console import ConsoleListener, print_json, print_line
from vitral.cli.started import began
from vitral.training.preview import plan_request
from vitral.training.request import Request


def print_plan(request: Request, *, json: bool) -> None:
    """Print what a training command would do, with every reason and the cost."""
    with ConsoleListener() as listener:
        run = plan_request(request, started=began(), listener=listener)
        if json:
            print_json(run.to_json())
            return
        for line in run.lines():
            print_line(line)

"""A fine-tuning run as a process of its own, which may be killed: `python -m vitral.checks.one_run OPTIONS`.

The options are the fields of a `Request`, as JSON. An error of the user's is one line and status 1.
"""

import json
import sys
from collections.abc import Sequence

from vitral.errors import VitralError
from vitral.events import ignore
from vitral.training.request import Request
from vitral.training.run import run_request


def main(arguments: Sequence[str]) -> int:
    """Train, and return the process's exit status."""
    try:
        run_request(Request("fine-tune", **json.loads(arguments[0])), listener=ignore)
    except VitralError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A fine-tuning run as a process of its own, which may be killed: `python -m vitral.checks.one_run OPTIONS`.

The options are those of `vitral.training.finetune.finetune`, as JSON. An error of the user's is one line and status 1.
"""

import json
import sys
from collections.abc import Sequence

from vitral.errors import VitralError
from vitral.events import ignore
from vitral.training.finetune import finetune


def main(arguments: Sequence[str]) -> int:
    """Train, and return the process's exit status."""
    try:
        finetune(**json.loads(arguments[0]), listener=ignore)
    except VitralError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m vitral` is `vitral`."""

import sys

from vitral.cli.process import end_at_once


def main() -> int:
    """Run one command and return its exit status."""
    end_at_once()
    from vitral.cli.main import main as run  # a slow import

    return run()


if __name__ == "__main__":
    sys.exit(main())

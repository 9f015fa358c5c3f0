"""`python -m vitral` is `vitral`."""

import sys

from vitral.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

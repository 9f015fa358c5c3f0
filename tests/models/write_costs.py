"""Count every variant anew and write vitral/models/costs.py: `python -m tests.models.write_costs`."""

from pathlib import Path

import vitral.models
from vitral.models.catalog import VARIANTS
from vitral.models.cost import count_macs, count_parameters
from vitral.models.families import build

HEADER = '''"""What each variant costs at its native size and 1,000 classes: parameters, multiply-accumulates of one image.

Counted by cost.py and kept here so that a list of all variants does not build them all; a test counts each anew.
"""

COSTS: dict[str, tuple[int, int]] = {
'''


def main() -> None:
    """Write the table."""
    rows = (
        f'    "{name}": ({count_parameters(build(config, seed=None)):_}, {count_macs(config):_}),\n'
        for name, config in VARIANTS.items()
    )
    (Path(vitral.models.__file__).parent / "costs.py").write_text(HEADER + "".join(rows) + "}\n")


if __name__ == "__main__":
    main()

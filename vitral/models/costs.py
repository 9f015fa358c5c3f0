"""What each variant costs at its native size and 1,000 classes: parameters, multiply-accumulates of one image.

Counted by cost.py and kept in costs.csv so that a list of all variants does not build them all; a test counts each anew.
"""

import csv
from importlib.resources import files

with (files("vitral.models") / "costs.csv").open() as _file:
    COSTS: dict[str, tuple[int, int]] = {
        row["variant"]: (int(row["parameters"]), int(row["macs"])) for row in csv.DictReader(_file)
    }

"""What each variant is and costs, without building it, and without torch.

Counted by `count_parameters` and `count_macs` and kept in costs.csv, so that a list of all variants does not build them all; a
test counts each anew.
"""

import csv
from importlib.resources import files
from typing import NamedTuple

CLASSES = 1000


class ModelCost(NamedTuple):
    """A variant at its native size and 1,000 classes.

    Attributes:
        family: The name of its architecture family.
        image_size: Height and width in pixels.
        parameters: The number of parameters.
        macs: Multiply-accumulates for one image.
    """

    family: str
    image_size: tuple[int, int]
    parameters: int
    macs: int


def _read() -> dict[str, ModelCost]:
    with (files("vitral.models") / "costs.csv").open() as file:
        return {
            row["variant"]: ModelCost(
                row["family"], (int(row["height"]), int(row["width"])), int(row["parameters"]), int(row["macs"])
            )
            for row in csv.DictReader(file)
        }


COSTS = _read()

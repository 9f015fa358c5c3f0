"""`vitral models`: every variant with what it costs and whether its weights are published."""

from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.console import print_json, print_table
from vitral.models.catalog import family, list_models, variant
from vitral.models.costs import COSTS
from vitral.weights.published import published_formats


@dataclass(frozen=True)
class Row:
    """One variant; sizes in pixels, costs at 1,000 classes."""

    name: str
    family: str
    image_size: tuple[int, int]
    parameters: int
    macs: int
    published: tuple[str, ...]


def models(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the models by name, with parameters and multiply-accumulates at 1,000 classes.

    The last column says in which formats trained weights are published; 'vitral convert' reads and writes them.

    Example: vitral models

    Args:
        json: print JSON for a program.
    """
    rows = [_row(name) for name in list_models()]
    if json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        ["model", "pixels", "parameters", "GMACs", "published weights"],
        [
            [
                row.name,
                str(row.image_size[0]),
                f"{row.parameters:,}",
                f"{row.macs / 1e9:.2f}",
                ", ".join(row.published) or "none",
            ]
            for row in rows
        ],
    )


def _row(name: str) -> Row:
    config = variant(name)
    parameters, macs = COSTS[name]
    return Row(name, family(config), config.image_size, parameters, macs, published_formats(name))

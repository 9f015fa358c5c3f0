"""`vitral models`: every variant with what it costs."""

from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.console import print_json, print_table
from vitral.models.catalog import build, list_models, variant
from vitral.models.cost import count_macs, count_parameters


@dataclass(frozen=True)
class Row:
    """One variant; sizes in pixels, costs at 1,000 classes."""

    name: str
    image_size: tuple[int, int]
    patch_size: tuple[int, int]
    width: int
    depth: int
    parameters: int
    macs: int


def models(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the models by name, with parameters and multiply-accumulates at 1,000 classes.

    Example: vitral models

    Args:
        json: print JSON for a program.
    """
    rows = [_row(name) for name in list_models()]
    if json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        ["model", "pixels", "patch", "width", "depth", "parameters", "GMACs"],
        [
            [
                row.name,
                str(row.image_size[0]),
                str(row.patch_size[0]),
                str(row.width),
                str(row.depth),
                f"{row.parameters:,}",
                f"{row.macs / 1e9:.2f}",
            ]
            for row in rows
        ],
    )


def _row(name: str) -> Row:
    config = variant(name)
    parameters = count_parameters(build(config, seed=None))
    return Row(name, config.image_size, config.patch_size, config.dim, config.depth, parameters, count_macs(config))

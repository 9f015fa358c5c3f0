"""`vitral models`: every variant with its cost and the formats of its published weights."""

from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.console import print_json, print_table
from vitral.errors import ModelError
from vitral.models.catalog import instead_of, list_models, variant
from vitral.models.cost import count_macs, count_parameters
from vitral.models.costs import COSTS
from vitral.models.families import build, family
from vitral.weights.published import published_formats


@dataclass(frozen=True)
class Row:
    """One variant; sizes in pixels, costs for 1,000 classes."""

    name: str
    family: str
    image_size: tuple[int, int]
    parameters: int
    macs: int
    published: tuple[str, ...]


def models(filter: str | None = None, /, *, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the models: size, cost, formats of published weights.

    Args:
        filter: a word; only models with it in their name, family or formats are listed.
        json: print JSON for programs.
    """
    word = (filter or "").lower()
    rows = [row for row in map(_row, list_models()) if word in f"{row.name} {row.family} {' '.join(row.published)}"]
    if not rows:
        hint = instead_of(filter or "")
        raise ModelError(
            f"No model has '{filter}' in its name, family or formats.{hint} 'vitral models' lists them all."
        )
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
    parameters, macs = COSTS.get(name) or (count_parameters(build(config, seed=None)), count_macs(config))
    return Row(name, family(config), config.image_size, parameters, macs, published_formats(name))

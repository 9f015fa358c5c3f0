"""`vitral models`: every variant with what it costs."""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.console import print_json, print_table
from vitral.models.catalog import build, list_models, variant
from vitral.models.cost import count_macs, count_parameters


def models(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the models by name, with parameters and multiply-accumulates at 1,000 classes.

    Example: vitral models

    Args:
        json: print JSON for a program.
    """
    rows = []
    for name in list_models():
        config = variant(name)
        rows.append(
            {
                "name": name,
                "image_size": list(config.image_size),
                "patch_size": list(config.patch_size),
                "width": config.dim,
                "depth": config.depth,
                "parameters": count_parameters(build(config, seed=None)),
                "macs": count_macs(config),
            }
        )
    if json:
        print_json(rows)
        return
    print_table(
        ["model", "pixels", "width", "depth", "parameters", "GMACs"],
        [
            [
                str(row["name"]),
                f"{row['image_size'][0]}",
                str(row["width"]),
                str(row["depth"]),
                f"{row['parameters']:,}",
                f"{row['macs'] / 1e9:.2f}",
            ]  # type: ignore[index, operator]
            for row in rows
        ],
    )

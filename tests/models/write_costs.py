"""Count every variant anew and write vitral/models/costs.csv: `python -m tests.models.write_costs`."""

from pathlib import Path

import vitral.models
from vitral.models.catalog import VARIANTS
from vitral.models.families import build, count_macs, count_parameters, family


def main() -> None:
    """Write the table."""
    rows = (
        f"{name},{family(config)},{config.image_size[0]},{config.image_size[1]},"
        f"{count_parameters(build(config, seed=None))},{count_macs(config)}\n"
        for name, config in VARIANTS.items()
    )
    (Path(vitral.models.__file__).parent / "costs.csv").write_text(
        "variant,family,height,width,parameters,macs\n" + "".join(rows)
    )


if __name__ == "__main__":
    main()

"""Write what pycocotools says of some scenes, for the test without it: python -m tests.peers.write_average_precision."""

import json

from tests.peers.test_average_precision import theirs
from tests.tasks.scenes import object_photos
from tests.tasks.test_average_precision import FIGURES, SEEDS


def main() -> None:
    """Write the twelve numbers of each scene."""
    said = {
        kind: {
            seed: theirs("pycocotools", object_photos(seed, masks=kind == "masks"), masks=kind == "masks")
            for seed in SEEDS
        }
        for kind in ("masks", "boxes")
    }
    FIGURES.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()

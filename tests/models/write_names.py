"""Write tests/models/names.json anew: `python -m tests.models.write_names`; a renamed tensor needs rules for older files."""

import dataclasses
import json
import re
from pathlib import Path

from tests.models.test_contract import CONFIGS, VIT
from vitral.models.families import build
from vitral.models.model import ModelConfig

NAMES = Path(__file__).parent / "names.json"
CASES: dict[str, ModelConfig] = {
    **CONFIGS,
    "map": dataclasses.replace(VIT, pooling="map"),
    "tanh-head": dataclasses.replace(VIT, representation_size=24),
    "learned-2d": dataclasses.replace(VIT, position="learned-2d"),
}


def tensor_names(config: ModelConfig) -> list[str]:
    """Return the names of a network's tensors, each number of a block or stage as a star, in order."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in build(config, seed=None).state_dict()))


if __name__ == "__main__":
    NAMES.write_text(json.dumps({name: tensor_names(config) for name, config in CASES.items()}, indent=1) + "\n")

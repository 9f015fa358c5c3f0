"""The weights behind the golden logits: nothing is stored, every array is drawn from a generator seeded by its name."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
CASES = sorted(path.stem for path in FOLDER.glob("*.json"))


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of one parameter, scaled by its kind so that activations stay near one."""
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, dtype=np.float32)
    kind = name.rpartition("/")[2].rpartition(".")[2]
    if kind == "running_var":
        return 1 + np.float32(0.1) * np.abs(values)
    if kind in ("bias", "beta", "running_mean"):
        return np.float32(0.1) * values
    if kind in ("scale", "gamma") or (kind == "weight" and len(shape) == 1):
        return 1 + np.float32(0.1) * values
    if kind in ("kernel", "weight"):
        return values * np.float32(float(np.prod(shape)) ** -0.25)
    return np.float32(0.5) * values


def read_case(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a case's description and what the original code gave: logits, and what else it computed or kept fixed."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        return json.loads((FOLDER / f"{name}.json").read_text()), dict(arrays)


def weights(name: str) -> dict[str, np.ndarray]:
    """Return every array of a case's checkpoint under its original name."""
    case, given = read_case(name)
    # The Performer's random features are kept next to the logits; the sinusoids are left out, for they are computed.
    kept = {fixed: given[fixed.replace(".", "_")] for fixed in case.get("kept", ()) if fixed.replace(".", "_") in given}
    return {parameter: draw(parameter, tuple(shape)) for parameter, shape in case["params"].items()} | kept


def images(case: dict[str, Any]) -> np.ndarray:
    """Return the input, (batch, 3, side, side), values -1 to 1."""
    side = case["image_size"]
    drawn = np.random.default_rng(case["image_seed"]).uniform(-1, 1, (case["batch"], side, side, 3))
    return np.ascontiguousarray(drawn.astype(np.float32).transpose(0, 3, 1, 2))

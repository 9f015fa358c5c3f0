"""What a weights file cannot hold, in a small file next to it: preprocessing, class names and calibration.

ViT-B_16.npz                 the tensors, in another library's names
ViT-B_16.npz.vitral.json     what `vitral.load` needs, with the checksum of the weights file
"""

import json
from pathlib import Path

from vitral.files import sha256, write_file
from vitral.reading import text_of

SUFFIX = ".vitral.json"
FORMAT = "vitral-weights-description"
MARK = FORMAT.encode()  # a file with this mark was written here, and may be replaced
SIZE_LIMIT = 32 << 20  # bytes: no description is larger


def description_path(weights: Path) -> Path:
    """Return the path of a weights file's description."""
    return weights.with_name(f"{weights.name}{SUFFIX}")


def write_description(weights: Path, description: str) -> Path:
    """Write a weights file's description next to it and return its path.

    Args:
        weights: the file, which must be complete.
        description: what `self_description` returns.

    Raises:
        StorageError: it cannot be written.
    """
    path = description_path(weights)
    write_file(
        path, json.dumps({"format": FORMAT, "weights_sha256": sha256(weights), **json.loads(description)}, indent=2)
    )
    return path


def read_description(weights: Path) -> tuple[str | None, str]:
    """Return the description next to a weights file if it is about this very file; otherwise a note.

    Raises:
        ValueError: it exists and cannot be read.
    """
    path = description_path(weights)
    if not path.is_file():
        return None, ""
    if path.stat().st_size > SIZE_LIMIT:
        raise ValueError(f"'{path}' next to it has {path.stat().st_size:,} bytes")
    text = text_of(path)
    description = json.loads(text)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        return None, f"'{path}' is not a description of weights and was ignored."
    if description.get("weights_sha256") != sha256(weights):
        return None, f"'{path}' is about another file and was ignored: class names and preprocessing are a guess."
    return text, ""

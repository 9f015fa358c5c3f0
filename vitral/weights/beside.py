"""What a weights file has no place for, in a small file beside it: preprocessing and class names.

ViT-B_16.npz                 the tensors, as another library wants them
ViT-B_16.npz.vitral.json     what `vitral.load` finds again, with the checksum of the file that it is about
"""

import json
from pathlib import Path

from vitral.files import sha256, write_file

SUFFIX = ".vitral.json"
FORMAT = "vitral-weights-description"
MARK = FORMAT.encode()  # what bears it was written here, and may be written anew
SIZE_LIMIT = 32 << 20  # bytes: no description is larger


def description_path(weights: Path) -> Path:
    """Return where the description of a weights file lies."""
    return weights.with_name(f"{weights.name}{SUFFIX}")


def describe_beside(weights: Path, said: str) -> Path:
    """Write what belongs to a weights file beside it and return where that is.

    Args:
        weights: the file, which must be whole.
        said: what `self_description` returns.

    Raises:
        StorageError: it cannot be written.
    """
    path = description_path(weights)
    write_file(path, json.dumps({"format": FORMAT, "weights_sha256": sha256(weights), **json.loads(said)}, indent=2))
    return path


def said_beside(weights: Path) -> tuple[str | None, str]:
    """Return what the file beside a weights file says of it, if it is about this very file; and a note if it is not.

    Raises:
        ValueError: there is one that cannot be read.
    """
    path = description_path(weights)
    if not path.is_file():
        return None, ""
    if path.stat().st_size > SIZE_LIMIT:
        raise ValueError(f"'{path}' beside it has {path.stat().st_size:,} bytes")
    text = path.read_text(encoding="utf-8")
    said = json.loads(text)
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        return None, f"'{path}' is no description of weights and was passed over."
    if said.get("weights_sha256") != sha256(weights):
        return None, f"'{path}' is about another file and was passed over: class names and preprocessing are a guess."
    return text, ""

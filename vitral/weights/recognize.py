"""From a file's names and shapes alone to the dialect and the architecture that they belong to."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.advice import function
from vitral.errors import WeightsError
from vitral.weights.beside import said_beside
from vitral.weights.containers import COUNTER, Container, Shape, Shards, open_container
from vitral.weights.dialect import BROKEN, DESCRIPTION, Dialect, Reading, Stored, broken, described
from vitral.weights.names import (
    bit,
    coatnet,
    cvt,
    efficientnet,
    resnet,
    t2t,
    transformers,
    vit,
    vit_torch,
    vit_transformers,
)

DIALECTS: tuple[Dialect, ...] = (
    *vit.DIALECTS,
    *bit.DIALECTS,
    *t2t.DIALECTS,
    *cvt.DIALECTS,
    *vit_transformers.DIALECTS,
    *vit_torch.DIALECTS,
    *efficientnet.DIALECTS,
    *coatnet.DIALECTS,
    *resnet.DIALECTS,
)

# Where the weights lie in a file that holds more: an optimizer's state, an image tower beside a text tower, a wrapper
# around the network while it trained.
PREFIXES = ("opt/target/", "params/img/", "params/", "module.", "_orig_mod.", "model.")
SCANNED = "Transformer/encoderblock/"
# TensorFlow numbers layers through in some of BiT's files: standardized_conv2d_7, group_norm_12.
NUMBERED = re.compile(r"(standardized_conv2d|group_norm|conv2d)_\d+(?=/)")
# What a folder of another library calls its weights, in the order in which they are looked for.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
FOREIGN_CONFIGS = ("architectures", "model_type", "architecture", "pretrained_cfg")  # keys that make a config theirs
SIDE_FILE_LIMIT = 32 << 20  # bytes: no description is larger


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: its name in the file, and its index along the depth where all blocks are stored as one."""

    name: str
    index: int | None = None


@dataclass(frozen=True)
class Recognized:
    """What a file holds, and where.

    Attributes:
        dialect: whose names it has.
        stored: what is known of it before a tensor is read.
        reading: what its dialect makes of that.
        places: where each tensor lies, by its name without prefix.
    """

    dialect: Dialect
    stored: Stored
    reading: Reading
    places: Mapping[str, Place]


def weights_in(folder: Path) -> Path | None:
    """Return the weights file of a folder that transformers or timm wrote, or its index; None if there is none."""
    found = [folder / name for name in WEIGHT_FILES if (folder / name).is_file()]
    if found:
        return found[0]
    single = [path for pattern in ("*.npz", "*.safetensors") for path in folder.glob(pattern)]
    return single[0] if len(single) == 1 else None


@contextmanager
def open_weights(path: Path) -> Iterator[Container]:
    """Open a weights file, or the index of several.

    Raises:
        WeightsError: it cannot be read, or a part is missing.
    """
    if not path.name.endswith(".index.json"):
        with open_container(path) as container:
            yield container
        return
    parts = read_json(path).get("weight_map")
    if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts.values()):
        raise WeightsError(f"'{path}' is no index of weights: it lacks the entry 'weight_map'.")
    with ExitStack() as stack:
        names = sorted(set(parts.values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise WeightsError(f"'{path}' points outside its folder, to '{outside[0]}'.")
        yield Shards(path, [stack.enter_context(open_container(path.parent / name)) for name in names])


def recognize(container: Container) -> Recognized:
    """Recognise the architecture and the library.

    Raises:
        WeightsError: the names or shapes are of no architecture that is known, or are not whole.
    """
    places, shapes = _plain_names(container.shapes)
    source = str(container.path)
    stored = Stored(
        source=source,
        file_name=container.path.name,
        shapes=shapes,
        config=_foreign_config(container.path.parent / CONFIG),
        preprocessor=_side_file(container.path.parent / PREPROCESSOR),
        wrapper=container.wrapper,
    )
    dialect = next((dialect for dialect in DIALECTS if dialect.matches(stored)), None)
    if dialect is None:
        first = ", ".join(list(container.shapes)[:3])
        raise WeightsError(
            f"'{source}' holds no architecture that is known (its tensors: {first}, …); {function('list_models')} lists what "
            "is, and in whose formats."
        )
    try:
        found = dialect.read(stored)
        task = transformers.task_of_problem(stored.config)
        return Recognized(dialect, stored, _told(replace(found, task=task), container), places)
    except BROKEN as error:
        raise broken(stored, error) from error


def _told(found: Reading, container: Container) -> Reading:
    """Return what a file holds by what it says of itself, or what we wrote beside it; as it was if neither is there."""
    said = container.metadata.get(DESCRIPTION)
    if said is not None:
        return described(found, said)
    said, note = said_beside(container.path)
    found = found if said is None else described(found, said)
    return replace(found, notes=(*found.notes, note)) if note else found


def _plain_names(stored: Mapping[str, Shape]) -> tuple[dict[str, Place], dict[str, Shape]]:
    prefix = ""
    while more := next((more for more in PREFIXES if any(name.startswith(prefix + more) for name in stored)), ""):
        prefix += more
    places: dict[str, Place] = {}
    shapes: dict[str, Shape] = {}
    for name, shape in stored.items():
        plain = NUMBERED.sub(r"\1", name.removeprefix(prefix))
        if not name.startswith(prefix) or plain.startswith("opt/") or plain.endswith(COUNTER):
            continue  # the optimizer's state, the other tower, or a counter
        if plain.startswith(SCANNED) and shape:
            part = plain.removeprefix(SCANNED)
            for index in range(shape[0]):
                places[f"Transformer/encoderblock_{index}/{part}"] = Place(name, index)
                shapes[f"Transformer/encoderblock_{index}/{part}"] = shape[1:]
        else:
            places[plain], shapes[plain] = Place(name), shape
    return places, shapes


def _foreign_config(path: Path) -> Mapping[str, Any]:
    """Return the config.json beside a file if it is one of timm or transformers; any other is not about the weights."""
    config = _side_file(path)
    return config if any(key in config for key in FOREIGN_CONFIGS) else {}


def _side_file(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file.

    Raises:
        WeightsError: it cannot be read as one.
    """
    try:
        if path.stat().st_size > SIDE_FILE_LIMIT:
            raise ValueError(f"it has {path.stat().st_size:,} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"'{path}' cannot be read as JSON ({error}); fetch it again.") from error
    if not isinstance(content, dict):
        raise WeightsError(f"'{path}' cannot be read: it holds no JSON object; fetch it again.")
    return content

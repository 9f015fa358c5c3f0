"""From a file's names and shapes alone to the architecture that they belong to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vitral.errors import ModelError, WeightsError
from vitral.models.vit import ViTConfig
from vitral.weights.containers import Shape
from vitral.weights.names.vit import LINEN, ORIGINAL, POSITION_NAMES, Generation

# Where the weights lie in a file that holds more: an optimizer's state, or an image tower beside a text tower.
PREFIXES = ("opt/target/", "params/img/", "params/")
SCANNED = "Transformer/encoderblock/"
DEFAULT_GRID_SIZE = 224  # pixels, for a file whose fixed position embedding says nothing of the size


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: its name in the file, and its index along the depth where all blocks are stored as one."""

    name: str
    index: int | None = None


@dataclass(frozen=True)
class Recognized:
    """What a file holds.

    Attributes:
        config: the architecture.
        generation: how its blocks' parts are called.
        position: the name of the position embedding; None for a fixed one.
        class_row: whether that has a row for the class token.
        head: whether there is a head.
        places: where each tensor lies, by its name without prefix.
        shapes: of each tensor.
        notes: what a user should know, one line each.
    """

    config: ViTConfig
    generation: Generation
    position: str | None
    class_row: bool
    head: bool
    places: dict[str, Place]
    shapes: dict[str, Shape]
    notes: tuple[str, ...]


def recognize(stored: Mapping[str, Shape], source: str) -> Recognized:
    """Recognise a Vision Transformer of the original or of big_vision.

    Raises:
        WeightsError: the names or shapes are of no architecture that is known.
    """
    places, shapes = _plain_names(stored)
    if "conv_root/kernel" in shapes:
        raise WeightsError(
            f"'{source}' is a hybrid (a ResNet before the transformer), which this version cannot build."
        )
    if "embedding/kernel" not in shapes or "Transformer/encoder_norm/scale" not in shapes:
        first = ", ".join(list(stored)[:3])
        raise WeightsError(
            f"'{source}' holds no architecture that is known (its tensors: {first}, …); the known layouts are the "
            "original's and big_vision's .npz files and Vitral's own classifier folders."
        )
    generation = ORIGINAL if f"Transformer/encoderblock_0/{ORIGINAL.mlp}/Dense_0/kernel" in shapes else LINEN
    position = next((name for name in POSITION_NAMES if name in shapes), None)
    try:
        config, class_row, notes = _config(shapes, generation, position, source)
    except (KeyError, ValueError, IndexError, ModelError) as error:
        raise WeightsError(f"'{source}' holds no whole Vision Transformer: {_reason(error)}.") from error
    return Recognized(config, generation, position, class_row, "head/kernel" in shapes, places, shapes, tuple(notes))


def _plain_names(stored: Mapping[str, Shape]) -> tuple[dict[str, Place], dict[str, Shape]]:
    prefix = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in stored)), "")
    places: dict[str, Place] = {}
    shapes: dict[str, Shape] = {}
    for name, shape in stored.items():
        plain = name.removeprefix(prefix)
        if not name.startswith(prefix) or plain.startswith("opt/"):
            continue  # the optimizer's state, or the other tower
        if plain.startswith(SCANNED) and shape:
            part = plain.removeprefix(SCANNED)
            for index in range(shape[0]):
                places[f"Transformer/encoderblock_{index}/{part}"] = Place(name, index)
                shapes[f"Transformer/encoderblock_{index}/{part}"] = shape[1:]
        else:
            places[plain], shapes[plain] = Place(name), shape
    return places, shapes


def _config(
    shapes: Mapping[str, Shape], generation: Generation, position: str | None, source: str
) -> tuple[ViTConfig, bool, list[str]]:
    notes = []
    patch_height, patch_width, channels, dim = shapes["embedding/kernel"]
    if channels != 3:
        raise ValueError(f"its patches have {channels} channels, not 3")
    block = "Transformer/encoderblock_0"
    _, heads, _ = shapes[f"{block}/{generation.attention}/query/kernel"]
    depth = len({name.split("/")[1] for name in shapes if name.startswith("Transformer/encoderblock_")})
    pooling = "token" if "cls" in shapes else "map" if "MAPHead_0/probe" in shapes else "gap"
    if position is None:
        rows, columns, class_row = (
            max(1, DEFAULT_GRID_SIZE // patch_height),
            max(1, DEFAULT_GRID_SIZE // patch_width),
            False,
        )
        notes.append(
            "The file has no position embedding, so it is the fixed sin-cos one, for 224 pixels until resized."
        )
    else:
        rows, class_row = _grid(shapes[position][1], token=pooling == "token")
        columns = rows
    if "head/kernel" not in shapes:
        notes.append("The file has no head: its predictions mean nothing until it is fine-tuned.")
    config = ViTConfig(
        image_size=(rows * patch_height, columns * patch_width),
        patch_size=(patch_height, patch_width),
        dim=dim,
        depth=depth,
        mlp_dim=shapes[f"{block}/{generation.mlp}/Dense_0/kernel"][1],
        num_heads=heads,
        num_classes=shapes["head/kernel"][1] if "head/kernel" in shapes else 1000,
        position="sincos-2d" if position is None else "learned",
        pooling=pooling,  # type: ignore[arg-type]
        representation_size=shapes["pre_logits/kernel"][1] if "pre_logits/kernel" in shapes else None,
    )
    return config, class_row, notes


def _grid(tokens: int, *, token: bool) -> tuple[int, bool]:
    """Return the side of the square grid, and whether the class token has a row too."""
    if token and math.isqrt(tokens - 1) ** 2 == tokens - 1:
        return math.isqrt(tokens - 1), True
    if math.isqrt(tokens) ** 2 != tokens:
        raise ValueError(f"its position embedding has {tokens} rows, which is no square grid")
    return math.isqrt(tokens), False


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error).rstrip(".")

"""V-MoE's checkpoints: an index of arrays and numbered shards of their parts (google-research/vmoe, vmoe/checkpoints).

The index, PREFIX.index, has for every array its shape and type, and which of its slices stand in which shard; the shards,
PREFIX.data-00000-of-00004 and so on, have the values of slices by the array's number, counted through the tree of names in
alphabetical order. All are msgpack with types of the library's own. Nothing in such a file is code, and nothing is run.
"""

import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.errors import WeightsError, extra_module
from vitral.weights.containers import Container, Shape, check_total, weights_errors

EXTRA = "vmoe"
STARTS = (b"\x82", b"\x83")  # of an index, which is a map of two or three entries
CHUNKS = "__msgpack_array_chunk_a87ca2__"  # the entry by which a shard is known
SHARDS_LIMIT = 100_000  # as many as their names can number
# Codes of the library's types (vmoe/checkpoints/serialization.py, _MsgpackExtType).
ARRAY = 1
SLICES = 6
INFO = 8
FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Slices = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Info:
    """What an index says of an array: its shape, the name of its type, and the shard of each of its slices."""

    shape: Shape
    dtype: str
    shards: Mapping[Slices, int]


class VMoEShards(Container):
    """A checkpoint of V-MoE's library, by its PREFIX.index; the shards are read when the first tensor is asked for.

    Raises:
        WeightsError: it is no such index, a shard is missing, or msgpack is not installed.
    """

    def __init__(self, index: Path) -> None:
        self.path = index
        content = _unpacked(index)
        tree = content.get("index") if isinstance(content, dict) else None
        count = content.get("shard_count") if isinstance(content, dict) else None
        if isinstance(content, dict) and CHUNKS in content:
            raise WeightsError(f"'{index}' is a shard of a checkpoint; name its index, which ends in .index.")
        if not isinstance(tree, dict) or not isinstance(count, int) or not 1 <= count < SHARDS_LIMIT:
            raise WeightsError(f"'{index}' is not an index of V-MoE's shards, as its first bytes say.")
        self._infos = dict(_leaves(tree, index))
        self.shapes = {name: info.shape for name, info in self._infos.items()}
        prefix = index.name.removesuffix(".index")
        self._parts = [index.with_name(f"{prefix}.data-{number:05d}-of-{count:05d}") for number in range(count)]
        if missing := [part.name for part in self._parts if not part.is_file()]:
            some = f"{missing[0]} and {len(missing) - 1} more" if len(missing) > 1 else missing[0]
            raise WeightsError(f"'{index}' lacks {some} beside it, of {count} shards; fetch them into the same folder.")
        declared = sum(math.prod(info.shape) * _itemsize(info) for info in self._infos.values())
        check_total(index, declared, held=sum(part.stat().st_size for part in self._parts))
        self._tensors: dict[str, Tensor] | None = None
        self._lock = threading.Lock()

    def read(self, name: str) -> Tensor:
        """Return one tensor in float32."""
        with self._lock:
            if self._tensors is None:
                with weights_errors(self.path):
                    self._tensors = self._assembled()
        return self._tensors[name]

    def _assembled(self) -> dict[str, Tensor]:
        names = list(self._infos)
        tensors = {name: torch.full(info.shape, math.nan) for name, info in self._infos.items()}
        missing = {name: set(info.shards) for name, info in self._infos.items()}
        for number, part in enumerate(self._parts):
            for array, slices, values in _pieces(part):
                name = names[array] if 0 <= array < len(names) else None
                if name is None or self._infos[name].shards.get(slices) != number or slices not in missing[name]:
                    raise WeightsError(f"'{part}' holds what its index does not name; fetch all files of it again.")
                missing[name].remove(slices)
                tensors[name][tuple(slice(*ends) for ends in slices)] = values
        if lacking := [name for name, slices in missing.items() if slices]:
            raise WeightsError(f"'{self.path}': its shards lack a part of '{lacking[0]}'; fetch them again.")
        return tensors


def is_shard_index(path: Path) -> bool:
    """Tell by its first byte whether a file may be an index of V-MoE's shards, or one of the shards.

    Raises:
        WeightsError: it cannot be read.
    """
    with weights_errors(path), open(path, "rb") as file:
        start = file.read(64)
    return start[:1] in STARTS or CHUNKS.encode() in start


def _unpacked(path: Path) -> Any:  # noqa: ANN401  # what a file holds
    msgpack = extra_module("msgpack", EXTRA, f"'{path}', a checkpoint of V-MoE's library,")
    with weights_errors(path):
        try:
            return msgpack.unpackb(path.read_bytes(), ext_hook=_typed, raw=False)
        except msgpack.UnpackException as error:
            raise ValueError(f"not whole msgpack: {error or type(error).__name__}") from error


def _typed(code: int, data: bytes) -> Any:  # noqa: ANN401
    """Return a value of one of the library's own types; of another one nothing."""
    if code == ARRAY:
        return _array(data)
    if code == SLICES:
        return _slices(_packed(data))
    if code == INFO:
        (shape, dtype, *_), slices, shards = (
            _packed(part) if isinstance(part, bytes) else part for part in _packed(data)
        )
        pairs = zip((_slices(_packed(entry)) for entry in slices), shards, strict=True)
        return _Info(tuple(shape), dtype.decode(), dict(pairs))
    return None


def _packed(data: bytes) -> Any:  # noqa: ANN401
    import msgpack

    return msgpack.unpackb(data, raw=True)


def _slices(packed: list[bytes]) -> Slices:
    return tuple((start, stop) for start, stop, _ in map(_packed, packed))


def _array(data: bytes) -> Tensor:
    shape, dtype, values = _packed(data)
    kind = FLOATS.get(dtype.decode())
    if kind is None:  # a count of steps, say, which no network reads
        return torch.from_numpy(np.frombuffer(values, dtype.decode()).astype(np.float32)).reshape(shape)
    return torch.frombuffer(bytearray(values), dtype=kind).float().reshape(shape)


def _leaves(tree: Mapping[str, Any], source: Path, before: str = "") -> Iterator[tuple[str, _Info]]:
    """Yield the arrays of an index in the order in which the shards number them."""
    for name in sorted(tree):
        value, whole = tree[name], f"{before}{name}"
        if isinstance(value, dict):
            yield from _leaves(value, source, f"{whole}/")
        elif isinstance(value, _Info):
            _check(value, whole, source)
            yield whole, value
        else:
            raise WeightsError(f"'{source}': '{whole}' is not described as an array is.")


def _check(info: _Info, name: str, source: Path) -> None:
    """Refuse an array whose slices are not inside it, or not of as many values as it has."""
    inside = all(
        len(slices) == len(info.shape)
        and all(0 <= start <= stop <= side for (start, stop), side in zip(slices, info.shape, strict=True))
        for slices in info.shards
    )
    held = sum(math.prod(stop - start for start, stop in slices) for slices in info.shards)
    if not inside or held != math.prod(info.shape):
        raise WeightsError(f"'{source}': the parts of '{name}' are not a whole array of {info.shape}.")


def _itemsize(info: _Info) -> int:
    return np.dtype(info.dtype).itemsize if info.dtype not in FLOATS else FLOATS[info.dtype].itemsize


def _pieces(part: Path) -> Iterator[tuple[int, Slices, Tensor]]:
    """Yield the number of an array, a slice of it and its values, for all that a shard holds."""
    content = _unpacked(part)
    if not isinstance(content, dict) or CHUNKS not in content:
        raise WeightsError(f"'{part}' is not a shard of a V-MoE checkpoint; fetch it again.")
    for array, pieces in content.items():
        for values, slices in pieces if array != CHUNKS else ():
            shape = [stop - start for start, stop in slices]
            yield int(array), slices, torch.cat([value.flatten() for value in values]).reshape(shape)

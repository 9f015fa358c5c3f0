"""The interface of an exported file: decoded or prepared images in, logits out; and where such a file is cut."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32, UInt8

from vitral.inference.engines import Precision

Decoded = UInt8[np.ndarray, "batch rows columns 3"]
Prepared = Float32[np.ndarray, "batch 3 height width"]
Outputs = Float32[np.ndarray, "batch classes"]

FORMAT = "vitral-exported"  # the entry "format" in the metadata of a file of Vitral's
PRECISION = "precision"  # the entry that says whether its linear layers are of integers: "int8", or "fp32"
# Names of values in a file of Vitral's.
IMAGES = "images"  # its input
PROBABILITIES = "probabilities"  # its first output
LOGITS = "logits"  # its second output
PREPARED = "prepared"  # where preparation ends and the network begins


@dataclass(frozen=True)
class Port:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        dtype: Numpy's name of its type: "uint8".
        shape: Its axes; None for one of any length.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Graph(ABC):
    """A file and the runtime that computes it; nothing is computed before it is needed, or kept when it is pickled.

    Args:
        path: The file.
        precision: The precision of what is not of integers.

    Attributes:
        engine: The runtime.
        metadata: What the file says of itself, texts by name.
        inputs: What it takes.
        outputs: What it gives.
    """

    engine: ClassVar[str]
    metadata: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __init__(self, path: Path, precision: Precision) -> None:
        self.path, self.precision = path, precision
        self._parts: dict[str, Any] = {}
        self._making = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled or copied: all but what the runtime made, and the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_making"} | {"_parts": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _making=threading.Lock())

    @property
    def is_ours(self) -> bool:
        """Whether Vitral wrote the file, so that it has both parts."""
        return self.metadata.get("format") == FORMAT

    @property
    def computes_in(self) -> Precision:
        """The precision of its products: int8 where Vitral wrote layers of integers, else the runtime's."""
        return "int8" if self.is_ours and self.metadata.get(PRECISION) == "int8" else self.precision

    def _made(self, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401  # what the runtime makes of a part
        """Return a part of the file as the runtime computes it, which one thread makes once."""
        with self._making:
            if name not in self._parts:
                self._parts[name] = make()
        return self._parts[name]

    def files(self) -> list[Path]:
        """Return the file, and the one with its weights where there is one."""
        beside = (self.path.with_suffix(".bin"), self.path.with_name(f"{self.path.name}.data"))
        return [self.path, *(path for path in beside if path.is_file())]

    @abstractmethod
    def prepare(self, images: Decoded) -> Prepared:
        """Return the network's input, computed by the file's own first part; several threads may call it at once."""

    @abstractmethod
    def answer(self, images: Prepared) -> Outputs:
        """Return the logits of prepared images, computed by the file's second part."""

    @abstractmethod
    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""

    @abstractmethod
    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""

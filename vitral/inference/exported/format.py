"""Exported files: their interface, decoded or prepared images in, logits out, where such a file is cut, and what a format does.

A further format is a class in a file here, and a row in `open.py`.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from jaxtyping import Float32, UInt8

from vitral.errors import ModelError
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
ROUNDED = "QLinear"  # before the name of an operation whose values are rounded to 8 bits, as ONNX Runtime has it
ANSWERS = "answers"  # the entry that names the values which a network of regions gives, spaces between them


@dataclass(frozen=True)
class Port:
    """An input or output of a graph: its name, numpy's name of its type, and its axes, None for one of any length."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


class Graph(ABC):
    """A file and the runtime that computes it; nothing is computed before it is needed, or kept when it is pickled.

    Attributes:
        engine: The runtime.
        metadata: What the file says of itself, texts by name.
        inputs: What it takes.
        outputs: What it gives.
        taken: The place among them of the answers, in a file of another program.
    """

    engine: ClassVar[str]
    metadata: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __init__(self, path: Path, precision: Precision) -> None:
        self.path, self.precision, self.taken = path, precision, 0
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
    def regions(self) -> tuple[str, ...]:
        """The values within the graph that say what is where in an image; none in a file about images as a whole."""
        return tuple(self.metadata.get(ANSWERS, "").split()) if self.is_ours else ()

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

    def answers(self, images: Prepared) -> dict[str, np.ndarray]:
        """Return `regions` of prepared images, computed by the file's second part; a format that can hold them overrides it."""
        raise ModelError(f"'{self.path}' answers for images as a whole, not for regions of them.")

    @abstractmethod
    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""

    def last_operation(self) -> str:
        """Return the name of the operation that gives the answers, such as "Softmax", or "QLinearSoftmax"; empty where unknown.

        A runtime that shows its graph overrides it.
        """
        return ""

    @abstractmethod
    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""


if TYPE_CHECKING:
    import torch  # which takes seconds to import, and which a reader of files does without

DECODED_AXES: Mapping[int, str] = {0: "batch", 1: "height", 2: "width"}  # the free axes of decoded images
PREPARED_AXES: Mapping[int, str] = {0: "batch"}  # the free axes of prepared images
Layers = dict[str, str]  # from the name of a layer of the network to that of the value of a file which it gives
Answer = Callable[[Decoded], Float32[np.ndarray, "batch classes"]]


class Programs(Protocol):
    """A classifier as graphs in torch, each traced when it is called for."""

    version: str

    def preparing(self) -> "torch.export.ExportedProgram":
        """Return the graph from decoded images to prepared ones."""

    def answering(self) -> "torch.export.ExportedProgram":
        """Return the graph from prepared images to probabilities and logits."""

    def whole(self) -> "torch.export.ExportedProgram":
        """Return both in one."""


@dataclass(frozen=True)
class Sample:
    """Code that uses a file without Vitral: the language for people, and as Markdown calls it."""

    title: str
    language: str
    code: str


@dataclass(frozen=True)
class Check:
    """One way to compute a file that was written, to be compared with the classifier.

    Attributes:
        computed_by: The runtime and the precision.
        answer: What computes the probabilities.
        has_to_hold: Whether they have to be the classifier's.
    """

    computed_by: str
    answer: Answer
    has_to_hold: bool = True


class ExportFormat(ABC):
    """A format of exported files, and the runtime that computes them.

    Attributes:
        title: What a file is, in a sentence.
        files: The files that are written, the one to open first.
        engine: The runtime; empty where files are never opened here.
        packages: What has to be installed: the runtime, then what a file is written with.
        precisions: The precisions that the runtime computes in.
        writes_int8: Whether a file can have layers of integers.
        samples: How a file is used.
        outputs: Rows of Markdown on further outputs of a file: kind, name, type, axes.
        warning: What is to be known before a file is loaded.
    """

    title: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    engine: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    precisions: ClassVar[tuple[Precision, ...]] = ("fp32",)
    writes_int8: ClassVar[bool] = True
    samples: ClassVar[tuple[Sample, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()
    warning: ClassVar[str] = ""

    @abstractmethod
    def write(self, programs: Programs, metadata: Mapping[str, str], path: Path) -> Layers:
        """Write a classifier as `files`, of which `path` is the first, with texts by name that the file keeps.

        Returns:
            The names of the values that the network's layers give; empty where these cannot be read.

        Raises:
            ModelError: The network has an operation that the format has not.
            OSError: The files cannot be written.
        """

    @abstractmethod
    def open(self, path: Path, precision: Precision) -> Graph:
        """Return a file with its runtime, which computes in a precision what is not of integers.

        Raises:
            WeightsError: The file cannot be read, or is machine code.
        """

    def checks(self, path: Path, precision: Precision) -> Iterator[Check]:
        """Give how a file that was written is computed: "int8" or "fp32" is what its layers are of."""
        yield Check(f"{self.engine} in {precision}", self.open(path, "fp32").whole)

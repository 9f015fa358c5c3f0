"""What a format of exported files says and does: a further one is a class in a file here, and a row in `open.py`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from jaxtyping import Float32

from vitral.inference.engines import Precision
from vitral.inference.exported.graph import Decoded, Graph

if TYPE_CHECKING:
    import torch  # which takes seconds to import, and which a reader of files does without

DECODED_AXES: Mapping[int, str] = {0: "batch", 1: "height", 2: "width"}  # the free axes of decoded images
PREPARED_AXES: Mapping[int, str] = {0: "batch"}  # the free axes of prepared images
Layers = dict[str, str]  # from the name of a layer of the network to that of the value of a file which it gives
Answer = Callable[[Decoded], Float32[np.ndarray, "batch classes"]]


class Programs(Protocol):
    """A classifier as graphs in torch, each traced when it is called for.

    Attributes:
        version: The version of Vitral that writes the file.
    """

    version: str

    def preparing(self) -> "torch.export.ExportedProgram":
        """Return the graph from decoded images to prepared ones."""

    def answering(self) -> "torch.export.ExportedProgram":
        """Return the graph from prepared images to probabilities and logits."""

    def whole(self) -> "torch.export.ExportedProgram":
        """Return both in one."""


@dataclass(frozen=True)
class Sample:
    """Code that uses a file without Vitral.

    Attributes:
        title: The name of its language.
        language: The same as Markdown has it.
        code: The code.
    """

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
        """Write a classifier.

        Args:
            programs: The classifier.
            metadata: Texts by name, which the file keeps.
            path: The first of `files`.

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

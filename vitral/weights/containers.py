"""Files of named tensors: npz, safetensors and torch's zip. Only bytes and shapes; the names' meaning is not known here.

Nothing is ever unpickled: NumPy's object arrays are refused, and torch files go through its weights-only reader, without a
fall-back. Shapes are known before any tensor is read, and a file cannot make us allocate much more than its own size.
"""

import errno
import itertools
import lzma
import math
import os
import re
import stat
import struct
import tarfile
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from vitral.data.packed import packing
from vitral.errors import WeightsError, one_line, refuse_shortage
from vitral.files import POSIX
from vitral.paths import DESCRIPTION, POINTER, is_pointer
from vitral.weights.unpickled import named_tensors, said_beside, unpickled, what_it_is

Shape = tuple[int, ...]

COMMENT = b"vitral "  # what our comment of an archive begins with
ARCHITECTURE = "architecture"  # the metadata's key for the network's config
SHOWN = 160  # characters of another library's message
NAMED = 3  # tensors that an error names
COUNTER = "num_batches_tracked"  # a batch norm's: the only integer tensor, which no computation needs
# What archives of programs hold, by a part of a member's name.
PROGRAMS = {"/code/__torch__": "a program of TorchScript", "/models/model.json": "a program of torch.export"}
SAFETENSORS_HEADER_LIMIT = 100_000_000
# What the readers raise for damaged files.
PACKING = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, struct.error)
DAMAGED_ARCHIVE = (*PACKING, SyntaxError, tokenize.TokenError)  # NumPy's headers are Python literals
DAMAGED_FILE = (OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, MemoryError, ArithmeticError)
CHUNK = 1 << 20  # bytes unpacked at once
INFLATION = 3  # a file may declare this many times its size,
ALLOWANCE = 64 << 20  # and so many bytes more


class Container(ABC):
    """An open weights file.

    Attributes:
        path: The file's path.
        shapes: The shape of every tensor, by name.
        entries: the entries of a torch file that hold tensors of their own, such as "model"; the names of these begin with it.
        metadata: text stored with the tensors: that of safetensors files, and an archive's comment where it is ours.
        said: what else a torch file's outermost entries hold, by name.
    """

    path: Path
    shapes: dict[str, Shape]
    entries: tuple[str, ...] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    said: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def read(self, name: str) -> Tensor:
        """Return one tensor in float32, or raise WeightsError if its bytes are damaged; a batch norm's counter as it is."""


@contextmanager
def open_container(path: str | Path) -> Iterator[Container]:
    """Open a weights file; its content decides the format, never the extension.

    Raises:
        WeightsError: it is not a weights file, is damaged, or is not safe to read.
    """
    path = Path(path)
    with weights_errors(path):
        check_file(path)
        yield _open(path)


@contextmanager
def weights_errors(path: Path) -> Iterator[None]:
    """Turn whatever a damaged weights file makes the readers raise into one line that names it."""
    try:
        yield
    except WeightsError:
        raise
    except SafetensorError as error:
        refuse_shortage(error, f"to read '{path}'")
        raise WeightsError(f"'{path}' is not a whole safetensors file ({one_line(error)[:SHOWN]}).") from error
    except PermissionError as error:
        raise WeightsError(f"'{path}' cannot be read: no permission; allow reading it.") from error
    except DAMAGED_FILE as error:
        refuse_shortage(error, f"to read '{path}'")
        raise WeightsError(
            f"'{path}' is damaged or not a weights file ({one_line(error)[:SHOWN]}); fetch it again."
        ) from error
    except DAMAGED_ARCHIVE as error:
        raise WeightsError(f"'{path}' is a damaged archive ({one_line(error)[:SHOWN]}); fetch it again.") from error


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return every tensor of a weights file, in float32, or raise WeightsError if it cannot be read."""
    with open_container(path) as container:
        return {name: container.read(name) for name in container.shapes}


def write_safetensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as a safetensors file, with text metadata.

    Raises:
        OSError: it cannot be written; the library's own error hides which.
    """
    path.touch()
    mode = path.stat().st_mode  # of the umask; the library would make the file private to its owner
    try:
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            path,
            metadata={"format": "pt", **(metadata or {})},
        )
        path.chmod(stat.S_IMODE(mode))
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else errno.EIO, os.strerror(int(code[1])) if code else str(error)) from error


def write_torch(content: Mapping[str, Any], path: Path) -> None:
    """Write tensors as torch's zip.

    Raises:
        OSError: it cannot be written; torch's own error hides which.
    """
    try:
        with open(path, "wb") as file:
            torch.save(content, file)
    except RuntimeError as error:
        cause = error.__context__
        raise (cause if isinstance(cause, OSError) else OSError(errno.EIO, str(error))) from error


def write_architecture(path: Path, text: str) -> None:
    """Keep a network's config in an archive of tensors (.npz or torch's), where no other reader looks: in its comment.

    Args:
        path: The archive.
        text: The config as JSON, at most 65,000 bytes in UTF-8.

    Raises:
        OSError: It cannot be written.
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = COMMENT + text.encode()


def _comment(archive: zipfile.ZipFile) -> Mapping[str, str]:
    """Return the metadata in an archive's comment; none where another program wrote it."""
    comment = archive.comment
    return {ARCHITECTURE: comment.removeprefix(COMMENT).decode()} if comment.startswith(COMMENT) else {}


def assign(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Make `tensors` the parameters of a model, which may be on the `meta` device; nothing is copied.

    Raises:
        WeightsError: a tensor is missing, extra or of the wrong shape; the first are named, all are counted.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    compare(wanted, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, source)
    model.load_state_dict(dict(tensors), assign=True)  # whether each learns stays as the model has it


def compare(wanted: Mapping[str, Shape], held: Mapping[str, Shape], source: str) -> None:
    """Check that a file holds exactly the tensors that a model needs.

    Raises:
        WeightsError: a tensor is missing, extra or of the wrong shape; the first are named, all are counted.
    """
    problems = []
    if missing := [name for name in wanted if name not in held]:
        problems.append(f"lacks {some(missing)}")
    if extra := [name for name in held if name not in wanted]:
        problems.append(f"has {some(extra)} that the model does not have")
    if wrong := [name for name in wanted if name in held and wanted[name] != held[name]]:
        shapes = [f"{name} of {held[name]} instead of {wanted[name]}" for name in wrong]
        problems.append(f"has {some(shapes)}")
    if problems:
        raise WeightsError(f"'{source}' does not fit the model: it {'; it '.join(problems)}.")


def some(names: Collection[str]) -> str:
    """Return the first names of tensors, and how many more there are."""
    shown = ", ".join(itertools.islice(names, NAMED))
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


def check_file(path: Path) -> None:
    """Refuse what is not a regular file of some bytes that can be read, by a WeightsError."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise WeightsError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise WeightsError(f"'{path}' is not a regular file.")
    if status.st_size == 0:
        raise WeightsError(f"'{path}' is empty (0 bytes); fetch it again.")


def _open(path: Path) -> Container:
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(b"PK"):
        return _open_zip(path)
    if is_pointer(start):
        raise WeightsError(f"'{path}' {POINTER}.")
    if start[8:9] == b"{":
        return _Safetensors(path, int.from_bytes(start[:8], "little"))
    if start.startswith(b"\x93NUMPY"):
        raise WeightsError(f"'{path}' is a single NumPy array, not a file of named tensors (.npz).")
    if start.startswith(b"\x80"):
        return _Torch(path)
    if packing(path) or tarfile.is_tarfile(path):
        raise WeightsError(f"'{path}' is packed; unpack it, and name what it holds.")
    raise WeightsError(
        f"'{path}' is not a weights file: its content is neither npz, nor safetensors, nor a torch file."
    )


def _open_zip(path: Path) -> Container:
    with zipfile.ZipFile(path) as archive:
        members, metadata = archive.infolist(), _comment(archive)
    if any(PurePosixPath(member.filename).name == DESCRIPTION for member in members):
        raise WeightsError(f"'{path}' is a packed classifier; unpack it, and name its folder.")
    if program := next((kind for end, kind in PROGRAMS.items() for name in members if end in name.filename), ""):
        raise WeightsError(
            f"'{path}' is {program}, which is never run here; save the network's state_dict(), or export it as ONNX."
        )
    if not any(member.filename.endswith("data.pkl") for member in members):
        if members and not any(member.filename.endswith(".npy") for member in members):
            held = some([member.filename for member in members])
            raise WeightsError(f"'{path}' is an archive of other files ({held}); unpack it, and name one of them.")
        return _Npz(path)
    check_total(path, sum(member.file_size for member in members))
    return _Torch(path, metadata)


def check_total(path: Path, declared: int, *, held: int | None = None) -> None:
    """Refuse a file that would take far more memory than it has bytes.

    Args:
        path: the file.
        declared: The number of bytes of its tensors.
        held: The number of bytes on disk, if not in this file alone.

    Raises:
        WeightsError: it would.
    """
    size = path.stat().st_size if held is None else held
    if declared > INFLATION * size + ALLOWANCE:
        raise WeightsError(
            f"'{path}' would unpack from {size:,} to {declared:,} bytes, far more than weights do; it is not read."
        )


@dataclass(frozen=True)
class _Member:
    """An array in an archive: its header, and where its values begin."""

    shape: Shape
    dtype: np.dtype[Any]
    fortran: bool
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Npz(Container):
    def __init__(self, path: Path) -> None:
        self.path = path
        # Headers are parsed only here: the parser of Python 3.11 is not thread-safe.
        self._members: dict[str, _Member] = {}
        self._archive = zipfile.ZipFile(path)
        self.metadata = _comment(self._archive)
        for info in self._archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in self._members:
                raise WeightsError(f"'{path}' holds the tensor '{name}' twice.")
            self._members[name] = self._header(info)
        self.shapes = {name: member.shape for name, member in self._members.items()}
        check_total(path, sum(member.size for member in self._members.values()))

    def _header(self, info: zipfile.ZipInfo) -> _Member:
        with self._archive.open(info) as member:
            version = npy.read_magic(member)
            if version not in ((1, 0), (2, 0)):
                raise WeightsError(f"'{self.path}': '{info.filename}' is of an unknown NumPy version {version}.")
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read(member)
            if dtype.hasobject or not (dtype.kind == "f" or dtype.str in ("|V2", "<V2")):
                raise WeightsError(f"'{self.path}': '{info.filename}' holds {dtype}, not floating-point numbers.")
            header = _Member(tuple(shape), dtype, fortran, member.tell())
            if header.start + header.size != info.file_size:
                raise WeightsError(
                    f"'{self.path}': '{info.filename}' is cut short or longer than its shape {shape} says."
                )
        return header

    def read(self, name: str) -> Tensor:
        header = self._members[name]
        with weights_errors(self.path), self._archive.open(f"{name}.npy") as member:
            member.read(header.start)
            array = np.empty(math.prod(header.shape), header.dtype)
            buffer = array.view(np.uint8).data
            for start in range(0, len(buffer), CHUNK):
                part = member.read(min(CHUNK, len(buffer) - start))
                buffer[start : start + len(part)] = part
            member.read(1)  # at the end of the member the archive checks its checksum
            array = array.reshape(header.shape, order="F" if header.fortran else "C")
            if array.dtype.kind == "V":  # bfloat16, which NumPy does not know
                return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).float()
            return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


class _Safetensors(Container):
    def __init__(self, path: Path, header: int) -> None:
        if header > min(SAFETENSORS_HEADER_LIMIT, path.stat().st_size):
            raise WeightsError(f"'{path}' declares a header of {header:,} bytes, which it does not have.")
        self.path = path
        self._file = cast(Any, safe_open(path, framework="pt"))  # its stubs are untyped
        self.metadata = self._file.metadata() or {}
        self.shapes = {name: tuple(self._file.get_slice(name).get_shape()) for name in self._file.keys()}  # noqa: SIM118

    def read(self, name: str) -> Tensor:
        with weights_errors(self.path):
            tensor = self._file.get_tensor(name)
            # Without a copy the file stays mapped, and Windows replaces no such file, nor a folder that it lies in.
            return _floating(tensor if POSIX else tensor.clone(), name, self.path)


class _Torch(Container):
    def __init__(self, path: Path, metadata: Mapping[str, str] | None = None) -> None:
        zipped = metadata is not None
        self.path, self.metadata = path, metadata or {}
        try:
            content = unpickled(path, zipped=zipped)
        except Exception as error:  # the weights-only reader refuses in many ways
            refuse_shortage(error, f"to read '{path}'")
            why = f" ({error})" if isinstance(error, WeightsError) else ""
            raise WeightsError(
                f"'{path}' holds more than tensors, or is damaged, and is not unpickled{why}; convert it to safetensors."
            ) from error
        self._tensors = named_tensors(content, path)
        if not self._tensors:
            raise WeightsError(f"'{path}' is not a state_dict: {what_it_is(content)}.")
        self.said = said_beside(content)
        self.entries = tuple(str(name) for name, value in content.items() if isinstance(value, dict))
        for name, tensor in self._tensors.items():
            _check_plain(tensor, name, path)
        # A view may claim any number of values over a storage that holds one.
        check_total(path, sum(tensor.numel() * tensor.element_size() for tensor in self._tensors.values()))
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> Tensor:
        return _floating(self._tensors[name], name, self.path)


class Shards(Container):
    """Several files that hold one model's tensors, as transformers writes large ones."""

    def __init__(self, index: Path, parts: list[Container]) -> None:
        self.path = index
        self._parts = {name: part for part in parts for name in part.shapes}
        self.shapes = {name: part.shapes[name] for name, part in self._parts.items()}

    def read(self, name: str) -> Tensor:
        """Return one tensor, from the part that holds it."""
        return self._parts[name].read(name)


def _check_plain(tensor: Tensor, name: str, path: Path) -> None:
    """Refuse a tensor without plain values in memory."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
        raise WeightsError(f"'{path}': '{name}' is a sparse, quantized or empty tensor, not one of plain numbers.")


def _floating(tensor: Tensor, name: str, path: Path) -> Tensor:
    if name.endswith(COUNTER) and tensor.dtype == torch.int64:
        return tensor
    if not tensor.is_floating_point():
        raise WeightsError(f"'{path}': '{name}' holds {tensor.dtype}, not floating-point numbers.")
    return tensor.float()

"""The formats of exported files by name, and which file is of which."""

from pathlib import Path
from typing import Literal

from vitral.errors import ModelError, WeightsError
from vitral.inference.engines import EngineChoice, PrecisionChoice, check_installed
from vitral.inference.exported.format import PROBABILITIES, ExportFormat, Graph
from vitral.inference.exported.onnx_format import OnnxFormat
from vitral.inference.exported.openvino_format import OpenVinoFormat
from vitral.inference.exported.torch_format import TorchFormat
from vitral.paths import CARD, is_regular

Format = Literal["onnx", "openvino", "torch"]  # those of Vitral, for type checkers and the command line
FORMATS: dict[str, ExportFormat] = {"onnx": OnnxFormat(), "openvino": OpenVinoFormat(), "torch": TorchFormat()}


def own_files() -> set[str]:
    """Return the names of all that an export may leave in its folder."""
    return {CARD, *(name for row in FORMATS.values() for name in row.files)}


def format_of(path: Path) -> ExportFormat | None:
    """Return the format that a file's name ends in; None if it ends in none."""
    return next((row for row in FORMATS.values() if Path(row.files[0]).suffix == path.suffix.lower()), None)


def is_exported(path: Path) -> bool:
    """Tell whether a path names a file of one of the formats, by its ending."""
    return format_of(path) is not None and is_regular(path)


def exported_in(folder: Path) -> Path | None:
    """Return the file of an export in a folder; None if there is none."""
    return next((folder / row.files[0] for row in FORMATS.values() if is_regular(folder / row.files[0])), None)


def open_graph(path: Path, engine: EngineChoice | None = None, precision: PrecisionChoice | None = None) -> Graph:
    """Return a file with its runtime.

    Args:
        path: The file.
        engine: The name of that runtime, "auto" or None.
        precision: The precision in which it computes; None and "auto" for fp32, or int8 where its layers are of integers.

    Raises:
        ModelError: The runtime is not installed, or another engine or a precision that it does not compute in is named.
        WeightsError: The file cannot be read, or is machine code.
    """
    row = format_of(path)
    assert row is not None, "only files of a format are opened"
    if row.engine:
        if engine not in (None, "auto", row.engine):
            raise ModelError(f"'{path}' is computed by {row.engine}, and by no other engine; leave the engine out.")
        check_installed(row.engine, row.packages[:1])
    graph = row.open(path, next((able for able in row.precisions if able == precision), "fp32"))
    if graph.is_ours and not graph.regions and not any(port.name == PROBABILITIES for port in graph.outputs):
        raise WeightsError(f"'{path}' does not say which of its values are its answers; export the classifier again.")
    able = ("int8",) if graph.computes_in == "int8" else row.precisions
    if precision not in (*able, "auto", None):
        raise ModelError(f"'{path}' is computed in {' or '.join(able)}, not in {precision}; leave the precision out.")
    return graph

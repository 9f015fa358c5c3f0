"""Which file is opened by which runtime."""

from pathlib import Path
from typing import Literal

from vitral.errors import ModelError, WeightsError
from vitral.inference.engines import Engine, EngineChoice, Precision, PrecisionChoice, check_able, precisions_of
from vitral.inference.exported.graph import Graph
from vitral.layout import CARD
from vitral.paths import is_regular

Format = Literal["onnx", "openvino", "torch"]
FILES: dict[Format, tuple[str, ...]] = {  # in the folder that an export writes, the one to open first
    "onnx": ("model.onnx", "model.onnx.data"),
    "openvino": ("model.xml", "model.bin"),
    "torch": ("model.pt2",),
}
OWN = {CARD, *(name for names in FILES.values() for name in names)}  # all that an export may leave in its folder
ENGINES: dict[Format, Engine] = {"onnx": "onnxruntime", "openvino": "openvino"}
SUFFIXES = {Path(names[0]).suffix: name for name, names in FILES.items()}  # of a file's name, and its format


def is_exported(path: Path) -> bool:
    """Tell whether a path names a file of one of the formats, by its ending."""
    return path.suffix.lower() in SUFFIXES and is_regular(path)


def exported_in(folder: Path) -> Path | None:
    """Return the file of an export in a folder; None if there is none."""
    return next((folder / names[0] for names in FILES.values() if is_regular(folder / names[0])), None)


def open_graph(path: Path, engine: EngineChoice | None = None, precision: PrecisionChoice | None = None) -> Graph:
    """Return a file with its runtime.

    Args:
        path: the file.
        engine: that runtime, "auto" or None.
        precision: in which it computes; None and "auto" for fp32, or int8 where its layers are of integers.

    Raises:
        ModelError: the runtime is not installed, or another engine or a precision that it does not compute in is asked for.
        WeightsError: the file cannot be read, or is machine code.
    """
    own = ENGINES.get(SUFFIXES[path.suffix.lower()])
    if own is None:
        raise WeightsError(
            f"'{path}' is machine code, which is never run here; load the classifier that it was made from, or run it in a "
            "program of your own, as the README.md beside it shows."
        )
    if engine not in (None, "auto", own):
        raise ModelError(f"'{path}' is computed by {own}, and by no other engine; leave the engine out.")
    check_able(own, "auto", converts=False)
    exact: Precision = "fp32"
    graph = opened_by(path, own, next((one for one in precisions_of(own) if one == precision), exact))
    able = ("int8",) if graph.computes_in == "int8" else precisions_of(own)
    if precision not in (*able, "auto", None):
        raise ModelError(f"'{path}' is computed in {' or '.join(able)}, not in {precision}; leave the precision out.")
    return graph


def opened_by(path: Path, engine: Engine, precision: Precision) -> Graph:
    """Return a file with its runtime, which computes in a precision what is not of integers.

    Raises:
        WeightsError: the file cannot be read.
    """
    if engine == "openvino":
        from vitral.inference.exported.openvino_graph import OpenVinoGraph

        return OpenVinoGraph(path, precision)
    from vitral.inference.exported.onnx_graph import OnnxGraph

    return OnnxGraph(path, precision)

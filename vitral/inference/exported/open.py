"""Which file is opened by which runtime."""

from pathlib import Path

from vitral.errors import ModelError
from vitral.inference.choice import EngineChoice, PrecisionChoice
from vitral.inference.exported.graph import Graph
from vitral.inference.runtimes import Engine, Precision, check_able, precisions_of

ENGINES: dict[str, Engine] = {".onnx": "onnxruntime", ".xml": "openvino"}  # by the ending of a file's name
NAMES = tuple(f"model{suffix}" for suffix in ENGINES)  # of the file in the folder that an export writes


def graph_in(path: Path) -> Path | None:
    """Return the exported file that a path names, itself or in the folder of an export; None if there is none."""
    if path.suffix.lower() in ENGINES and path.is_file():
        return path
    return next((path / name for name in NAMES if (path / name).is_file()), None)


def open_graph(path: Path, engine: EngineChoice | None = None, precision: PrecisionChoice = "fp32") -> Graph:
    """Return a file with its runtime.

    Args:
        path: the file.
        engine: that runtime, "auto" or None.
        precision: in which it computes; "auto" for fp32.

    Raises:
        ModelError: the runtime is not installed, or another engine or a precision that it does not compute in is asked for.
        WeightsError: the file cannot be read.
    """
    own = ENGINES[path.suffix.lower()]
    if engine not in (None, "auto", own):
        raise ModelError(f"'{path}' is computed by {own}, and by no other engine; leave the engine out.")
    check_able(own, precision)
    exact: Precision = "fp32"
    taken = next((one for one in precisions_of(own) if one == precision), exact)
    if own == "openvino":
        from vitral.inference.exported.openvino_graph import OpenVinoGraph

        return OpenVinoGraph(path, taken)
    from vitral.inference.exported.onnx_graph import OnnxGraph

    return OnnxGraph(path, taken)

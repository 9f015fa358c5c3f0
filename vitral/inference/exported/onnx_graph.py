"""An ONNX file, computed by ONNX Runtime on the CPU."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vitral.errors import WeightsError, one_line
from vitral.inference.engines import Engine, Precision, onnxruntime_session, thread_count
from vitral.inference.exported.graph import (
    IMAGES,
    LOGITS,
    PREPARED,
    PROBABILITIES,
    Decoded,
    Graph,
    Outputs,
    Port,
    Prepared,
)

if TYPE_CHECKING:
    import onnx  # of which only cutting a file needs anything

MOST_BYTES = 2**31 - 2**24  # of a message of protobuf: a graph with more weights has them in a file beside it
DTYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}


class OnnxGraph(Graph):
    """See `Graph`.

    Raises:
        WeightsError: it is not a readable ONNX file; the message names it.
    """

    engine: ClassVar[Engine] = "onnxruntime"

    def __init__(self, path: Path, precision: Precision) -> None:
        super().__init__(path, precision)
        try:
            session = onnxruntime_session(path, thread_count())
        except Exception as error:  # the runtime's own errors have no common class
            raise WeightsError(f"'{path}' is not an ONNX file that can be read ({one_line(error)}).") from error
        self.metadata = dict(session.get_modelmeta().custom_metadata_map)
        self.inputs = tuple(map(_port, session.get_inputs()))
        self.outputs = tuple(map(_port, session.get_outputs()))

    def _first_part(self) -> Any:  # noqa: ANN401  # an onnxruntime.InferenceSession
        # With one thread: each image is prepared by a thread or a process of its own.
        return _session_of(self._cut(IMAGES, PREPARED, weights=False), threads=1)

    def _second_part(self) -> Any:  # noqa: ANN401
        return _session_of(self._cut(PREPARED, LOGITS)) if self.is_ours else self._all()

    def _all(self) -> Any:  # noqa: ANN401
        return onnxruntime_session(self.path, thread_count())

    def _run(self, made: Any, images: np.ndarray, name: str | None) -> np.ndarray:  # noqa: ANN401
        return made.run([name or made.get_outputs()[0].name], {made.get_inputs()[0].name: images})[0]

    def prepare(self, images: Decoded) -> Prepared:
        """Return the network's input, computed by the file's own first part; several threads may call it at once."""
        return self._run(self._made("first", self._first_part), images, PREPARED)

    def answer(self, images: Prepared) -> Outputs:
        """Return the logits of prepared images, computed by the file's second part."""
        return self._run(self._made("second", self._second_part), images, None)

    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""
        return self._run(self._made("all", self._all), images, PROBABILITIES)

    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""
        import onnx

        model = onnx.load(self.path)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return dict(zip(names, _session_of(model).run(list(names), {IMAGES: images}), strict=True))

    def _cut(self, first: str, last: str, *, weights: bool = True) -> "onnx.ModelProto":
        import onnx

        model = onnx.load(self.path, load_external_data=weights)
        return onnx.utils.Extractor(model).extract_model([first], [last])


def _session_of(model: "onnx.ModelProto", threads: int | None = None) -> Any:  # noqa: ANN401
    threads = threads or thread_count()
    if sum(len(value.raw_data) for value in model.graph.initializer) <= MOST_BYTES:
        return onnxruntime_session(model.SerializeToString(), threads)
    import onnx

    with tempfile.TemporaryDirectory(prefix="vitral-onnx-") as folder:
        path = Path(folder) / "network.onnx"
        onnx.save_model(model, path, save_as_external_data=True)
        return onnxruntime_session(path, threads)


def _port(value: Any) -> Port:  # noqa: ANN401  # an onnxruntime.NodeArg
    shape = tuple(axis if isinstance(axis, int) else None for axis in value.shape)
    return Port(value.name, DTYPES.get(value.type, value.type), shape)

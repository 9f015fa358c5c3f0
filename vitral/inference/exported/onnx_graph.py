"""An ONNX file, computed by ONNX Runtime on the CPU."""

import functools
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import torch

from vitral.errors import WeightsError, one_line
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
from vitral.inference.runtimes import Engine, Precision, onnxruntime_session

MOST_BYTES = 2**31 - 1  # of a message of protobuf: a graph with more weights has them in a file beside it
DTYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}


class OnnxGraph(Graph):
    """See `Graph`.

    Raises:
        WeightsError: it is not a readable ONNX file; the message names it.
    """

    engine: ClassVar[Engine] = "onnxruntime"

    def __init__(self, path: Path, precision: Precision) -> None:
        super().__init__(path, precision)
        session = self._session
        self.metadata = dict(session.get_modelmeta().custom_metadata_map)
        self.inputs = tuple(map(_port, session.get_inputs()))
        self.outputs = tuple(map(_port, session.get_outputs()))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled or copied: all but what the runtime made."""
        made = ("_session", "_preparing", "_answering", "_model")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def prepare(self, images: Decoded) -> Prepared:
        """Return the network's input, computed by the file's own first part; several threads may call it at once."""
        return self._preparing.run([PREPARED], {IMAGES: images})[0]

    def answer(self, images: Prepared) -> Outputs:
        """Return the logits of prepared images, computed by the file's second part."""
        name = self._answering.get_inputs()[0].name
        return self._answering.run([self._answering.get_outputs()[0].name], {name: images})[0]

    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""
        return self._session.run([PROBABILITIES], {IMAGES: images})[0]

    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return dict(zip(names, _session_of(model).run(list(names), {IMAGES: images}), strict=True))

    @functools.cached_property
    def _session(self) -> Any:  # noqa: ANN401  # an onnxruntime.InferenceSession
        try:
            return onnxruntime_session(self.path, torch.get_num_threads())
        except Exception as error:  # the runtime's own errors have no common class
            raise WeightsError(f"'{self.path}' is not an ONNX file that can be read ({one_line(error)}).") from error

    @functools.cached_property
    def _preparing(self) -> Any:  # noqa: ANN401
        return _session_of(self._cut([IMAGES], [PREPARED]), threads=1)  # one for each image that is decoded

    @functools.cached_property
    def _answering(self) -> Any:  # noqa: ANN401
        if not self.metadata.get("format"):  # another program's, of which nothing is cut off
            return self._session
        return _session_of(self._cut([PREPARED], [LOGITS]))

    @functools.cached_property
    def _model(self) -> onnx.ModelProto:
        return onnx.load(self.path)

    def _cut(self, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
        return onnx.utils.Extractor(self._model).extract_model(inputs, outputs)


def _session_of(model: onnx.ModelProto, threads: int | None = None) -> Any:  # noqa: ANN401
    threads = threads or torch.get_num_threads()
    if model.ByteSize() <= MOST_BYTES:
        return onnxruntime_session(model.SerializeToString(), threads)
    with tempfile.TemporaryDirectory(prefix="vitral-onnx-") as folder:
        path = Path(folder) / "network.onnx"
        onnx.save_model(model, path, save_as_external_data=True)
        return onnxruntime_session(path, threads)


def _port(value: Any) -> Port:  # noqa: ANN401  # an onnxruntime.NodeArg
    shape = tuple(axis if isinstance(axis, int) else None for axis in value.shape)
    return Port(value.name, DTYPES.get(value.type, value.type), shape)

"""A file of OpenVINO's own form (.xml beside .bin), computed by it on the CPU."""

import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import openvino

from vitral.errors import WeightsError, one_line
from vitral.inference.engines import Engine, Precision, openvino_core, openvino_hints, thread_count
from vitral.inference.exported.graph import LOGITS, PREPARED, PROBABILITIES, Decoded, Graph, Outputs, Port, Prepared

METADATA = "vitral"  # the entry of a model's runtime information under which ours stands
ROOT = b"<net "  # the root element of such a file
SEARCHED = 1 << 12  # bytes at a file's beginning that hold it


class OpenVinoGraph(Graph):
    """See `Graph`.

    Raises:
        WeightsError: it is not a readable file of OpenVINO's; the message names it.
    """

    engine: ClassVar[Engine] = "openvino"

    def __init__(self, path: Path, precision: Precision) -> None:
        super().__init__(path, precision)
        model = self._model()
        self.metadata = _metadata(model)
        self.inputs = tuple(map(_port, model.inputs))
        self.outputs = tuple(map(_port, model.outputs))

    def prepare(self, images: Decoded) -> Prepared:
        """Return the network's input, computed by the file's own first part; several threads may call it at once."""
        made, requests = self._made("first", self._first_part)
        if not hasattr(requests, "own"):  # one for each thread
            requests.own = made.create_infer_request()
        return requests.own.infer({0: images})[0].copy()

    def answer(self, images: Prepared) -> Outputs:
        """Return the logits of prepared images, computed by the file's second part."""
        return self._made("second", self._second_part)(images)[0].copy()

    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""
        return self._made("all", lambda: self._compiled(self._model()))(images)[PROBABILITIES].copy()

    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""
        model = self._model()
        model.add_outputs(list(names))
        found = self._compiled(model)(images)
        return {name: found[name].copy() for name in names}

    def _first_part(self) -> tuple[Any, threading.local]:  # an openvino.CompiledModel
        model = self._model()
        ends = [result for result in model.get_results() if PREPARED in result.output(0).get_names()]
        # In float32 whatever the network's precision, with one thread: each image has a thread or a process of its own.
        hints = openvino_hints("fp32", 1)
        return openvino_core().compile_model(
            openvino.Model(ends, model.get_parameters()), "CPU", hints
        ), threading.local()

    def _second_part(self) -> Any:  # noqa: ANN401
        model = self._model()
        if not self.is_ours:
            return self._compiled(model)
        cut = model.output(PREPARED).get_node().input_value(0)
        start = openvino.opset13.parameter(cut.get_partial_shape(), cut.get_element_type())
        cut.replace(start.output(0))
        logits = openvino.opset13.result(model.output(LOGITS).get_node().input_value(0))
        return self._compiled(openvino.Model([logits], [start]))

    def _model(self) -> Any:  # noqa: ANN401  # an openvino.Model
        try:
            with open(self.path, "rb") as file:
                if ROOT not in file.read(SEARCHED):
                    raise WeightsError(f"'{self.path}' is not a file of OpenVINO's: it has no element 'net'.")
            return openvino_core().read_model(self.path)
        except WeightsError:
            raise
        except Exception as error:  # the runtime's own errors have no common class
            raise WeightsError(f"'{self.path}' is not a file of OpenVINO's ({one_line(error)}).") from error

    def _compiled(self, model: Any) -> Any:  # noqa: ANN401
        return openvino_core().compile_model(model, "CPU", openvino_hints(self.precision, thread_count()))


def _metadata(model: Any) -> dict[str, str]:  # noqa: ANN401  # an openvino.Model
    """Return the texts under our entry of a model's runtime information; none of another program's."""
    entries = dict(model.get_rt_info()).get(METADATA, {})
    if not isinstance(entries, dict):
        return {}
    texts = {name: getattr(value, "value", value) for name, value in entries.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _port(value: Any) -> Port:  # noqa: ANN401  # an openvino.Output
    axes = tuple(None if axis.is_dynamic else axis.get_length() for axis in value.get_partial_shape())
    return Port(next(iter(sorted(value.get_names())), ""), value.get_element_type().to_dtype().name, axes)

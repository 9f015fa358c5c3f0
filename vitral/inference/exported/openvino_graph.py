"""A file of OpenVINO's own form (.xml beside .bin), computed by it on the CPU."""

import functools
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import openvino
import torch

from vitral.errors import WeightsError, one_line
from vitral.inference.exported.graph import (
    LOGITS,
    PREPARED,
    PROBABILITIES,
    Decoded,
    Graph,
    Outputs,
    Port,
    Prepared,
)
from vitral.inference.runtimes import Engine, Precision, openvino_core, openvino_hints

METADATA = "vitral"  # the entry of a model's runtime information under which ours stands


class OpenVinoGraph(Graph):
    """See `Graph`.

    Raises:
        WeightsError: it is not a readable file of OpenVINO's; the message names it.
    """

    engine: ClassVar[Engine] = "openvino"

    def __init__(self, path: Path, precision: Precision) -> None:
        super().__init__(path, precision)
        model = self._model()
        told = model.get_rt_info()
        self.metadata = {name: value.value for name, value in told[METADATA].items()} if METADATA in told else {}
        self.inputs = tuple(map(_port, model.inputs))
        self.outputs = tuple(map(_port, model.outputs))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled or copied: all but what the runtime made."""
        made = ("_preparing", "_answering", "_all", "_requests")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def prepare(self, images: Decoded) -> Prepared:
        """Return the network's input, computed by the file's own first part; several threads may call it at once."""
        requests = self._requests  # one for each thread
        if not hasattr(requests, "own"):
            requests.own = self._preparing.create_infer_request()
        return requests.own.infer({0: images})[0].copy()

    def answer(self, images: Prepared) -> Outputs:
        """Return the logits of prepared images, computed by the file's second part."""
        return self._answering(images)[0].copy()

    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""
        return self._all(images)[PROBABILITIES].copy()

    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""
        model = self._model()
        model.add_outputs(list(names))
        found = self._compiled(model)(images)
        return {name: found[name].copy() for name in names}

    @functools.cached_property
    def _requests(self) -> threading.local:
        return threading.local()

    @functools.cached_property
    def _all(self) -> Any:  # noqa: ANN401  # an openvino.CompiledModel
        return self._compiled(self._model())

    @functools.cached_property
    def _preparing(self) -> Any:  # noqa: ANN401
        model = self._model()
        ends = [result for result in model.get_results() if PREPARED in result.output(0).get_names()]
        return self._compiled(openvino.Model(ends, model.get_parameters()), threads=1)

    @functools.cached_property
    def _answering(self) -> Any:  # noqa: ANN401
        model = self._model()
        cut = model.output(PREPARED).get_node().input_value(0)
        start = openvino.opset13.parameter(cut.get_partial_shape(), cut.get_element_type())
        cut.replace(start.output(0))
        logits = openvino.opset13.result(model.output(LOGITS).get_node().input_value(0))
        return self._compiled(openvino.Model([logits], [start]))

    def _model(self) -> Any:  # noqa: ANN401  # an openvino.Model
        try:
            return openvino_core().read_model(self.path)
        except Exception as error:  # the runtime's own errors have no common class
            raise WeightsError(f"'{self.path}' is not a file of OpenVINO's ({one_line(error)}).") from error

    def _compiled(self, model: Any, threads: int | None = None) -> Any:  # noqa: ANN401
        hints = openvino_hints(self.precision, threads or torch.get_num_threads())
        return openvino_core().compile_model(model, "CPU", hints)


def _port(value: Any) -> Port:  # noqa: ANN401  # an openvino.Output
    axes = tuple(None if axis.is_dynamic else axis.get_length() for axis in value.get_partial_shape())
    return Port(next(iter(sorted(value.get_names())), ""), value.get_element_type().to_dtype().name, axes)

"""Files of OpenVINO's own form (.xml beside .bin): written by way of ONNX, and computed by OpenVINO on the CPU."""

import errno
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vitral.errors import ModelError, WeightsError, one_line
from vitral.inference.engines import (
    EXTRAS,
    Precision,
    openvino_core,
    openvino_hints,
    openvino_module,
    precisions_of,
    thread_count,
)
from vitral.inference.exported.format import (
    LOGITS,
    PREPARED,
    PROBABILITIES,
    Check,
    Decoded,
    ExportFormat,
    Graph,
    Layers,
    Outputs,
    Port,
    Prepared,
    Programs,
    Sample,
)
from vitral.inference.exported.onnx_format import write_onnx

METADATA = "vitral"  # the entry of a model's runtime information under which ours stands
INFO = "model_info"  # that of OpenVINO's own tools
AFTER = ("Convert", "Reshape", "Squeeze", "Unsqueeze")  # operations after the last one that computes
ROOT = b"<net "  # the root element of such a file
SEARCHED = 1 << 12  # bytes at a file's beginning that hold it

PYTHON = """\
# pip install openvino numpy pillow
import json, numpy as np, openvino
from PIL import Image, ImageOps

core = openvino.Core()
model = core.read_model("model.xml")
names = json.loads(model.get_rt_info(["vitral", "class_names"]).value)
image = np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
exact = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
probabilities = exact(image[None])["probabilities"][0]
print(names[probabilities.argmax()], probabilities.max())"""
CPP = """\
// uint8_t* pixels: rows * columns * 3 bytes, red, green, blue, from whatever decodes your images; size_t rows, columns
#include <openvino/openvino.hpp>

ov::Core core;
auto model = core.compile_model("model.xml", "CPU", ov::hint::inference_precision(ov::element::f32));
auto request = model.create_infer_request();
request.set_tensor("images", ov::Tensor(ov::element::u8, {1, rows, columns, 3}, pixels));
request.infer();
const float *probabilities = request.get_tensor("probabilities").data<float>();  // one for each class"""


class OpenVinoFormat(ExportFormat):
    """See `ExportFormat`."""

    title: ClassVar[str] = "OpenVINO"
    files: ClassVar[tuple[str, ...]] = ("model.xml", "model.bin")
    engine: ClassVar[str] = "openvino"
    packages: ClassVar[tuple[str, ...]] = EXTRAS["openvino"]
    precisions: ClassVar[tuple[Precision, ...]] = precisions_of("openvino")
    samples: ClassVar[tuple[Sample, ...]] = (Sample("Python", "python", PYTHON), Sample("C++", "cpp", CPP))
    outputs: ClassVar[tuple[str, ...]] = (
        "| out | `prepared` | float32 | batch, 3, height, width: what the network sees |",
    )

    def write(self, programs: Programs, metadata: Mapping[str, str], path: Path) -> Layers:
        """Write a classifier as NAME.xml beside NAME.bin; the metadata stand under "vitral"."""
        openvino = openvino_module()

        with tempfile.TemporaryDirectory(prefix="vitral-openvino-", dir=path.parent) as folder:
            between = Path(folder) / "between.onnx"
            layers = write_onnx(programs, {}, between, keep_prepared=True)  # which else is fused with the first layer
            try:
                model = openvino_core().read_model(between)
            except Exception as error:  # the converter raises anything
                raise ModelError(f"The network cannot be written for OpenVINO ({one_line(error)}).") from error
            for name, text in metadata.items():
                model.set_rt_info(text, [METADATA, name])
            try:
                openvino.save_model(model, path, compress_to_fp16=False)
            except RuntimeError as error:  # which hides the system's own
                raise OSError(errno.ENOSPC if "iostream" in str(error) else errno.EIO, one_line(error)) from error
        return layers

    def open(self, path: Path, precision: Precision) -> Graph:
        """Return a file with its runtime."""
        return OpenVinoGraph(path, precision)

    def checks(self, path: Path, precision: Precision) -> Iterator[Check]:
        """Give how a file is computed: in bf16, too, where OpenVINO does so by itself."""
        yield from super().checks(path, precision)
        import torch

        from vitral.machine import has_native_bf16

        if has_native_bf16(torch.device("cpu")):
            products = "int8 and bf16" if precision == "int8" else "bf16"
            answer = self.open(path, "bf16").whole
            yield Check(f"openvino in {products}, its default on this processor", answer, has_to_hold=False)


class OpenVinoGraph(Graph):
    """See `Graph`.

    Raises:
        WeightsError: It is not a readable file of OpenVINO's; the message names it.
    """

    engine: ClassVar[str] = "openvino"

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
        return self._made("second", self._second_part)(images)[self.taken].copy()

    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""
        return self._made("all", lambda: self._compiled(self._model()))(images)[PROBABILITIES].copy()

    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""
        model = self._model()
        model.add_outputs(list(names))
        found = self._compiled(model)(images)
        return {name: found[name].copy() for name in names}

    def last_operation(self) -> str:
        """Return the name of the operation that gives the answers."""
        node = self._model().get_results()[self.taken].input_value(0).get_node()
        while node.get_type_name() in AFTER:
            node = node.input_value(0).get_node()
        return str(node.get_type_name())

    def _first_part(self) -> tuple[Any, threading.local]:  # an openvino.CompiledModel
        openvino = openvino_module()

        model = self._model()
        ends = [result for result in model.get_results() if PREPARED in result.output(0).get_names()]
        first = openvino.Model(ends, model.get_parameters())
        # In float32 whatever the network's precision, with one thread: each image has a thread or a process of its own.
        return openvino_core().compile_model(first, "CPU", openvino_hints("fp32", 1)), threading.local()

    def _second_part(self) -> Any:  # noqa: ANN401
        openvino = openvino_module()

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
    """Return the texts under our entry of a model's runtime information, or under that of OpenVINO's tools."""
    information = dict(model.get_rt_info())
    entries = information.get(METADATA, information.get(INFO, {}))
    if not isinstance(entries, dict):
        return {}
    texts = {name: getattr(value, "value", value) for name, value in entries.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _port(value: Any) -> Port:  # noqa: ANN401  # an openvino.Output
    axes = tuple(None if axis.is_dynamic else axis.get_length() for axis in value.get_partial_shape())
    return Port(next(iter(sorted(value.get_names())), ""), value.get_element_type().to_dtype().name, axes)

"""ONNX files: written from two graphs of torch, and computed by ONNX Runtime on the CPU."""

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vitral.errors import ModelError, WeightsError, one_line, refuse_shortage
from vitral.inference.engines import EXTRAS, OPSET, Precision, onnxruntime_session, run_onnxruntime, thread_count
from vitral.inference.exported.format import (
    DECODED_AXES,
    IMAGES,
    LOGITS,
    PREPARED,
    PREPARED_AXES,
    PROBABILITIES,
    ROUNDED,
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

if TYPE_CHECKING:
    import onnx  # the packages that only writing or cutting a file needs
    import onnx_ir
    import torch

REGIONS = "regions"  # the axis of an output whose length depends on what images show
MOST_BYTES = 2**31 - 2**24  # of a message of protobuf: a graph with more weights has them in a file beside it
DTYPES = {
    "tensor(uint8)": "uint8",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
}
# Operations after the last one that computes; the last two of them round.
AFTER = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "QuantizeLinear", "DequantizeLinear")
NETWORK = "network."  # before the name of each layer of the network in what the exporter notes
SCOPES = "pkg.torch.onnx.name_scopes"  # the exporter's, with the names of the layers around a node, the outermost first
LAYER = "vitral.layer"  # the entry of a node's metadata with the innermost layer that it is part of

PYTHON = """\
# pip install onnxruntime numpy pillow
import json
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("model.onnx")
names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])
image = np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
probabilities = session.run(["probabilities"], {"images": image[None]})[0][0]
print(names[probabilities.argmax()], probabilities.max())"""
CPP = """\
// uint8_t* pixels: rows * columns * 3 bytes, red, green, blue, from whatever decodes your images; int64_t rows, columns
#include <onnxruntime_cxx_api.h>

Ort::Env env;
Ort::Session session(env, "model.onnx", Ort::SessionOptions());
int64_t shape[] = {1, rows, columns, 3};
auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
auto images = Ort::Value::CreateTensor<uint8_t>(memory, pixels, rows * columns * 3, shape, 4);
const char *in[] = {"images"}, *out[] = {"probabilities"};
auto answers = session.Run(Ort::RunOptions(), in, &images, 1, out, 1);
const float *probabilities = answers[0].GetTensorData<float>();  // one for each class"""
JAVASCRIPT = """\
// npm install onnxruntime-web; image: an ImageBitmap, as createImageBitmap makes of a file or of an <img>
import * as ort from "onnxruntime-web";

const session = await ort.InferenceSession.create("model.onnx");
const canvas = new OffscreenCanvas(image.width, image.height);
const context = canvas.getContext("2d");
context.drawImage(image, 0, 0);
const rgba = context.getImageData(0, 0, canvas.width, canvas.height).data;
const rgb = rgba.filter((_, index) => index % 4 < 3);
const images = new ort.Tensor("uint8", new Uint8Array(rgb), [1, canvas.height, canvas.width, 3]);
const { probabilities } = await session.run({ images }, ["probabilities"]);"""


class OnnxFormat(ExportFormat):
    """See `ExportFormat`."""

    title: ClassVar[str] = "ONNX"
    files: ClassVar[tuple[str, ...]] = ("model.onnx", "model.onnx.data")
    engine: ClassVar[str] = "onnxruntime"
    packages: ClassVar[tuple[str, ...]] = EXTRAS["onnxruntime"]
    samples: ClassVar[tuple[Sample, ...]] = (
        Sample("Python", "python", PYTHON),
        Sample("C++", "cpp", CPP),
        Sample("JavaScript", "js", JAVASCRIPT),
    )

    def write(self, programs: Programs, metadata: Mapping[str, str], path: Path) -> Layers:
        """Write a classifier; a network of 2 GB or more has its weights in NAME.data beside the file."""
        return write_onnx(programs, metadata, path)

    def open(self, path: Path, precision: Precision) -> Graph:
        """Return a file with its runtime."""
        return OnnxGraph(path, precision)


class OnnxGraph(Graph):
    """See `Graph`, or raise WeightsError if it is not a readable ONNX file; the message names it."""

    engine: ClassVar[str] = "onnxruntime"

    def __init__(self, path: Path, precision: Precision) -> None:
        super().__init__(path, precision)
        try:
            session = onnxruntime_session(path, thread_count())
        except Exception as error:  # the runtime's own errors have no common class
            refuse_shortage(error, f"to read '{path}'")
            raise WeightsError(f"'{path}' is not an ONNX file that can be read ({one_line(error)}).") from error
        self.metadata = dict(session.get_modelmeta().custom_metadata_map)
        self.inputs = tuple(map(_port, session.get_inputs()))
        self.outputs = tuple(map(_port, session.get_outputs()))

    def _first_part(self) -> Any:  # noqa: ANN401  # an onnxruntime.InferenceSession
        # With one thread: each image is prepared by a thread or a process of its own.
        return _session_of(self._cut([IMAGES], [PREPARED], weights=False), threads=1)

    def _second_part(self) -> Any:  # noqa: ANN401
        if self.regions:  # whose network reads how many images there are off the decoded ones
            return _session_of(self._cut([PREPARED, IMAGES], self.regions))
        return _session_of(self._cut([PREPARED], [LOGITS])) if self.is_ours else self._all()

    def _all(self) -> Any:  # noqa: ANN401
        return onnxruntime_session(self.path, thread_count())

    def _run(self, made: Any, images: np.ndarray, name: str | None) -> np.ndarray:  # noqa: ANN401
        names, inputs = [name or made.get_outputs()[self.taken].name], {made.get_inputs()[0].name: images}
        return run_onnxruntime(made, names, inputs)[0]

    def prepare(self, images: Decoded) -> Prepared:
        """Return the network's input, computed by the file's own first part; several threads may call it at once."""
        return self._run(self._made("first", self._first_part), images, PREPARED)

    def answer(self, images: Prepared) -> Outputs:
        """Return the logits of prepared images, computed by the file's second part."""
        return self._run(self._made("second", self._second_part), images, None)

    def answers(self, images: Prepared) -> dict[str, np.ndarray]:
        """Return `regions` of prepared images, computed by the file's second part."""
        given = {PREPARED: images, IMAGES: np.zeros((len(images), 1, 1, 3), dtype=np.uint8)}
        found = run_onnxruntime(self._made("second", self._second_part), list(self.regions), given)
        return dict(zip(self.regions, found, strict=True))

    def whole(self, images: Decoded) -> Outputs:
        """Return the probabilities of decoded images, computed by the file as it is."""
        return self._run(self._made("all", self._all), images, PROBABILITIES)

    def inner(self, images: Decoded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return values within the graph, by name."""
        import onnx

        model = onnx.load(self.path)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return dict(zip(names, _session_of(model).run(list(names), {IMAGES: images}), strict=True))

    def last_operation(self) -> str:
        """Return the name of the operation that gives the answers; empty where that is not known."""
        try:
            import onnx
        except ImportError:
            return ""
        graph = onnx.load(self.path, load_external_data=False).graph
        makers = {name: node for node in graph.node for name in node.output}
        node = makers.get(graph.output[self.taken].name)
        rounded = False
        while node is not None and node.op_type in AFTER:
            rounded |= node.op_type in AFTER[-2:]
            node = makers.get(node.input[0])
        name = "" if node is None else str(node.op_type)
        return f"{ROUNDED}{name.removeprefix(ROUNDED)}" if rounded else name

    def _cut(self, first: Sequence[str], last: Sequence[str], *, weights: bool = True) -> "onnx.ModelProto":
        import onnx

        model = onnx.load(self.path, load_external_data=weights)
        return onnx.utils.Extractor(model).extract_model(list(first), list(last))


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


def write_onnx(programs: Programs, metadata: Mapping[str, str], path: Path, *, keep_prepared: bool = False) -> Layers:
    """Write a classifier as an ONNX file, see `ExportFormat.write`; `keep_prepared` gives the prepared images, too."""
    preparing = _converted(programs.preparing(), IMAGES, [PREPARED])
    model = _converted(programs.answering(), PREPARED, [PROBABILITIES, LOGITS])
    graph = model.graph
    # For each layer the last value that is computed within it.
    layers = {name: str(node.outputs[0].name) for node in graph for name in _scopes(node)}
    _tidy(preparing, DECODED_AXES)
    _tidy(model, PREPARED_AXES)
    _put_before(graph, preparing.graph)
    if keep_prepared:
        inner = (output for node in graph for output in node.outputs)
        graph.outputs.append(next(output for output in inner if output.name == PREPARED))
    _save(model, metadata, path, programs.version)
    return layers


def write_graph(
    program: "torch.export.ExportedProgram",
    gives: Sequence[str],
    within: Sequence[str],
    metadata: Mapping[str, str],
    path: Path,
    *,
    version: str,
) -> None:
    """Write a graph from decoded images to several outputs as an ONNX file.

    Of what the graph gives, `gives` are the outputs; the others, `within`, are only called so, to be cut out by name.

    Raises:
        ModelError: It has an operation that the format has not.
        OSError: The file cannot be written.
    """
    model = _converted(program, IMAGES, [*gives, *within])
    model.graph.outputs[len(gives) :] = []
    _tidy(model, DECODED_AXES)
    _name_counts(model)
    _save(model, metadata, path, version)


def _save(model: "onnx_ir.Model", metadata: Mapping[str, str], path: Path, version: str) -> None:
    import onnx_ir

    model.producer_name, model.producer_version = "vitral", version
    model.metadata_props.update(metadata)
    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    onnx_ir.save(model, path, external_data=f"{path.name}.data" if weights > MOST_BYTES else None)


def _converted(program: "torch.export.ExportedProgram", takes: str, gives: Sequence[str]) -> "onnx_ir.Model":
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's, of its own parts
            made = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
                input_names=[takes],
                output_names=list(gives),
                custom_translation_table=_translations(),
            )
    except Exception as error:  # the exporter raises anything
        raise ModelError(f"The network cannot be written as ONNX ({one_line(error)}).") from error
    assert made is not None, "without a path the exporter returns what it made"
    return made.model


def _scopes(node: "onnx_ir.Node") -> Iterator[str]:
    """Give the names of the network's layers around a node, the outermost first."""
    try:
        names = json.loads(node.metadata_props.get(SCOPES, "[]").replace("'", '"'))
    except ValueError:
        return
    yield from (name.removeprefix(NETWORK) for name in names if name.startswith(NETWORK))


def _tidy(model: "onnx_ir.Model", axes: Mapping[int, str]) -> None:
    """Leave out what the exporter notes of this machine's files, and call the free axes by their names."""
    import onnx_ir

    graph = model.graph
    taken = graph.inputs[0].shape
    assert taken is not None
    names = {str(taken[axis]): name for axis, name in axes.items()}
    for node in graph:
        layers = list(_scopes(node))
        node.metadata_props.clear()
        node.doc_string = None
        if layers:
            node.metadata_props[LAYER] = layers[-1]
    inner = (output for node in graph for output in node.outputs)
    for value in (*graph.inputs, *graph.initializers.values(), *inner):
        value.metadata_props.clear()
        if value.shape is not None:
            value.shape = onnx_ir.Shape([names.get(str(axis), axis) for axis in value.shape])
    graph.metadata_props.clear()
    model.metadata_props.clear()


def _name_counts(model: "onnx_ir.Model") -> None:
    """Call what is as long as a batch's most regions by its name, in the outputs."""
    import onnx_ir

    for value in model.graph.outputs:
        known = DECODED_AXES.values()
        axes = value.shape or ()
        value.shape = onnx_ir.Shape([axis if isinstance(axis, int) or str(axis) in known else REGIONS for axis in axes])


def _put_before(graph: "onnx_ir.Graph", first: "onnx_ir.Graph") -> None:
    """Put one graph before another: its one output becomes the other's one input."""
    import onnx_ir

    taken, given = graph.inputs[0], first.outputs[0]
    nodes, initializers, images = list(first), list(first.initializers.values()), list(first.inputs)
    for value in (*initializers, *(output for node in nodes for output in node.outputs)):
        if value is not given:
            value.name = f"prepare_{value.name}"
    for number, node in enumerate(nodes):
        node.name = f"prepare_{number}"
    first.outputs.clear()
    first.inputs.clear()
    first.initializers.clear()
    first.remove(nodes)
    graph.inputs.clear()
    taken.name = f"{PREPARED}_before"  # two values cannot have the same name, and this one goes
    onnx_ir.convenience.replace_all_uses_with(taken, given)
    graph.insert_before(graph[0], nodes)
    graph.inputs.extend(images)
    for value in initializers:
        graph.register_initializer(value)


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return what the exporter makes of the layers of integers; it needs onnxscript."""
    import onnx
    import torch
    from onnxscript import opset20 as nodes

    def constant(kind: int, value: float) -> Any:  # noqa: ANN401  # a value of the graph
        return nodes.Constant(value=onnx.helper.make_tensor("constant", kind, [], [value]))

    def translated(values: Any, weight: Any, scales: Any, bias: Any, step: float, zero: int) -> Any:  # noqa: ANN401
        places = constant(onnx.TensorProto.FLOAT, step), constant(onnx.TensorProto.UINT8, zero)
        inputs = nodes.DequantizeLinear(nodes.QuantizeLinear(values, *places), *places)
        return nodes.Add(nodes.MatMul(inputs, nodes.DequantizeLinear(weight, scales, axis=1)), bias)

    return {torch.ops.vitral.integer_linear.default: translated}

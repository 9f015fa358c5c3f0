"""A classifier as an ONNX file: the graph that prepares images, followed by the one that answers."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir
import torch

import vitral
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.exporting.integers import translations
from vitral.exporting.preparation import Preparation
from vitral.exporting.whole import (
    DECODED,
    PREPARED_AXES,
    Answering,
    Layers,
    decoded_example,
    prepared_example,
    trace,
)
from vitral.inference.exported.graph import IMAGES, LOGITS, PREPARED, PROBABILITIES
from vitral.inference.runtimes import OPSET

MOST_BYTES = 2**31 - 2**24  # of a file with its weights; of a larger network these stand in one beside it
NETWORK = "network."  # before the name of each layer of the network in what the exporter notes
SCOPES = "pkg.torch.onnx.name_scopes"  # the exporter's, with the names of the layers around a node, the outermost first
LAYER = "vitral.layer"  # the entry of a node's metadata with the innermost layer that it is part of


def write_onnx(
    classifier: Classifier, metadata: Mapping[str, str], path: Path, *, keep_prepared: bool = False
) -> Layers:
    """Write a classifier as an ONNX file; a network of 2 GB or more has its weights in NAME.data beside it.

    Args:
        classifier: what is written.
        metadata: texts by name.
        path: the file.
        keep_prepared: give the prepared images as an output, too.

    Returns:
        The names of the values that the network's layers give.

    Raises:
        ModelError: the network has an operation that a graph or ONNX has not.
        OSError: the file cannot be written.
    """
    first = trace(Preparation(classifier.preprocessing), decoded_example(), DECODED, classifier)
    second = trace(Answering(classifier), prepared_example(classifier), PREPARED_AXES, classifier)
    preparing = _converted(first, DECODED, IMAGES, [PREPARED])
    model = _converted(second, PREPARED_AXES, PREPARED, [PROBABILITIES, LOGITS])
    layers = _layers(model.graph)
    _tidy(preparing, DECODED)
    _tidy(model, PREPARED_AXES)
    _put_before(model.graph, preparing.graph)
    if keep_prepared:
        model.graph.outputs.append(_named(model.graph, PREPARED))
    model.producer_name, model.producer_version = "vitral", vitral.__version__
    model.metadata_props.update(metadata)
    large = (
        sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value) > MOST_BYTES
    )
    onnx_ir.save(model, path, external_data=f"{path.name}.data" if large else None)
    return layers


def _converted(
    program: torch.export.ExportedProgram, axes: Mapping[int, str], takes: str, gives: Sequence[str]
) -> onnx_ir.Model:
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
                custom_translation_table=translations(),
            )
    except Exception as error:  # the exporter raises anything
        raise ModelError(f"The network cannot be written as ONNX ({one_line(error)}).") from error
    assert made is not None, "without a path the exporter returns what it made"
    return made.model


def _layers(graph: onnx_ir.Graph) -> Layers:
    """Return for each layer the last value that is computed within it."""
    return {name: str(node.outputs[0].name) for node in graph for name in _scopes(node)}


def _scopes(node: onnx_ir.Node) -> Iterator[str]:
    """Give the names of the network's layers around a node, the outermost first."""
    try:
        names = json.loads(node.metadata_props.get(SCOPES, "[]").replace("'", '"'))
    except ValueError:
        return
    yield from (name.removeprefix(NETWORK) for name in names if name.startswith(NETWORK))


def _tidy(model: onnx_ir.Model, axes: Mapping[int, str]) -> None:
    """Leave out what the exporter notes of this machine's files, and call the free axes by their names."""
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


def _put_before(graph: onnx_ir.Graph, first: onnx_ir.Graph) -> None:
    """Put one graph before another, whose one input is its one output."""
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


def _named(graph: onnx_ir.Graph, name: str) -> onnx_ir.Value:
    return next(output for node in graph for output in node.outputs if output.name == name)

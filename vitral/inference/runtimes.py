"""The runtimes by name: each takes a network and a precision, and gives what computes its logits and features.

A further runtime is a function here, or in a file of its own where it is longer.
"""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from vitral.errors import ModelError
from vitral.inference.engines import (
    OPSET,
    Engine,
    Precision,
    check_able,
    onnxruntime_session,
    openvino_core,
    openvino_hints,
    openvino_module,
)
from vitral.inference.int8 import HAS_INT8, quantize
from vitral.inference.merging import check_merging, merge_tokens
from vitral.inference.packed import HAS_PACKING, pack
from vitral.inference.quantization import Quantization
from vitral.inference.torch_predictor import copy_in
from vitral.machine import has_int8
from vitral.models.layers import HAS_FUSED_BF16
from vitral.models.model import Features, Images, Logits, Model

MERGING: tuple[Engine, ...] = ("torch", "packed")  # the engines that can merge tokens

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


class Answers(NamedTuple):
    """What one pass of a batch through a network gives: float32, on the CPU."""

    logits: Logits
    features: Features


Compute = Callable[[Images], Answers]  # of images of the network's size, float32, on the CPU


class _Answering(nn.Module):
    """A network whose forward pass gives the logits and the features, for what takes a module as one graph."""

    def __init__(self, network: Model) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Images) -> tuple[Logits, Features]:
        return self.network.answers(images)


def compute_of(
    network: Model, engine: Engine, precision: Precision, form: Quantization | None = None, merge: int = 0
) -> Compute:
    """Return what computes the logits and the features of a network.

    Args:
        network: The network, which stays as it is.
        engine: The runtime.
        precision: The precision in which it computes.
        form: The network's in int8, for that precision.
        merge: Tokens that each block but the last is to have fewer; 0 for the network as it is.

    Raises:
        ModelError: The engine cannot compute the network so, or the network's tokens cannot be merged.
        VitralError: The int8 form is of another network.
    """
    if not merge and form is None:
        return RUNTIMES[engine](network, precision)
    if merge:
        check_able_to_merge(engine)
        check_merging(network)
    if form is not None:
        made = _of_integers(network, form)
    else:
        made = copy_in(network, DTYPES[precision]) if engine == "torch" else _packed(network, precision)
    return _in_torch(merge_tokens(made, merge) if merge else made)


def plain(network: Model, precision: Precision) -> Compute:
    """Return the network itself, or its copy in bfloat16, which is made once."""
    return _in_torch(copy_in(network, DTYPES[precision]))


def check_able_to_merge(engine: str) -> None:
    """Refuse an engine that takes the graph of a network as it is, by a ModelError that says which to take."""
    if engine not in MERGING:
        raise ModelError(f"The engine '{engine}' cannot merge tokens; take {' or '.join(MERGING)}.")


def packed(network: Model, precision: Precision) -> Compute:
    """Return a copy for the CPU, its weights sorted once for the products, biases and GELUs computed with these.

    Raises:
        ModelError: The network is not on the CPU, torch was built without oneDNN, or this CPU has no products in bf16 that
            oneDNN knows; or of int8, which takes the network's form in it.
    """
    return _in_torch(_packed(network, precision))


def _packed(network: Model, precision: Precision) -> Model:
    if precision == "int8":
        raise ModelError("int8 takes the ranges of a network's inputs; give the quantization.")
    if not HAS_PACKING or _device(network).type != "cpu":
        raise ModelError("Weights are packed for a CPU whose torch has oneDNN; take engine 'torch'.")
    if precision == "bf16" and not HAS_FUSED_BF16:
        raise ModelError("Weights in bf16 are packed for a CPU that has AVX512; take engine 'torch', or fp32.")
    return pack(copy_in(network, DTYPES[precision]))


def _of_integers(network: Model, quantization: Quantization) -> Model:
    """Return a copy for the CPU with linear layers that multiply integers, all else as `packed` in float32."""
    if not HAS_INT8 or not has_int8() or _device(network).type != "cpu":
        raise ModelError("int8 takes a CPU that multiplies 8-bit integers (VNNI or AMX); take another precision.")
    return quantize(network, quantization)


def compiled(network: Model, precision: Precision) -> Compute:
    """Return a copy that torch.compile makes kernels for, its weights among the constants; that takes minutes."""
    copied = copy_in(network, DTYPES[precision])
    return _in_torch(copied, torch.compile(_Answering(copied), options={"freezing": True}))


def openvino(network: Model, precision: Precision) -> Compute:
    """Return the network as OpenVINO runs it on the CPU.

    Raises:
        ModelError: OpenVINO is not installed, or the network has experts or is not on the CPU.
    """
    check_able("openvino", precision)
    exported = _exported(network, "OpenVINO")
    module = openvino_module()
    height, width = network.image_size
    model = module.convert_model(exported)
    # Else images of other sizes are computed too, by positions that do not fit them.
    model.reshape([-1, 3, height, width])
    compute = openvino_core().compile_model(model, "CPU", openvino_hints(precision, torch.get_num_threads()))

    def answer(images: Images) -> Answers:
        given = compute(images.numpy())
        return Answers(*(torch.from_numpy(given[output].copy()) for output in (0, 1)))

    return answer


def onnxruntime(network: Model, precision: Precision) -> Compute:
    """Return the network as ONNX Runtime runs it on the CPU, in fp32.

    Raises:
        ModelError: ONNX Runtime is not installed; the network has experts or is not on the CPU; or the precision is bf16.
    """
    check_able("onnxruntime", precision)
    exported = _exported(network, "ONNX Runtime")
    with tempfile.TemporaryDirectory(prefix="vitral-onnx-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, of its own parts
        program = torch.onnx.export(exported, dynamo=True, opset_version=OPSET, verbose=False)
        assert program is not None, "without a path the exporter returns what it made"
        path = Path(folder) / "network.onnx"
        program.save(path, external_data=True)  # one file holds 2 GB at most
        session = onnxruntime_session(path, torch.get_num_threads())
    name = session.get_inputs()[0].name
    return lambda images: Answers(*map(torch.from_numpy, session.run(None, {name: images.numpy()})))


RUNTIMES: dict[Engine, Callable[[Model, Precision], Compute]] = {
    "torch": plain,
    "packed": packed,
    "compiled": compiled,
    "openvino": openvino,
    "onnxruntime": onnxruntime,
}


def _exported(network: Model, runtime: str) -> torch.export.ExportedProgram:
    """Return the graph of a network for batches of any size, for a runtime outside torch to convert."""
    if reason := network.config.obstacle_to("export"):
        raise ModelError(
            f"{runtime} computes one graph for all images, and this one has none: {reason}; take another engine."
        )
    if _device(network).type != "cpu":
        raise ModelError(f"{runtime} computes on the CPU here, and the network is on a GPU; take engine 'torch'.")
    example = torch.zeros(2, 3, *network.image_size)  # a batch of one would be taken for a constant
    with torch.no_grad():
        answering = _Answering(copy_in(network, torch.float32))
        return torch.export.export(answering, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))


def _in_torch(network: Model, forward: Callable[[Images], tuple[Logits, Features]] | None = None) -> Compute:
    like = next(network.parameters())
    forward = network.answers if forward is None else forward  # what torch.compile gives has no truth value

    def compute(images: Images) -> Answers:
        with torch.no_grad():
            return Answers(*(value.float().cpu() for value in forward(images.to(like.device, like.dtype))))

    return compute


def _device(network: Model) -> torch.device:
    return next(network.parameters()).device

"""The runtimes by name: each takes a network and a precision, and gives what computes its logits.

A further runtime is a function here, or in a file of its own where it is longer.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, Literal

import torch

from vitral.errors import ModelError
from vitral.inference.copies import copy_in
from vitral.inference.packed import HAS_PACKING, pack
from vitral.models.model import Images, Logits, Model

Engine = Literal["torch", "packed", "compiled", "openvino"]
Precision = Literal["fp32", "bf16"]
EXTRAS: tuple[Engine, ...] = ("openvino",)  # engines that are packages of their own, with an extra of that name
Compute = Callable[[Images], Logits]  # images of the network's size, float32, on the CPU; and so are the logits

BATCH = torch.export.Dim("batch")
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


def plain(network: Model, precision: Precision) -> Compute:
    """Return the network itself, or its copy in bfloat16, which is made once."""
    return _in_torch(copy_in(network, DTYPES[precision]))


def packed(network: Model, precision: Precision) -> Compute:
    """Return a copy for the CPU, its weights sorted once for the products, biases and GELUs computed with these.

    Raises:
        ModelError: the network is not on the CPU, or torch was built without oneDNN.
    """
    if not HAS_PACKING or _device(network).type != "cpu":
        raise ModelError("Weights are packed for a CPU whose torch has oneDNN; take engine 'torch'.")
    return _in_torch(pack(copy_in(network, DTYPES[precision])))


def compiled(network: Model, precision: Precision) -> Compute:
    """Return a copy that torch.compile makes kernels for, its weights among the constants; that takes minutes."""
    copied = copy_in(network, DTYPES[precision])
    return _in_torch(copied, torch.compile(copied, options={"freezing": True}))


def openvino(network: Model, precision: Precision) -> Compute:
    """Return the network as OpenVINO runs it on the CPU.

    Raises:
        ModelError: OpenVINO is not installed.
    """
    check_installed("openvino")
    module = importlib.import_module("openvino")
    height, width = network.image_size
    example = torch.zeros(2, 3, height, width)  # a batch of one would be taken for a constant
    with torch.no_grad():
        exported = torch.export.export(copy_in(network, torch.float32), (example,), dynamic_shapes=({0: BATCH},))
    model = module.convert_model(exported)
    model.reshape(
        [-1, 3, height, width]
    )  # else images of other sizes are computed too, by positions that do not fit them
    hints = {
        "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compute = _openvino_core().compile_model(model, "CPU", hints)
    return lambda images: torch.from_numpy(compute(images.numpy())[0].copy())


@functools.cache
def _openvino_core() -> Any:  # noqa: ANN401  # an openvino.Core
    """Return the one core of this process.

    Each core's plugin for the CPU gives the thread another stack to hear signals on, and as it goes sets the stack that was
    there when it came. Of two the second leaves behind the first one's, whose memory is gone: the next Ctrl-C is a crash.
    """
    return importlib.import_module("openvino").Core()


RUNTIMES: dict[Engine, Callable[[Model, Precision], Compute]] = {
    "torch": plain,
    "packed": packed,
    "compiled": compiled,
    "openvino": openvino,
}


def is_installed(engine: Engine) -> bool:
    """Tell whether what an engine needs is there."""
    return engine not in EXTRAS or importlib.util.find_spec(engine) is not None


def check_installed(engine: Engine) -> None:
    """Refuse an engine whose package is missing.

    Raises:
        ModelError: it says what to install.
    """
    if not is_installed(engine):
        raise ModelError(f"The engine '{engine}' takes a package more: pip install 'vitral[{engine}]'.")


def _in_torch(network: Model, forward: Compute | None = None) -> Compute:
    like = next(network.parameters())
    forward = network if forward is None else forward  # what torch.compile gives has no truth value

    def compute(images: Images) -> Logits:
        with torch.no_grad():
            return forward(images.to(like.device, like.dtype)).float().cpu()

    return compute


def _device(network: Model) -> torch.device:
    return next(network.parameters()).device

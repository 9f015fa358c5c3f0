"""Which runtime computes a network: the one that a user names, or the fastest of those that are there, measured once."""

import importlib
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from typing import get_args

import torch

from vitral import distributed
from vitral.advice import argument, function
from vitral.errors import ModelError, did_you_mean
from vitral.events import Listener, Message
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import (
    EXTRAS,
    Computation,
    Engine,
    EngineChoice,
    Precision,
    PrecisionChoice,
    check_able,
    is_installed,
    precisions_of,
)
from vitral.inference.kept_speeds import Effort, keep_speeds, known_speeds
from vitral.inference.merging import check_merging
from vitral.inference.packed import HAS_PACKING
from vitral.inference.predictor import Predictor
from vitral.inference.quantization import Quantization
from vitral.inference.runtimes import MERGING, check_able_to_merge
from vitral.inference.torch_predictor import TorchPredictor
from vitral.machine import has_int8, has_native_bf16
from vitral.models.layers import HAS_FUSED_BF16
from vitral.models.model import Model

IMAGES = 4  # computed at once where speeds are measured
SECONDS = 0.3  # that a runtime is measured for, after a first pass
PASSES = 2  # for that at least
WORTH = 1.2  # times fp32's speed from which bf16 is taken

Speeds = dict[Computation, float]  # images/s
NOTHING: Mapping[Computation, float] = {}
PLAIN = Computation("torch", "fp32")  # the network itself
INTEGERS = Computation("packed", "int8")


def predictor_of(
    model: Model,
    engine: EngineChoice | None,
    precision: PrecisionChoice,
    listener: Listener,
    quantization: Quantization | None = None,
    merge: int = 0,
) -> Predictor:
    """Return what computes a network's logits.

    Where "auto" leaves a choice, the processes of a job call this together: the first measures, and all take the same.

    Args:
        model: The network.
        engine: The runtime; "auto" for the fastest; None for the network itself in fp32, and for the fastest otherwise.
        precision: "fp32", "bf16", "int8", or "auto" for bf16 where the hardware has it and it is faster.
        listener: What receives a message on what was taken, where there was a choice.
        quantization: The int8 form of the network, which int8 takes.
        merge: Tokens that each block but the last is to have fewer (ToMe), which changes the answers; 0 for none.

    Raises:
        ModelError: An unknown engine or precision, or one that is not installed or cannot compute the network; int8 of a
            network without a quantization, or where another precision is faster; or tokens that cannot be merged.
    """
    _check("engine", engine or "auto", get_args(EngineChoice))
    _check("precision", precision, get_args(PrecisionChoice))
    if merge < 0:
        raise ModelError(f"A block merges 0 tokens or more, not {merge}.")
    if merge:
        check_merging(model)
        check_able_to_merge(engine if engine not in (None, "auto") else PLAIN.engine)
    if precision == "fp32" and engine in (None, "torch"):
        return predictor_in(model, replace(PLAIN, merge=merge))
    if engine is not None and engine != "auto":
        check_able(engine, precision)
        if precision != "auto" and precision != "int8":
            return EnginePredictor(model, engine, precision, merge=merge)
    if precision == "int8":
        return _in_int8(model, quantization, merge, listener)
    best = distributed.by_main(lambda: _best(model, engine or "auto", precision, merge, listener))
    return predictor_in(model, best)


def predictor_in(model: Model, option: Computation, quantization: Quantization | None = None) -> Predictor:
    """Return what computes a network's logits so; int8 by a quantization of the network.

    Raises:
        ModelError: Tokens that cannot be merged.
    """
    if option.merge:
        check_merging(model)
    if option == PLAIN:
        return TorchPredictor(model)
    form = quantization if option.precision == "int8" else None
    return EnginePredictor(model, option.engine, option.precision, form, option.merge)


def can_compute(option: Computation, quantization: Quantization | None) -> bool:
    """Tell whether a computation has what it needs: the runtime, the processor's instructions, and for int8 a quantization."""
    if not is_installed(option.engine) or option.precision not in precisions_of(option.engine):
        return False
    if option.merge and option.engine not in MERGING:
        return False
    if option.engine == "packed" and option.precision == "bf16" and not HAS_FUSED_BF16:
        return False
    return option.precision != "int8" or (quantization is not None and has_int8())


def _in_int8(model: Model, quantization: Quantization | None, merge: int, listener: Listener) -> Predictor:
    form = needed_form(quantization)
    speeds = distributed.by_main(lambda: int8_speeds(model, form, merge))
    mine = replace(INTEGERS, merge=merge)
    unmerged = " That is without merging." if merge else ""
    listener(Message(f"{_said(mine, speeds)} {form.sentence()}{unmerged}"))
    return predictor_in(model, mine, form)


def needed_form(quantization: Quantization | None) -> Quantization:
    """Return a quantization that is there, or raise ModelError that says how it is found."""
    if quantization is None:
        raise ModelError(
            f"int8 takes the ranges of a network's inputs, found on training images and tried on validation images: "
            f"{function('quantize')} with {argument('write', True)} keeps them in the classifier's folder."
        )
    return quantization


def int8_speeds(
    model: Model, quantization: Quantization, merge: int = 0, *, before: Mapping[Computation, float] = NOTHING
) -> Speeds:
    """Return how fast a network computes in int8 here, and from packed weights in the precisions that it competes with.

    What was measured `before` is not measured again.

    Raises:
        ModelError: It cannot, or another one is faster.
    """
    native = has_native_bf16(next(model.parameters()).device)
    mine = replace(INTEGERS, merge=merge)
    options = [mine, Computation("packed", "fp32", merge), *([Computation("packed", "bf16", merge)] if native else [])]
    speeds = _known(model, options, quantization)
    if speeds is None or mine not in speeds:
        effort = Effort()
        speeds = {
            option: before.get(option) or measured(model, option, quantization if option == mine else None)
            for option in options
        }
        _keep(model, options, speeds, effort, quantization)
    best = max(speeds, key=speeds.__getitem__)
    if best != mine:
        raise ModelError(
            f"int8 would be slower here: {speeds[mine]:.3g} images/s against {speeds[best]:.3g} of {best}; take that "
            f"with {argument('precision', best.precision)}."
        )
    return speeds


def _best(
    model: Model, engine: EngineChoice, precision: PrecisionChoice, merge: int, listener: Listener
) -> Computation:
    """Return the fastest option; the network itself where none of all can be measured, unless another engine is named."""
    options = [
        replace(option, merge=merge)
        for option in computations_of(model, engine, precision)
        if not merge or option.engine in MERGING
    ]
    if len(options) == 1:
        return options[0]
    try:
        best, speeds = measured_once(model, options)
    except ModelError:
        if engine != "auto":
            raise
        return options[0]
    listener(Message(_said(best, speeds), detail=True))
    if best.precision != "fp32":
        exact = argument("precision", "fp32")
        listener(Message(f"Computes in {best.precision}, which is faster here and rounds a little; {exact} is exact."))
    return best


def measured_once(
    model: Model, options: list[Computation], *, before: Mapping[Computation, float] = NOTHING
) -> tuple[Computation, Speeds]:
    """Return the fastest of some ways to compute a network, and the images/s of all, measured once for a machine and a network.

    What was measured `before` is not measured again.

    Raises:
        ModelError: None can compute it.
    """
    speeds = _known(model, options)
    if speeds is None:
        effort = Effort()
        speeds, reason = _all_measured(model, options, before)
        if not speeds:
            raise reason or ModelError("There is no engine that computes the network.")
        _keep(model, options, speeds, effort)
    return fastest(speeds), speeds


def _all_measured(
    model: Model, options: list[Computation], before: Mapping[Computation, float]
) -> tuple[Speeds, ModelError | None]:
    """Return the speeds of those that can compute, and why the last of the others cannot."""
    speeds: Speeds = {}
    reason = None
    for option in options:
        try:
            speeds[option] = before.get(option) or measured(model, option)
        except ModelError as error:
            reason = error
    return speeds, reason


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ModelError(f"There is no {name} '{value}', only {', '.join(known)}.{did_you_mean(value, known)}")


def computations_of(model: Model, engine: EngineChoice, precision: PrecisionChoice) -> list[Computation]:
    """Return what may compute; the network itself is among them wherever fp32 is.

    What torch.compile makes is only taken by name: to make it takes minutes.
    """
    device = next(model.parameters()).device
    engines: list[Engine] = ["torch"]
    if engine != "auto":
        engines = [engine]
    elif device.type == "cpu":
        engines += [*(["packed"] if HAS_PACKING else []), *(runtime for runtime in EXTRAS if is_installed(runtime))]  # type: ignore[list-item]
    precisions: tuple[Precision, ...] = ("fp32", "bf16") if has_native_bf16(device) else ("fp32",)
    if precision != "auto":
        precisions = (precision,)
    return [Computation(runtime, each) for each in precisions for runtime in engines if each in precisions_of(runtime)]


def measured(model: Model, option: Computation, quantization: Quantization | None = None) -> float:
    """Return the images/s of a runtime on images of the network's size; nothing that is done once for a shape is timed.

    Raises:
        ModelError: It cannot compute the network.
    """
    predictor = EnginePredictor(model, option.engine, option.precision, quantization, option.merge)
    images = torch.zeros(IMAGES, 3, *model.image_size)
    predictor.logits(images[:1])  # it is made
    start = time.perf_counter()
    predictor.logits(images[:1])
    if time.perf_counter() - start > SECONDS:  # a large network
        images = images[:1]
    else:
        predictor.logits(images)  # it is made for this many
    taken: list[float] = []
    while sum(taken) < SECONDS or len(taken) < PASSES:
        start = time.perf_counter()
        predictor.logits(images)
        taken.append(time.perf_counter() - start)
    return len(images) / min(taken)  # the pass that other work on the machine disturbs least


def fastest(speeds: Speeds) -> Computation:
    """Return the fastest computation; of bf16 only where it is faster by more than chance and a rounding are worth."""
    ranked = sorted(speeds, key=speeds.__getitem__, reverse=True)
    exact = next((option for option in ranked if option.precision == "fp32"), None)
    if exact is None or speeds[ranked[0]] >= WORTH * speeds[exact]:
        return ranked[0]
    return exact


def _said(best: Computation, speeds: Speeds) -> str:
    others = ", ".join(f"{option} {speed:.3g}" for option, speed in speeds.items() if option != best)
    return f"Computes by {best}: {speeds[best]:.3g} images/s in a short measurement ({others})."


def _compared(model: Model, options: list[Computation], quantization: Quantization | None) -> list[object]:
    """Return what stands for the network's shape, the versions and what was to be compared."""
    extras = [name for engine, packages in EXTRAS.items() if is_installed(engine) for name in packages]
    versions = [_version(name) for name in ("torch", *extras)]
    float_layers = [] if quantization is None else list(quantization.kept)
    return [repr(model.config), versions, [str(option) for option in options], *float_layers]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # another distribution has it, as onnxruntime-openvino has onnxruntime
        return str(getattr(importlib.import_module(package), "__version__", ""))


def _known(model: Model, options: list[Computation], quantization: Quantization | None = None) -> Speeds | None:
    stored = known_speeds(_compared(model, options, quantization), next(model.parameters()).device)
    return {option: stored[str(option)] for option in options if str(option) in stored} or None


def _keep(
    model: Model,
    options: list[Computation],
    speeds: Speeds,
    effort: Effort,
    quantization: Quantization | None = None,
) -> None:
    by_name = {str(option): speed for option, speed in speeds.items()}
    keep_speeds(_compared(model, options, quantization), next(model.parameters()).device, by_name, effort)

"""What computes the features of many images soonest, and under which name they are kept.

The network itself where there are few images; packed weights where there are more; else the engine that is fastest here,
measured where that pays.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.loader import load_evaluation
from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.errors import ModelError
from vitral.evaluation.exactness import no_labels
from vitral.evaluation.kept_features import Compute, KeptColumn, features_hash, name_of
from vitral.inference.choice import INTEGERS, PLAIN, Speeds, computations_of, int8_speeds, measured_once, predictor_in
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import EXTRAS, Computation, Engine
from vitral.inference.int8 import HAS_INT8
from vitral.inference.packed import HAS_PACKING
from vitral.inference.predictor import Predictor
from vitral.inference.quantization import Quantization, linear_layers
from vitral.inference.ranges import find_ranges
from vitral.inference.torch_predictor import TorchPredictor
from vitral.machine import has_int8
from vitral.models.model import Features, Images

Context = Callable[[], AbstractContextManager[object]]  # in which a network computes, such as autocast to bfloat16

# Seconds of a core to make and measure for ViT-S/14 (docs/speed.md): packed weights 2, int8 with its ranges 6, OpenVINO and
# ONNX Runtime 20 s, which are at most 1.3 times as fast as packed weights of the same precision.
PACKED_PAY = 1.0  # seconds of features by the network itself, image by image, from which its weights are packed
PAYS = 5.0  # likewise, from which packed weights are measured, in each precision
INTEGERS_PAY = 10.0  # seconds by these, from which the ranges of int8 are looked for
EXTRAS_PAY = 90.0  # likewise, from which runtimes outside torch are measured
RANGE_IMAGES = 32  # that ranges are found on
RANGE_BATCH = 8


def feature_column(classifier: Classifier, context: Context = nullcontext, *, keep: bool = True) -> KeptColumn:
    """Return the features of a classifier's network as a column.

    A network in torch on the CPU is computed by whatever is fastest in float32, or in any precision within a context that
    computes in bfloat16; another predictor computes as it is. What was made for a source computes further ones, too.
    """
    predictor = classifier.predictor
    with context():
        rounded = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    name = _name(classifier, rounded=rounded) if keep else ""
    made: list[Predictor] = []  # once: a runtime compiles for seconds

    def compute_for(source: Source) -> Compute:
        if not made and (fast := _soonest(classifier, source, rounded=rounded)) is not None:
            made.append(fast)
        if made:
            return made[0].features

        def compute(prepared: Images) -> Features:
            with context():
                return predictor.features(prepared)

        return compute

    return KeptColumn(compute_for, name)


def _name(classifier: Classifier, *, rounded: bool) -> str:
    predictor = classifier.predictor
    if not isinstance(predictor, TorchPredictor):
        return ""
    by = "fp32", 0, ""
    if isinstance(predictor, EnginePredictor):
        by = predictor.precision, predictor.merge, predictor.fingerprint
    return name_of(classifier.preprocessing, features_hash(predictor.model), rounded, *by)


def _soonest(classifier: Classifier, source: Source, *, rounded: bool) -> Predictor | None:
    """Return what computes the features of a source's images soonest, the same in all processes; None for the predictor."""
    predictor = classifier.predictor
    if type(predictor) is not TorchPredictor or next(predictor.model.parameters()).device.type != "cpu":
        return None
    way = distributed.by_main(lambda: _fastest(classifier, predictor, source, rounded=rounded))
    return None if way is None else predictor_in(predictor.model, *way)


Way = tuple[Computation, Quantization | None]


def _fastest(classifier: Classifier, predictor: TorchPredictor, source: Source, *, rounded: bool) -> Way | None:
    """Return the fastest way to compute; None where to look for one does not pay."""
    model = predictor.model
    one = torch.zeros(1, 3, *model.image_size)
    predictor.logits(one)  # the first call also prepares, and is no measure
    began = time.perf_counter()
    predictor.logits(one)
    seconds = (time.perf_counter() - began) * len(source)
    if seconds < PACKED_PAY:
        return None
    every = computations_of(model, "auto", "auto" if rounded else "fp32")
    in_torch: Engine = "packed" if HAS_PACKING else "torch"  # packed weights are never slower
    exact = Computation(in_torch, "fp32")
    at_once = [option for option in every if option.engine == in_torch and option != PLAIN]
    try:
        if seconds < PAYS:
            predictor_in(model, exact).logits(one)
            return exact, None
        best, speeds = measured_once(model, at_once)
        seconds = len(source) / speeds[best]
        if rounded and seconds > INTEGERS_PAY and (form := _int8_form(classifier, source, speeds)) is not None:
            return INTEGERS, form
        if seconds > EXTRAS_PAY and any(option.engine in EXTRAS for option in every):
            best, _ = measured_once(model, every, before=speeds)
    except ModelError:  # no other can compute it
        return None
    return best, None


def _int8_form(classifier: Classifier, source: Source, speeds: Speeds) -> Quantization | None:
    """Return the int8 form of a network by some images of a source; None where others are faster, `speeds` among them."""
    model = classifier.model
    if not (HAS_INT8 and has_int8() and linear_layers(model)):
        return None
    some = spread_over(source, RANGE_IMAGES)
    seen = load_evaluation(some, classifier.preprocessing, batch_size=RANGE_BATCH, workers=0, encode=no_labels)
    found = find_ranges(model, (batch.images for batch in seen))
    layers = {name: layer.inputs for name, layer in found.items()}
    form = Quantization(layers, (), model.image_size, "features", 0, 0.0, 0.0, 0.0)
    try:
        int8_speeds(model, form, before=speeds)
    except ModelError:
        return None
    return form

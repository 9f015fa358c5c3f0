"""What computes the features of many images soonest, and under which name they are kept.

The network itself where there are few images; else the engine that is fastest here, made and measured where that pays.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError
from vitral.evaluation.kept_features import Column, Compute, features_hash, name_of
from vitral.inference.choice import PLAIN, computations_of, fastest_of, predictor_in
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import Computation
from vitral.inference.predictor import Predictor
from vitral.inference.runtimes import MERGING
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.model import Features, Images

Context = Callable[[], AbstractContextManager[object]]  # in which a network computes, such as autocast to bfloat16

# Measured with ViT-S/14 on two cores (docs/speed.md): to make and measure packed weights takes 2 s, OpenVINO and ONNX Runtime
# 15 s, and they are at most 1.3 times as fast.
PAYS = 5.0  # seconds of features by the network itself, from which packed weights are measured
EXTRAS_PAY = 90.0  # seconds by these, from which runtimes outside torch are


def feature_column(classifier: Classifier, context: Context = nullcontext, *, keep: bool = True) -> Column:
    """Return the features of a classifier's network as a column.

    A network in torch on the CPU is computed by whatever is fastest in float32, or in any precision within a context that
    computes in bfloat16; another predictor computes as it is.

    Args:
        classifier: The network.
        context: The context in which the network computes.
        keep: Whether rows are kept.
    """
    predictor = classifier.predictor
    with context():
        rounded = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    name = _name(classifier, rounded=rounded) if keep else ""

    def compute_for(images: int) -> Compute:
        fast = _soonest(predictor, images, rounded=rounded)
        if fast is not predictor:
            return fast.features

        def compute(prepared: Images) -> Features:
            with context():
                return predictor.features(prepared)

        return compute

    return Column(compute_for, name)


def _name(classifier: Classifier, *, rounded: bool) -> str:
    predictor = classifier.predictor
    if not isinstance(predictor, TorchPredictor):
        return ""
    by = "fp32", 0, ""
    if isinstance(predictor, EnginePredictor):
        by = predictor.precision, predictor.merge, predictor.fingerprint
    return name_of(classifier.preprocessing, features_hash(predictor.model), rounded, *by)


def _soonest(predictor: Predictor, images: int, *, rounded: bool) -> Predictor:
    """Return what computes the features of so many images soonest; the processes of a job take the same."""
    if type(predictor) is not TorchPredictor or next(predictor.model.parameters()).device.type != "cpu":
        return predictor
    best = distributed.by_main(lambda: _best(predictor, images, rounded=rounded))
    return predictor if best is None else predictor_in(predictor.model, best)


def _best(predictor: TorchPredictor, images: int, *, rounded: bool) -> Computation | None:
    """Return the fastest way to compute; None where to look for one does not pay."""
    model = predictor.model
    one = torch.zeros(1, 3, *model.image_size)
    began = time.perf_counter()
    predictor.features(one)
    if (time.perf_counter() - began) * images < PAYS:
        return None
    every = computations_of(model, "auto", "auto" if rounded else "fp32")
    at_once = [option for option in every if option.engine in MERGING and option != PLAIN]
    try:
        best, speed = fastest_of(model, at_once)
        if images / speed > EXTRAS_PAY and len(every) > len(at_once) + 1:
            best, _ = fastest_of(model, every)
    except ModelError:  # no other can compute it
        return None
    return best

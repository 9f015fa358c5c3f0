"""The networks of other libraries that are the same architecture, as their users run them: what ours are timed beside."""

import contextlib
import importlib
import importlib.util
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from zentorch_peer import ZentorchPeer

from vitral.classifier.classifier import Classifier
from vitral.deployment.bench import Compute, Peer
from vitral.errors import ModelError, WeightsError
from vitral.inference.engines import Precision
from vitral.inference.runtimes import DTYPES
from vitral.models.model import Images, Logits
from vitral.weights.names.timm import model_of
from vitral.weights.proof import formats_of
from vitral.weights.save import write_weights

TIMM = "timm"
TRANSFORMERS = "transformers"


def peers(
    classifier: Classifier, precisions: Sequence[Precision], *, compile: bool, zentorch: Path | None = None
) -> Iterator[Peer]:
    """Give the peers that are installed and know the classifier's architecture.

    timm's has random weights; transformers' reads those of the classifier, from its own format.

    Args:
        classifier: The classifier of the network.
        precisions: The precisions in which each peer is given.
        compile: Whether to give what torch.compile makes of timm's, too.
        zentorch: An interpreter that has zentorch and timm, to give what they make of timm's, too; None for none.
    """
    name, arguments = model_of(classifier.model.config)
    settings = {**arguments, "num_classes": classifier.model.num_classes}
    if name is not None and zentorch is not None:
        for precision in precisions:
            size = classifier.model.image_size
            yield "timm zentorch", precision, partial(ZentorchPeer, zentorch, name, settings, size, precision)
    if name is not None and importlib.util.find_spec(TIMM) is not None:
        for compiled in (False, True) if compile else (False,):
            for precision in precisions:
                make = partial(_timm, name, settings, precision, compiled=compiled)
                yield f"timm {'compiled' if compiled else 'eager'}", precision, make
    if TRANSFORMERS in formats_of(classifier.model.config) and importlib.util.find_spec(TRANSFORMERS) is not None:
        for precision in precisions:
            yield "transformers eager", precision, partial(_transformers, classifier, precision)


def _timm(name: str, arguments: Mapping[str, Any], precision: Precision, *, compiled: bool) -> Compute:
    network = importlib.import_module(TIMM).create_model(name, **arguments).eval().to(DTYPES[precision])
    forward = torch.compile(network) if compiled else network

    def compute(images: Images) -> Logits:
        with torch.inference_mode():
            return forward(images.to(DTYPES[precision])).float()

    return compute


def _transformers(classifier: Classifier, precision: Precision) -> Compute:
    with tempfile.TemporaryDirectory(prefix="vitral-peer-") as parent, _silent():
        target = Path(parent) / "network"
        try:
            write_weights(
                classifier.model,
                classifier.preprocessing,
                classifier.class_names,
                target,
                TRANSFORMERS,
                task=classifier.task,
            )
        except WeightsError as error:
            raise ModelError("transformers has no such network") from error
        kind = importlib.import_module(TRANSFORMERS).AutoModelForImageClassification
        network = kind.from_pretrained(target, dtype=DTYPES[precision]).eval()

    def compute(images: Images) -> Logits:
        with torch.inference_mode():
            return network(pixel_values=images.to(DTYPES[precision])).logits.float()

    return compute


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep transformers' warnings and its progress bars off the screen."""
    logging = importlib.import_module(f"{TRANSFORMERS}.utils.logging")
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if enabled:
            logging.enable_progress_bar()

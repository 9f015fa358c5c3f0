"""What the facts are: the data, the weights and the machine, looked at once."""

from collections.abc import Iterator

import numpy as np
import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.images.decode import Pixels
from vitral.images.detail import detail_side
from vitral.models.cost import count_macs, count_parameters
from vitral.training.optimization.adaptation import linear_layers
from vitral.training.optimization.precision import training_device
from vitral.training.planning.facts import DataFacts, Facts, MachineFacts, WeightsFacts
from vitral.training.planning.from_scratch import SIZES
from vitral.training.planning.memory import usable_bytes
from vitral.training.planning.request import Request
from vitral.training.planning.resolve import needs_network, needs_side
from vitral.training.planning.speed import training_speed

SAMPLE = 16  # images whose sizes are looked at


def look(request: Request, data: DataSet, loaded: Classifier | None, reading_seconds: float = 0.0) -> Facts:
    """Return the facts that a request's plan depends on.

    Args:
        request: what was asked for.
        data: what to learn.
        loaded: the trained weights, where there are any.
        reading_seconds: that the command took until now.
    """
    train = data.splits["train"]
    side, detail = _sides(request, train)
    return Facts(
        data=DataFacts(
            images=len(train),
            an_epoch=data.images_an_epoch(),
            classes=len(data.class_names),
            task=data.task,
            augmentation=data.augmentation,
            side=side,
            detail=detail,
            judged="validation" in data.splits,
            reading_seconds=distributed.broadcast(reading_seconds),
        ),
        machine=look_at_machine(timed=needs_network(request)),
        weights=look_at_weights(loaded) if loaded is not None and request.automatic else None,
    )


def look_at_weights(loaded: Classifier) -> WeightsFacts:
    """Return what trained weights are."""
    model = loaded.model
    return WeightsFacts(
        config=model.config,
        parameters=count_parameters(model),
        macs=count_macs(model.config),
        blocks=len(model.blocks()),
        low_rank=bool(linear_layers(model)),
    )


def look_at_machine(*, timed: bool = False) -> MachineFacts:
    """Return what this machine has for a run, and how fast it is if that is to be measured."""
    device = training_device()
    speed = distributed.broadcast(training_speed(device)) if timed else None
    return MachineFacts(
        gpu_bytes=torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None,
        usable_bytes=usable_bytes(device),
        processes=distributed.world(),
        macs_per_second=None if speed is None else speed * distributed.world(),
    )


def median_side(train: Source) -> float:
    """Return the shorter side, in pixels, of the middle one of some images."""
    return float(np.median([min(pixels.shape[:2]) for pixels in _sampled(train)]))


def median_detail(train: Source) -> tuple[float, float | None]:
    """Return the same, and the side at which the middle one shows as much; None where most were not enlarged."""
    own, shown = [], []
    for pixels in _sampled(train):
        own.append(min(pixels.shape[:2]))
        shown.append(detail_side(pixels, SIZES) or np.inf)  # of one that was not enlarged, whatever its own size
    side, detail = float(np.median(own)), float(np.median(shown))
    return side, detail if detail < side else None


def _sides(request: Request, train: Source) -> tuple[float | None, float | None]:
    if needs_network(request):
        return median_detail(train)
    return (median_side(train) if needs_side(request) else None), None


def _sampled(train: Source) -> Iterator[Pixels]:
    indices = np.linspace(0, len(train) - 1, min(len(train), SAMPLE)).astype(int)
    return (train.image(int(index)) for index in indices)

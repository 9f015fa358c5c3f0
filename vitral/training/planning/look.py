"""What the facts are: the data, the weights and the machine, looked at once."""

import numpy as np
import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.models.cost import count_macs, count_parameters
from vitral.training.optimization.adaptation import linear_layers
from vitral.training.optimization.precision import training_device
from vitral.training.planning.facts import DataFacts, Facts, MachineFacts, WeightsFacts
from vitral.training.planning.memory import usable_bytes
from vitral.training.planning.request import Request
from vitral.training.planning.resolve import needs_network, needs_side
from vitral.training.planning.speed import training_speed

SAMPLE = 16  # images whose sizes are looked at


def look(request: Request, data: DataSet, loaded: Classifier | None) -> Facts:
    """Return the facts that a request's plan depends on.

    Args:
        request: what was asked for.
        data: what to learn.
        loaded: the trained weights, where there are any.
    """
    train = data.splits["train"]
    return Facts(
        data=DataFacts(
            images=len(train),
            an_epoch=data.images_an_epoch(),
            classes=len(data.class_names),
            task=data.task,
            augmentation=data.augmentation,
            side=median_side(train) if needs_side(request) else None,
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
    indices = np.linspace(0, len(train) - 1, min(len(train), SAMPLE)).astype(int)
    return float(np.median([min(train.image(int(index)).shape[:2]) for index in indices]))

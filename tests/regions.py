"""Classifiers of regions with random weights that find something on the scenes of digits, one for each task."""

import numpy as np
import torch
from torch import nn

from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import Calibration
from vitral.data.open import open_data
from vitral.images.decode import Pixels
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import HEADS, DenseConfig
from vitral.models.families import build
from vitral.tasks.dense import dense_task

# For each task's data: seed and deviation of the weights of the layer of classes, the bias of its last output, and how sure a
# region must be, such that regions are found of which some are not sure.
DRAWN: dict[str, tuple[int, float, float, float | None]] = {
    "digit-scenes": (0, 20.0, 0.0, 0.4),
    "digit-scenes-semantic": (0, 2.0, 0.0, None),
    "digit-scenes-boxes": (0, 0.5, 0.0, 0.6),
    "digit-scenes-panoptic": (9, 5.0, 130.0, None),
}
FEW = {"train": 40, "validation": 12, "test": 12}  # scenes, as of the fixture `few_scenes`


def scene(index: int = 0, height: int = 96, width: int = 96) -> Pixels:
    """Return a scene of digits, its pixels as squares of whatever size."""
    pixels = open_data("digit-scenes").splits["test"].image(index)
    rows, columns = (np.arange(side) * 96 // side for side in (height, width))
    return pixels[rows][:, columns]


def finding(data: str) -> Classifier:
    """Return a classifier for the classes and the task of a built-in set of scenes."""
    known, (seed, deviation, bias, threshold) = open_data(data), DRAWN[data]
    head = HEADS[dense_task(known.task).heads[0]][0]()
    count = len(known.class_names)
    config = DenseConfig(backbone=variant("vit-nano4"), head=head, num_classes=count, image_size=(32, 32))
    model = build(config, seed=1)
    layer = model.head.classifier
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    assert layer.bias is not None
    nn.init.normal_(layer.weight, std=deviation, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        layer.bias[-1] = bias
    made = Classifier(model, PHOTOS.with_size((32, 32)), known.class_names, task=known.task)
    if threshold is not None:
        made.calibration = Calibration(1.0, threshold, None, data, 40)
    return made

"""Where a file's values leave the network's: the cosine between both, layer by layer."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitral.classifier.classifier import Classifier
from vitral.exporting.whole import written_network
from vitral.images.decode import Pixels
from vitral.inference.exported.format import Layers
from vitral.inference.exported.graph import Graph

SAME = 0.9999  # a cosine from which on two layers' values count as the same


def layer_cosines(classifier: Classifier, graph: Graph, layers: Layers, pixels: Pixels) -> dict[str, float]:
    """Return the cosine between what each layer gives in the network and in the file, in the order of computation.

    It is multiplied by the ratio of both lengths, so that a layer whose values are only larger is seen, too.

    Args:
        classifier: computed in torch in float32.
        graph: the file.
        layers: the names of the file's values by the layers that give them.
        pixels: an image.
    """
    network = written_network(classifier)
    own: dict[str, np.ndarray] = {}
    for name, module in network.named_modules():
        if name in layers:
            module.register_forward_hook(partial(_keep, own, name))
    with torch.no_grad():
        network(classifier.preprocessing(pixels)[None])
    found = graph.inner(pixels[None], tuple(dict.fromkeys(layers[name] for name in own)))
    return {
        name: _cosine(values, found[layers[name]])
        for name, values in own.items()
        if values.shape == found[layers[name]].shape  # else the graph orders its axes in another way
    }


def first_different(cosines: Mapping[str, float]) -> str:
    """Return the first layer whose values are others; empty if there is none."""
    return next((name for name, cosine in cosines.items() if not cosine >= SAME), "")


def _keep(kept: dict[str, np.ndarray], name: str, module: nn.Module, arguments: Any, output: object) -> None:  # noqa: ANN401
    if isinstance(output, Tensor):
        kept[name] = output.float().numpy()


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine times the ratio of both lengths, the shorter to the longer: 1 for the same values only."""
    first, second = one.ravel().astype(np.float64), other.ravel().astype(np.float64)
    longest = max(float(first @ first), float(second @ second))
    return float(first @ second) / longest if longest > 0 else 1.0

"""The range of each linear layer's inputs for its int8 form, and their smoothing, found by what the layer then answers.

Plain 8-bit inputs fail in a Vision Transformer: a few channels after a norm are many times as large as all others, and one
range for all leaves these with a handful of steps. A part of that is moved into the weights (SmoothQuant, arXiv 2211.10438,
equation 4), where each output has a scale of its own; and the few values beyond a narrower range may be cut off. How much of
either is decided for each layer alone, by the error of its products on inputs that were seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.inference.int8 import quantized_weight, to_integers
from vitral.inference.quantization import LayerRange, check_weights, linear_layers, written_factors
from vitral.inference.torch_predictor import copy_in
from vitral.models.blocks import Block
from vitral.models.model import Images, Model

STRENGTHS = (0.0, 0.15, 0.3, 0.5, 0.65)  # of smoothing: SmoothQuant's alpha, 0 for none
WIDTHS = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35)  # of a range, as a share of all that was seen
ROWS = 512  # inputs of a layer that are kept to judge by
ROWS_AN_IMAGE = 2  # of them, the first token's among them: so that 256 images have a say
LEAST_FACTOR = 1e-3  # of smoothing, far inside float16
MOST_FACTOR = 1e3  # likewise


@dataclass(frozen=True)
class LayerFit:
    """The range of a layer's inputs, and its answers' error, root mean square, as a share of what they vary by."""

    inputs: LayerRange
    error: float


class _Observed(nn.Module):
    """A linear layer that keeps some of its inputs, and the least and the largest that each was."""

    def __init__(self, layer: nn.Linear, generator: torch.Generator) -> None:
        super().__init__()
        self.layer, self.generator = layer, generator
        self.in_features = layer.in_features
        self.rows, self.kept = torch.zeros(ROWS, layer.in_features), 0
        self.low = torch.full((layer.in_features,), torch.inf)
        self.high = -self.low

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch out"]:
        self._keep(values)
        return self.layer(values)

    def part(
        self, values: Float[Tensor, "*batch features"], start: int, stop: int | None = None
    ) -> Float[Tensor, "*batch part"]:
        self._keep(values)
        return self.layer.part(values, start, stop)  # type: ignore[operator]

    def _keep(self, values: Tensor) -> None:
        flat = values.reshape(-1, self.in_features)
        # In place: what is allocated between a pass's values and stays tears holes into memory, gigabytes in all.
        torch.minimum(self.low, flat.amin(dim=0), out=self.low)
        torch.maximum(self.high, flat.amax(dim=0), out=self.high)
        images = values.reshape(len(values), -1, self.in_features)
        tokens = torch.randperm(images.shape[1], generator=self.generator)[: ROWS_AN_IMAGE - 1]
        taken = images[:, torch.cat([torch.zeros(1, dtype=torch.int64), tokens])].reshape(-1, self.in_features)
        taken = taken[: ROWS - self.kept]
        self.rows[self.kept : self.kept + len(taken)] = taken
        self.kept += len(taken)


def find_ranges(network: Model, batches: Iterator[Images]) -> dict[str, LayerFit]:
    """Return what is found for each linear layer of a network's blocks.

    Args:
        network: The network, which stays as it is.
        batches: Prepared images, neither of the test split nor of those by which layers are chosen.

    Raises:
        ModelError: A weight is no number.
    """
    copied = copy_in(network, torch.float32)
    check_weights(copied)
    after_norm = {
        id(layer)
        for block in copied.modules()
        if isinstance(block, Block)
        for layer in (block.attention.qkv, getattr(block.mlp, "fc1", None))
    }
    layers, generator = linear_layers(copied), torch.Generator().manual_seed(0)
    observed = {name: _Observed(layer, generator) for name, layer in layers.items()}
    for name, layer in observed.items():
        copied.set_submodule(name, layer)
    with torch.no_grad():
        for images in batches:
            copied(images)
        return {name: _best(layer, smooth=id(layer.layer) in after_norm) for name, layer in observed.items()}


def _best(seen: _Observed, *, smooth: bool) -> LayerFit:
    """Return the range and the smoothing by which a layer's answers are nearest to those of float32."""
    layer, rows = seen.layer, seen.rows[: seen.kept]
    weight = layer.weight.detach()
    exact = rows @ weight.T
    spread = exact.std().clamp_min(1e-12)
    tried = []
    for strength, width in product(STRENGTHS if smooth else STRENGTHS[:1], WIDTHS):
        factors = _factors(seen, weight, strength)
        low, high = (ends if factors is None else ends / factors for ends in (seen.low, seen.high))
        least, most = min(0.0, width * float(low.min())), max(0.0, width * float(high.max()))
        if most - least <= 0:
            most = 1.0  # of inputs that are always zero
        inputs = LayerRange(least, most, "" if factors is None else written_factors(factors))
        tried.append(LayerFit(inputs, float((_answers(rows, weight, inputs) - exact).pow(2).mean().sqrt() / spread)))
    return min(tried, key=lambda found: found.error)


def _factors(seen: _Observed, weight: Tensor, strength: float) -> Float[Tensor, " features"] | None:
    """Return the factors of smoothing, max|x|^a / max|w|^(1 - a) of each input; None where the strength is 0."""
    if not strength:
        return None
    inputs = torch.maximum(seen.high, -seen.low).clamp_min(LEAST_FACTOR)
    weights = weight.abs().amax(dim=0).clamp_min(LEAST_FACTOR)
    factors = inputs**strength / weights ** (1 - strength)
    return (factors / factors.median()).clamp(LEAST_FACTOR, MOST_FACTOR)


def _answers(rows: Tensor, weight: Tensor, inputs: LayerRange) -> Tensor:
    """Return a layer's products, without its bias, as integers give them."""
    factors = inputs.factors(weight.shape[1])
    integers, scales = quantized_weight(weight if factors is None else weight * factors)
    levels = to_integers(rows if factors is None else rows / factors, inputs).float() - inputs.zero
    return (levels * inputs.scale) @ (integers.float() * scales[:, None]).T

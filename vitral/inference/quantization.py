"""What the int8 form of a network needs beside its weights: which linear layers it has, and the range of their inputs."""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.described import LATER, Kept, read_described
from vitral.errors import ModelError, VitralError
from vitral.models.experts import MixtureOfExperts
from vitral.models.layers import Linear
from vitral.models.model import Model
from vitral.tasks.shown import photos_of

LEVELS = 255  # steps of an input between its least and its largest value
LEAST_STEP = 1e-12  # no network's inputs are nearer to each other
MOST_STEP = 1e12  # nor farther apart


@dataclass(frozen=True)
class LayerRange:
    """How the inputs of a linear layer become 8-bit integers, the same for all tokens and images.

    Attributes:
        low: The least input, divided by `smoothing`; at most 0. What is below becomes it.
        high: The largest input, divided by `smoothing`; at least 0.
        smoothing: A factor an input, by which it is divided while its weights are multiplied by it (SmoothQuant, arXiv
            2211.10438): float16 in base64; empty for none.
    """

    low: float
    high: float
    smoothing: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= 0 <= self.high):
            raise VitralError(
                f"A range of inputs goes from at most 0 to at least 0, not from {self.low} to {self.high}."
            )
        if not LEAST_STEP <= self.scale <= MOST_STEP:
            raise VitralError(f"A range of inputs has steps from {LEAST_STEP:g} to {MOST_STEP:g}, not {self.scale:g}.")

    @property
    def scale(self) -> float:
        """The difference of inputs that are one step apart."""
        return (self.high - self.low) / LEVELS

    @property
    def zero(self) -> int:
        """The integer that stands for 0."""
        return min(LEVELS, max(0, round(-self.low / self.scale)))

    def factors(self, count: int) -> Float[Tensor, " features"] | None:
        """Return the factors of so many inputs; None without smoothing.

        Raises:
            VitralError: There are not as many, or one is not a positive number.
        """
        if not self.smoothing:
            return None
        try:
            values = np.frombuffer(base64.b64decode(self.smoothing, validate=True), dtype="<f2").astype(np.float32)
        except ValueError as error:
            raise VitralError(f"The smoothing of a layer is not in base64 ({error}).") from error
        if len(values) != count or not (np.isfinite(values).all() and (values > 0).all()):
            raise VitralError(f"The smoothing of a layer with {count} inputs is not {count} positive numbers.")
        return torch.from_numpy(values)


def written_factors(factors: Float[Tensor, " features"]) -> str:
    """Return positive factors, none beyond what float16 holds, as `LayerRange` keeps them."""
    return base64.b64encode(factors.numpy().astype("<f2").tobytes()).decode()


@dataclass(frozen=True)
class Quantization(Kept):
    """What makes a network's int8 form: found on training images, chosen on validation images.

    Attributes:
        layers: The range of the inputs of each linear layer that computes in int8, by the layer's name.
        kept: The other linear layers of the blocks, which stay in float32 so that the scores hold.
        image_size: Height and width of the images, pixels.
        data: The name of the images of which it was made.
        images: Validation images that it was chosen on.
        exact: The headline figure on these in fp32, 0 to 1.
        score: The same in int8.
        same_top: The share of these with the same most probable class.
        weights: The hash of the weights file of which it was made; empty where it was made of no file.
    """

    called = "Its int8 form"

    layers: Mapping[str, LayerRange]
    kept: tuple[str, ...]
    image_size: tuple[int, ...]
    data: str
    images: int
    exact: float
    score: float
    same_top: float
    weights: str = field(default="", metadata=LATER)

    def __post_init__(self) -> None:
        if self.images < 0 or not all(0 <= share <= 1 for share in (self.exact, self.score, self.same_top)):
            raise VitralError("An int8 form has scores between 0 and 1, of 0 images or more.")

    def sentence(self) -> str:
        """Return what it says, in one sentence."""
        total = len(self.layers) + len(self.kept)
        return (
            f"int8 in {len(self.layers)} of {total} linear layers, chosen on {photos_of('validation', self.images)} of "
            f"{self.data}: {self.score:.2%} there against {self.exact:.2%} in fp32."
        )

    @classmethod
    def from_json(cls, values: object) -> "Quantization | None":
        """Return what `to_json` gave, as `Kept` does, the layers' ranges among it."""
        read = super().from_json(values)
        if read is None:
            return None
        layers = {name: read_described(LayerRange, layer, "A range") for name, layer in read.layers.items()}
        return replace(read, layers=layers)

    def check(self, network: Model) -> None:
        """Check that it is of a network.

        Raises:
            VitralError: It names other layers, or has factors for another number of inputs.
        """
        known = linear_layers(network)
        if self.layers.keys() | set(self.kept) != known.keys() or self.layers.keys() & set(self.kept):
            raise VitralError("its int8 form is of a network with other layers")
        for name, layer in self.layers.items():
            layer.factors(known[name].in_features)


def check_weights(network: Model) -> None:
    """Refuse weights that are no numbers, which integers would hide, by a ModelError that names the first such tensor."""
    for name, value in (*network.named_parameters(), *network.named_buffers()):
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ModelError(
                f"The network's '{name}' holds what is no number (NaN): its weights are damaged, or its training diverged; "
                "load an earlier checkpoint."
            )


def linear_layers(network: Model) -> dict[str, nn.Linear]:
    """Return the linear layers of a network's blocks by name, in order: what an int8 form can have.

    The patch embedding and the head are not among them, nor experts and their routers.
    """
    blocks = {id(block) for block in network.blocks()}
    inside = tuple(f"{name}." for name, module in network.named_modules() if id(module) in blocks)
    experts = tuple(f"{name}." for name, module in network.named_modules() if isinstance(module, MixtureOfExperts))
    return {
        name: module
        for name, module in network.named_modules()
        if type(module) in (Linear, nn.Linear) and name.startswith(inside) and not name.startswith(experts)
    }

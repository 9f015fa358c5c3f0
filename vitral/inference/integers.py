"""A network's int8 form as a graph: linear layers of integers as runtimes outside torch know them, quantized and unquantized.

In ONNX such a layer is a product of two DequantizeLinear nodes, of the inputs' integers and of the weight's, which runtimes
replace by a product of integers.
"""

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from vitral.inference.int8 import quantized_weight
from vitral.inference.quantization import LEVELS, LayerRange, Quantization, linear_layers
from vitral.models.model import Model


@torch.library.custom_op("vitral::integer_linear", mutates_args=())
def integer_linear(values: Tensor, weight: Tensor, scales: Tensor, bias: Tensor, step: float, zero: int) -> Tensor:
    """Return a linear layer's outputs, its inputs and its weight rounded to 8-bit integers.

    Args:
        values: The inputs, (*batch, features) in float32.
        weight: Integers, (features, outputs).
        scales: The scales of the weight, one for each output.
        bias: (outputs,).
        step: The difference of inputs from one integer to the next.
        zero: The integer of an input that is 0.
    """
    integers = (torch.round(values / step) + zero).clamp(0, LEVELS)
    return ((integers - zero) * step) @ (weight.float() * scales) + bias


@integer_linear.register_fake
def _shaped(values: Tensor, weight: Tensor, scales: Tensor, bias: Tensor, step: float, zero: int) -> Tensor:
    return values.new_empty(*values.shape[:-1], weight.shape[1])


class IntegerLinear(nn.Module):
    """A linear layer of integers that can be traced."""

    weight: Int8[Tensor, "features outputs"]
    scales: Float[Tensor, " outputs"]
    bias: Float[Tensor, " outputs"]
    factors: Float[Tensor, " features"] | None

    def __init__(self, layer: nn.Linear, inputs: LayerRange) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.step, self.zero = inputs.scale, inputs.zero
        weight, factors = layer.weight.detach(), inputs.factors(layer.in_features)
        integers, scales = quantized_weight(weight if factors is None else weight * factors)
        bias = torch.zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        self.register_buffer("weight", integers.t().contiguous())
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias)
        self.register_buffer("factors", None if factors is None else 1 / factors)

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch outputs"]:
        """Return the transformed values."""
        return self.part(values, 0)

    def part(
        self, values: Float[Tensor, "*batch features"], start: int, stop: int | None = None
    ) -> Float[Tensor, "*batch part"]:
        """Return the transformed values from one output to another."""
        values = values if self.factors is None else values * self.factors
        own = self.weight[:, start:stop], self.scales[start:stop], self.bias[start:stop]
        return integer_linear(values, *(value.contiguous() for value in own), self.step, self.zero)


def to_integer_layers(network: Model, quantization: Quantization) -> Model:
    """Replace the layers that a quantization has ranges for, in place.

    Raises:
        VitralError: It is of another network.
    """
    quantization.check(network)
    layers = linear_layers(network)
    for name, inputs in quantization.layers.items():
        network.set_submodule(name, IntegerLinear(layers[name], inputs))
    return network

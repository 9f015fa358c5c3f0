"""A network with linear layers that multiply 8-bit integers on a CPU, and its form as a graph for runtimes outside torch.

On the CPU inputs are unsigned, weights signed, sums in 32 bits. A weight has one scale for each output. An input has one range
for all, found beforehand (`vitral.inference.ranges`), so that a norm gives integers and a layer hands integers to the next one:
what is left to convert would cost as much as the products. Attention, norms, residual sums, the patch embedding and the head
compute in float32.

In ONNX such a layer is a product of two DequantizeLinear nodes, of the inputs' integers and of the weight's, which runtimes
replace by a product of integers.
"""

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor, nn
from torch.nn import functional

from vitral.inference.packed import GELUS, HAS_PACKING, PLAIN, pack
from vitral.inference.quantization import LEVELS, LayerRange, Quantization, check_weights, linear_layers
from vitral.inference.torch_predictor import copy_in
from vitral.models.blocks import Block, LayerScale, Mlp
from vitral.models.layers import Tokens
from vitral.models.model import Model

onednn = torch.ops.onednn
HAS_INT8 = HAS_PACKING and all(hasattr(onednn, name) for name in ("qlinear_prepack", "qlinear_pointwise"))
WEIGHT_LEVELS = 127  # steps of a weight on either side of 0
LEAST_SCALE = 1e-12  # of a row of weights that are all zero
ROUNDED = 0.5  # added before the fraction is cut off

Integers = UInt8[Tensor, "*batch features"]


class Int8Linear(nn.Module):
    """A linear layer of integers, which takes values or what `to_integers` made of them.

    Args:
        weight: The weight of the layer that it stands for, before smoothing.
        bias: The bias of that layer.
        inputs: Their range.
        after: What follows the product, see `PackedLinear`.
        outputs: The range of the layer that alone takes what this one gives, in integers then; None for float32.
    """

    def __init__(
        self,
        weight: Float[Tensor, "out features"],
        bias: Float[Tensor, " out"] | None,
        inputs: LayerRange,
        *,
        after: tuple[str, str] = PLAIN,
        outputs: LayerRange | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.inputs, self.outputs = weight.shape[1], inputs, outputs
        self.factors = inputs.factors(self.in_features)
        self.bias = bias
        self.after, self.algorithm = after
        self.integers, self.scales = quantized_weight(weight if self.factors is None else weight * self.factors)
        self._packed: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor, Tensor | None]] = {}

    def forward(self, values: Float[Tensor, "*batch features"] | Integers) -> Float[Tensor, "*batch out"] | Integers:
        """Return the transformed values."""
        return self.part(values, 0)

    def part(
        self, values: Float[Tensor, "*batch features"] | Integers, start: int, stop: int | None = None
    ) -> Float[Tensor, "*batch part"] | Integers:
        """Return the transformed values from one output to another."""
        packed, scales, zeros, bias = self._of(start, stop)
        out = (1.0, 0, torch.float32) if self.outputs is None else (self.outputs.scale, self.outputs.zero, torch.uint8)
        integers, inputs = self._integers(values), self.inputs
        return onednn.qlinear_pointwise(
            integers, inputs.scale, inputs.zero, packed, scales, zeros, bias, *out, self.after, [], self.algorithm
        )

    def plus(
        self, values: Float[Tensor, "*batch features"] | Integers, other: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "*batch out"]:
        """Return the transformed values and `other` in one sum."""
        packed, scales, zeros, bias = self._of(0, None)
        out, integers, inputs = (1.0, 0, torch.float32), self._integers(values), self.inputs
        return onednn.qlinear_pointwise.binary(
            *(integers, inputs.scale, inputs.zero, packed, scales, zeros, other.contiguous(), bias),
            *(*out, 1.0, 0, "add", 1.0, "none", [], ""),
        )

    def _integers(self, values: Float[Tensor, "*batch features"] | Integers) -> Integers:
        if values.dtype == torch.uint8:
            return values.contiguous()
        return to_integers(values if self.factors is None else values / self.factors, self.inputs)

    def _of(self, start: int, stop: int | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return what the kernel takes of some outputs: the sorted weights, their scales and zeros, the bias."""
        end = len(self.integers) if stop is None else stop
        if (start, end) not in self._packed:
            rows = self.integers[start:end].contiguous()
            bias = None if self.bias is None else self.bias[start:end].contiguous()
            sorted_weight = onednn.qlinear_prepack(rows, None)
            zeros = torch.zeros(end - start, dtype=torch.int64)
            self._packed[start, end] = sorted_weight, self.scales[start:end].contiguous(), zeros, bias
        return self._packed[start, end]


class QuantizingNorm(nn.Module):
    """A layer norm that gives the integers which the next layer multiplies; scale and smoothing are part of its gain."""

    def __init__(self, norm: nn.LayerNorm, inputs: LayerRange) -> None:
        super().__init__()
        self.shape, self.eps = norm.normalized_shape, norm.eps
        factors = inputs.factors(self.shape[0])
        step = torch.tensor(inputs.scale) if factors is None else factors * inputs.scale
        self.gain = norm.weight.detach() / step
        self.shift = norm.bias.detach() / step + (inputs.zero + ROUNDED)

    def forward(self, tokens: Tokens) -> Integers:
        """Return the normalized tokens as integers."""
        levels = functional.layer_norm(tokens, self.shape, self.gain, self.shift, self.eps)
        return levels.clamp_(0, LEVELS + ROUNDED).to(torch.uint8)


def to_integers(values: Float[Tensor, "*batch features"], inputs: LayerRange) -> Integers:
    """Return the nearest of the 256 integers for each value; what is beyond the range becomes its end."""
    levels = torch.addcmul(torch.tensor(inputs.zero + ROUNDED), values, torch.tensor(1 / inputs.scale))
    return levels.clamp_(0, LEVELS + ROUNDED).to(torch.uint8).contiguous()


def quantized_weight(weight: Float[Tensor, "out features"]) -> tuple[Tensor, Float[Tensor, " out"]]:
    """Return a weight as integers from -127 to 127, and the scale of each row."""
    scales = (weight.abs().amax(dim=1) / WEIGHT_LEVELS).clamp_min(LEAST_SCALE)
    return (weight / scales[:, None]).round().to(torch.int8), scales


def quantize(network: Model, quantization: Quantization) -> Model:
    """Return a copy on the CPU with the layers of a quantization in integers, all others computed from packed weights.

    Raises:
        VitralError: The quantization is of another network.
        ModelError: A weight is no number.
    """
    copied = copy_in(network, torch.float32)
    quantization.check(copied)
    check_weights(copied)
    layers = linear_layers(copied)
    ranges: Ranges = {layers[name]: inputs for name, inputs in quantization.layers.items()}
    for module in copied.modules():
        if isinstance(module, Block):
            _fold_scales(module)
            _quantize_block(module, ranges)
    for name, layer in linear_layers(copied).items():  # those that are left
        if layer in ranges:
            copied.set_submodule(name, _made(layer, ranges))
    return pack(copied)


Ranges = dict[nn.Module, LayerRange]  # of the layers that compute in int8


def _fold_scales(block: Block) -> None:
    """Make factors on a residual branch part of its last layer; the inputs of that stay as they are."""
    if isinstance(block.scale1, LayerScale):
        _scale(block.attention.out, block.scale1)
        block.scale1 = nn.Identity()
    if isinstance(block.scale2, LayerScale) and not block.has_experts:
        _scale(block.mlp.fc2, block.scale2)
        block.scale2 = nn.Identity()


def _scale(layer: nn.Linear, scale: LayerScale) -> None:
    factors = scale.scale.detach()
    layer.weight = nn.Parameter(layer.weight.detach() * factors[:, None], requires_grad=False)
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.detach() * factors, requires_grad=False)


def _quantize_block(block: Block, ranges: Ranges) -> None:
    """Let the norms give integers, and the MLP's first layer the second one's, GELU included."""
    attention, mlp = block.attention, block.mlp
    if (inputs := ranges.get(attention.qkv)) is not None:
        attention.qkv = _made(attention.qkv, ranges)  # type: ignore[assignment]
        block.norm1 = QuantizingNorm(block.norm1, inputs)  # type: ignore[assignment]
    if not isinstance(mlp, Mlp) or (inputs := ranges.get(mlp.fc1)) is None:
        return
    after = GELUS.get(type(mlp.gelu))
    outputs = None if after is None else ranges.get(mlp.fc2)
    if outputs is not None and outputs.smoothing:
        outputs = None  # the integers of the product would lack its factors
    mlp.fc1 = _made(mlp.fc1, ranges, after or PLAIN, outputs)  # type: ignore[assignment]
    block.norm2 = QuantizingNorm(block.norm2, inputs)  # type: ignore[assignment]
    if after is not None:
        mlp.gelu = nn.Identity()


def _made(
    layer: nn.Linear, ranges: Ranges, after: tuple[str, str] = PLAIN, outputs: LayerRange | None = None
) -> Int8Linear:
    bias = None if layer.bias is None else layer.bias.detach()
    return Int8Linear(layer.weight.detach(), bias, ranges[layer], after=after, outputs=outputs)


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
    """Replace the layers that a quantization has ranges for, in place, or raise VitralError if it is of another network."""
    quantization.check(network)
    layers = linear_layers(network)
    for name, inputs in quantization.layers.items():
        network.set_submodule(name, IntegerLinear(layers[name], inputs))
    return network

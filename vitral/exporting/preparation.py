"""A classifier as graphs: its preprocessing, from decoded images of any size to the network's input, and its answers.

Runtimes resize in ways of their own: ONNX Runtime on a GPU ignores the coefficient of bicubic resizing, OpenVINO's reader of
ONNX ignores its antialiasing. So no node of the graph is a resize: along each axis it is a product with a matrix of weights,
which the graph makes from the image's size by plain arithmetic, the same everywhere.
"""

from collections.abc import Mapping
from typing import NamedTuple

import PIL
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.images.preprocessing import LONGEST, Preprocessing
from vitral.inference.exported.format import DECODED_AXES, PREPARED_AXES
from vitral.inference.int8 import to_integer_layers
from vitral.inference.merging import merge_tokens
from vitral.inference.torch_predictor import copy_in
from vitral.machine import vitral_version
from vitral.models.model import Images, Model

Scalar = Int64[Tensor, ""]
Weights = Float[Tensor, "outputs pixels"]

WHITE = 255  # the largest value of a pixel
# Resizing in 8 bits multiplies by integers, the weights times a power of two. Pillow's is always the same
# (src/libImaging/Resample.c, PRECISION_BITS); torch's is the largest that leaves each below 2 ** 15, up to Pillow's
# (aten/src/ATen/native/cpu/UpSampleKernel.cpp, compute_index_ranges_int16_weights).
PILLOW_BITS = 22
INTEGERS = 1 << 15
HALF = 1 << 11  # of such an integer, in which sums of 32 products with pixels are exact in float32
# From Pillow 13 on, where it loses over twice as many rows as columns.
VERTICAL_FIRST = int(PIL.__version__.partition(".")[0]) >= 13
# The parameter of cubic convolution.
SMOOTH = -0.5  # of antialiased resizing, as in Pillow
SHARP = -0.75  # of the other, in torch
EXAMPLE = 2, 41, 53  # images, rows and columns that a graph is traced with; a batch of one would become a constant


class _Axis(NamedTuple):
    """How an axis is resized: `whole` outputs share `span` pixels, from `start` on, and those from `first` on are kept."""

    start: Scalar
    span: Scalar
    whole: Scalar
    first: Scalar


class PreparationGraph(nn.Module):
    """Does what a `Preprocessing` does to images of one size, in operations that every runtime has.

    It gives the same bits where that resizes in 8 bits, but for sums so near to a half that float32 puts them on its other
    side, which changes the value by one level of 255; and the same up to float32's rounding where that resizes in float32.

    Raises:
        ModelError: It takes the nearest pixels as Pillow does, which adds up their places with the rounding of each sum.
    """

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        if (preprocessing.resampler, preprocessing.interpolation) == ("pillow", "nearest"):
            raise ModelError("Pillow's way to take the nearest pixels cannot be written as a graph; take another one.")
        self.preprocessing = preprocessing
        self.in_8_bits = preprocessing.resampler != "float32"
        self.antialias = preprocessing.antialias or self.in_8_bits

    def forward(self, images: UInt8[Tensor, "batch rows columns 3"]) -> Float[Tensor, "batch 3 height width"]:
        """Return decoded images as the network's input."""
        rows, columns = (torch.scalar_tensor(images.shape[axis], dtype=torch.int64) for axis in (1, 2))
        vertical, horizontal, thin = self._axes(rows, columns)
        pixels = images.permute(0, 3, 1, 2).float()

        def across(values: Tensor) -> Tensor:
            return self._along(values.transpose(2, 3), horizontal, 1, thin).transpose(2, 3)

        def down(values: Tensor) -> Tensor:
            return self._along(values, vertical, 0, thin)

        resized = down(across(pixels))
        if self.preprocessing.resampler == "pillow" and VERTICAL_FIRST:
            removed = rows - vertical.whole, columns - horizontal.whole
            resized = torch.where((removed[0] > 0) & (removed[0] > 2 * removed[1]), across(down(pixels)), resized)
        resized = resized.clamp(0, WHITE)
        if self.preprocessing.resize == "pad":
            height, width = self.preprocessing.image_size
            shown = (torch.arange(height) < vertical.whole)[:, None] & (torch.arange(width) < horizontal.whole)
            colour = torch.tensor(self.preprocessing.mean_colour, dtype=torch.float32)[:, None, None]
            resized = torch.where(shown, resized, colour)
        return self.preprocessing.normalize(resized)

    def _axes(self, rows: Scalar, columns: Scalar) -> tuple[_Axis, _Axis, Bool[Tensor, ""] | None]:
        """Return how both axes are resized, and whether the image is so thin that it is done in float32 instead of 8 bits.

        None stands for an answer that does not depend on the image.
        """
        padded = self.preprocessing.resize == "pad"
        if not self.in_8_bits and not padded:
            return *self._cropped(rows, columns), None
        whole_rows, whole_columns = self._whole(rows, columns)
        if padded:
            vertical = _Axis(_number(0), rows, whole_rows, _number(0))
            return vertical, _Axis(_number(0), columns, whole_columns, _number(0)), None
        vertical = self._after(rows, whole_rows, self.preprocessing.image_size[0])
        horizontal = self._after(columns, whole_columns, self.preprocessing.image_size[1])
        most = LONGEST * max(self.preprocessing.image_size)  # of a side that is resized before the crop
        if self.preprocessing.resize == "squash" and max(self.preprocessing.before_crop) <= most:
            return vertical, horizontal, None
        thin = torch.maximum(whole_rows, whole_columns) > most
        before = self._cropped(rows, columns)
        return _either(thin, before[0], vertical), _either(thin, before[1], horizontal), thin

    def _cropped(self, rows: Scalar, columns: Scalar) -> tuple[_Axis, _Axis]:
        """Return the axes of an image that is cropped first: `Preprocessing.box`, then one resize."""
        height, width = self.preprocessing.image_size
        crop_height, crop_width = rows.double(), columns.double()
        if self.preprocessing.resize == "crop":
            ratio = height / width
            crop_height = torch.minimum(crop_height, crop_width * ratio)
            crop_width = crop_height / ratio
        axes = []
        for length, cropped, size in ((rows, crop_height, height), (columns, crop_width, width)):
            span = torch.round(cropped * self.preprocessing.crop_fraction).long().clamp(min=1)
            start = _quotient(length - span, 2)
            axes.append(_Axis(start, span, _number(size), _number(0)))
        return axes[0], axes[1]

    def _whole(self, rows: Scalar, columns: Scalar) -> tuple[Scalar, Scalar]:
        """Return the height and width that an image is resized to before it is cropped or padded: `Preprocessing._resized`."""
        if self.preprocessing.resize == "pad":
            height, width = self.preprocessing.image_size
            scale = torch.minimum(height / rows.double(), width / columns.double())
            return torch.round(rows * scale).long().clamp(min=1), torch.round(columns * scale).long().clamp(min=1)
        height, width = self.preprocessing.before_crop
        if self.preprocessing.resize == "squash":
            return _number(height), _number(width)
        if height == width:  # the shorter side becomes that
            shorter = torch.minimum(rows, columns)
            scaled = (_quotient(height * side, shorter) for side in (rows, columns))
            return next(scaled), next(scaled)
        scale = torch.maximum(height / rows.double(), width / columns.double())
        return (
            torch.round(rows * scale).long().clamp(min=height),
            torch.round(columns * scale).long().clamp(min=width),
        )

    def _after(self, length: Scalar, whole: Scalar, size: int) -> _Axis:
        """Return an axis that is cropped after it was resized; an odd pixel goes where the source of the pipeline puts it."""
        beyond = whole - size
        first = _quotient(beyond, 2)
        if self.preprocessing.resampler == "pillow":  # a half is rounded to the even number
            first = first + (beyond % 2) * (first % 2)
        return _Axis(_number(0), length, whole, first)

    def _along(
        self, pixels: Float[Tensor, "batch 3 rows columns"], axis: _Axis, number: int, thin: Bool[Tensor, ""] | None
    ) -> Float[Tensor, "batch 3 outputs columns"]:
        """Return images resized along their rows: products with weights, of which those in 8 bits are rounded to levels.

        A sum of products with such integers does not fit float32; those of their upper and of their lower halves do.
        """
        outputs = torch.arange(self.preprocessing.image_size[number]) + axis.first
        if self.preprocessing.resize == "pad":
            outputs = torch.minimum(outputs, axis.whole - 1)  # beyond, it is filled
        weights = self._weights(axis, outputs, pixels.shape[2])
        if not self.in_8_bits or self.preprocessing.interpolation == "nearest":
            return weights.float() @ pixels
        scale = torch.tensor(2.0**PILLOW_BITS, dtype=torch.float64)
        if self.preprocessing.resampler == "torch":  # the first output's are the largest, since nothing is before it
            scale = _scale(torch.maximum(weights.max(), self._weights(axis, _number(0)[None], pixels.shape[2]).max()))
        integers = torch.sign(weights) * torch.floor(weights.abs() * scale + 0.5)
        upper = torch.floor(integers / HALF)
        carried = torch.floor((integers - HALF * upper).float() @ pixels / HALF)
        if thin is not None:
            upper = torch.where(thin, weights, upper)
        sums, unit = upper.float() @ pixels, (scale / HALF).float()
        levels = torch.floor((sums + carried + unit / 2) / unit).clamp(0, WHITE)
        return levels if thin is None else torch.where(thin, sums, levels)

    def _weights(self, axis: _Axis, outputs: Int64[Tensor, " outputs"], length: int) -> Weights:
        """Return by how much each of an axis's pixels counts for some outputs.

        Positions are in units of 1 / (2 * whole) pixels, in which all of them are whole numbers.
        """
        interpolation = self.preprocessing.interpolation
        output, pixel = outputs[:, None], torch.arange(length)[None, :] - axis.start
        if interpolation == "nearest":  # in float32, as torch: which of two pixels is nearer hangs on it
            nearest = torch.floor((output.float() + 0.5) * (axis.span.float() / axis.whole.float()))
            return (pixel == torch.minimum(nearest.long(), axis.span - 1)).double()
        step = 2 * axis.whole  # from one pixel to the next
        centre = (2 * output + 1) * axis.span - axis.whole  # of an output, from that of the first pixel
        if self.antialias:
            reach = 2 * torch.maximum(axis.span, axis.whole)  # one pixel of the smaller of both images
            distance = (step * pixel - centre).abs()
            weights = (reach - distance).clamp(min=0).double()  # whole numbers, of which every runtime has the same sum
            if interpolation == "bicubic":
                weights = _cubic(distance.double() / reach.double(), SMOOTH)
            weights = weights * ((pixel >= 0) & (pixel < axis.span)).double()
            return weights / weights.sum(dim=1, keepdim=True)
        if interpolation == "bilinear":
            centre = torch.minimum(centre.clamp(min=0), step * (axis.span - 1))
            return (1 - ((step * pixel - centre).double() / step.double()).abs()).clamp(min=0)
        return _four_nearest(centre, step, pixel, axis.span - 1)


def _scale(largest: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return torch's power of two for weights of which this is the largest."""
    powers = 2.0 ** torch.arange(1, PILLOW_BITS + 1, dtype=torch.float64)
    return torch.where(torch.floor(largest * powers + 0.5) < INTEGERS, powers, torch.ones_like(powers)).max()


def _quotient(number: Tensor, divisor: Tensor | int) -> Int64[Tensor, "*axes"]:
    """Return a whole quotient rounded down; what ONNX makes of torch's own is computed in float32."""
    return torch.floor(number.double() / divisor).long()


def _four_nearest(
    centre: Int64[Tensor, "outputs 1"], step: Scalar, pixel: Int64[Tensor, "1 pixels"], last: Scalar
) -> Weights:
    """Return the weights of cubic convolution; pixels beyond the edge are the edge's."""
    before = _quotient(centre + step, step) - 1  # the centre is at most half a pixel before the first
    beyond = (centre - before * step).double() / step.double()
    weights = torch.zeros(1, dtype=torch.float64)
    for tap in (-1, 0, 1, 2):
        here = torch.minimum((before + tap).clamp(min=0), last)
        weights = weights + _cubic((beyond - tap).abs(), SHARP) * (pixel == here).double()
    return weights


def _cubic(distance: Tensor, a: float) -> Tensor:
    """Return Keys's cubic convolution of a distance in pixels, at least 0 (IEEE TASSP 29(6), 1981, equation 4 on)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = (((distance - 5) * distance + 8) * distance - 4) * a
    return torch.where(distance < 1, near, torch.where(distance < 2, far, torch.zeros_like(far)))


def _either(which: Bool[Tensor, ""], first: _Axis, second: _Axis) -> _Axis:
    return _Axis(*(torch.where(which, *both) for both in zip(first, second, strict=True)))


def _number(value: int) -> Scalar:
    return torch.tensor(value, dtype=torch.int64)


def written_network(classifier: Classifier) -> Model:
    """Return the network that a file holds: a copy in float32 on the CPU.

    What the classifier computes in integers is of integers in it, and the tokens that it merges are merged.

    Raises:
        VitralError: The classifier's int8 form is of another network.
    """
    network, predictor = copy_in(classifier.model, torch.float32).cpu(), classifier.predictor
    if predictor.quantization is not None:
        to_integer_layers(network, predictor.quantization)
    if predictor.merge:
        merge_tokens(network, predictor.merge)
    return network


class Answering(nn.Module):
    """Gives what a classifier answers to prepared images, by a copy of its network (`written_network`)."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.network = written_network(classifier)
        self.task = classifier.task
        self.temperature = 1.0 if classifier.calibration is None else classifier.calibration.temperature

    def forward(self, prepared: Images) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch outputs"]]:
        """Return the probabilities and the network's logits."""
        logits = self.network(prepared)
        return self.task.probabilities(logits / self.temperature), logits


class Whole(nn.Module):
    """Does all that a classifier does with decoded images, which are of one size in a batch and of any size otherwise."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.preparation, self.answering = PreparationGraph(classifier.preprocessing), Answering(classifier)

    def forward(
        self, images: UInt8[Tensor, "batch rows columns 3"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch outputs"]]:
        """Return the probabilities and the network's logits."""
        return self.answering(self.preparation(images))


class ClassifierPrograms:
    """The graphs of a classifier, see `Programs`; errors name its network."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self.version = vitral_version()
        self.decoded = torch.zeros(*EXAMPLE, 3, dtype=torch.uint8)

    def preparing(self) -> torch.export.ExportedProgram:
        """Return the graph from decoded images to prepared ones."""
        return self._trace(PreparationGraph(self.classifier.preprocessing), self.decoded, DECODED_AXES)

    def answering(self) -> torch.export.ExportedProgram:
        """Return the graph from prepared images to probabilities and logits."""
        preprocessing = self.classifier.preprocessing
        prepared = torch.zeros(EXAMPLE[0], 3, *preprocessing.image_size)
        return self._trace(Answering(self.classifier), prepared, PREPARED_AXES)

    def whole(self) -> torch.export.ExportedProgram:
        """Return both in one."""
        return self._trace(Whole(self.classifier), self.decoded, DECODED_AXES)

    def _trace(self, module: nn.Module, example: Tensor, axes: Mapping[int, str]) -> torch.export.ExportedProgram:
        predictor, model = self.classifier.predictor, self.classifier.model
        name = predictor.describe()
        if reason := model.config.obstacle_to("export"):
            raise ModelError(f"{name} cannot be written as a graph, which computes the same for all images: {reason}.")
        sizes = {axis: torch.export.Dim(axis_name) for axis, axis_name in axes.items()}
        try:
            with torch.no_grad():
                return torch.export.export(module.eval(), (example,), dynamic_shapes=(sizes,))
        except Exception as error:  # the tracer raises anything, and runs code of plugins
            raise ModelError(f"{name} cannot be written as a graph ({one_line(error)}).") from error

"""How an image becomes a model's input; it travels with the weights."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Float32, Num
from PIL import Image
from torch import Tensor
from torch.nn import functional

from vitral.described import LATER, read_described
from vitral.errors import VitralError
from vitral.images.decode import Pixels
from vitral.images.depth import DEPTHS, FULL, at_depth
from vitral.images.geometry import Crop, Geometry
from vitral.images.geometry import Resize as Resized

Resize = Literal["squash", "crop", "pad"]
Interpolation = Literal["bilinear", "bicubic", "nearest"]
Resampler = Literal["float32", "pillow", "torch"]

PILLOW = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}
LONGEST = 16  # times the model's input size: no image is resized to more before the crop
# The means and standard deviations of ImageNet's training set, which DeiT and most torch models were trained with.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# The same of CLIP's own images.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Resizing and normalisation.

    Attributes:
        image_size: The result's height and width, pixels.
        resize: "squash" resizes the whole image to that size whatever its aspect ratio, as the original does; "crop" keeps
            the aspect ratio and takes a centre crop; "pad" keeps it and shows the whole image in the upper left corner, the
            rest in the mean colour (EoMT's for instances, which pads with black).
        crop_fraction: The share of the resized image's side that the crop keeps, 0 to 1; "pad" does not crop.
        interpolation: "bilinear", "bicubic" or "nearest", with half-pixel centres.
        antialias: Whether shrinking averages over all pixels that it covers.
        mean: The means of the channels red, green, blue, on the scale 0 to 1.
        std: The standard deviations, in the same order and scale.
        resampler: "float32" resizes without rounding, as the original does. "pillow" resizes in 8 bits, as the pipelines of
            timm and torchvision do. "torch" resizes in 8 bits on tensors, as transformers does, and is fastest. The last two
            resize before they crop, and shrink with antialiasing.
        bits: The bits that 16-bit images use, as those that it was trained on do; None where there were none, so that images
            stay as they were read.
    """

    image_size: tuple[int, int] = (224, 224)
    resize: Resize = "squash"
    crop_fraction: float = 1.0
    interpolation: Interpolation = "bilinear"
    antialias: bool = False
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    # Earlier versions did not write this field; they mean its default.
    resampler: Resampler = dataclasses.field(default="float32", metadata=LATER)
    bits: int | None = dataclasses.field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        """Refuse impossible settings."""
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            raise VitralError(f"Preprocessing needs a height and a width of at least 1, not {self.image_size}.")
        choices = ((self.resize, Resize), (self.interpolation, Interpolation), (self.resampler, Resampler))
        for value, kind in choices:
            if value not in get_args(kind):
                raise VitralError(f"Preprocessing does not know '{value}'; it knows {', '.join(get_args(kind))}.")
        if self.bits is not None and self.bits not in DEPTHS:
            raise VitralError(
                f"Preprocessing knows 16-bit images of {', '.join(map(str, DEPTHS))} bits, not {self.bits}."
            )
        if not 0 < self.crop_fraction <= 1 or len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise VitralError(
                "Preprocessing needs a crop fraction above 0 and up to 1, and std above 0 for 3 channels."
            )

    @property
    def mean_colour(self) -> tuple[int, int, int]:
        """The mean as a colour: red, green, blue, 0 to 255."""
        red, green, blue = (min(255, round(255 * channel)) for channel in self.mean)
        return red, green, blue

    @property
    def before_crop(self) -> tuple[int, int]:
        """The height and width before the crop to the model's input, where images are resized before they are cropped."""
        height, width = (math.floor(side / self.crop_fraction + 1e-6) for side in self.image_size)
        return height, width

    def __call__(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return an image as the model's input: resized by `resampler`, then normalised in float32."""
        return self.normalize(self.fit(image)[None])[0]

    def fit(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return an image at the model's input size, values 0 to 255, not yet normalised."""
        height, width = self.image_size
        if self.resize == "pad":
            return self._padded(image)
        if self.bits is not None:
            image = at_depth(image, self.bits)
        if self.resampler != "float32":
            return self._fit_in_8_bits(image)
        pixels = torch.from_numpy(np.ascontiguousarray(self.view(image))).permute(2, 0, 1)[None].float()
        if pixels.shape[-2:] == (height, width):
            return pixels[0]
        return _interpolate(pixels, (height, width), self.interpolation, antialias=self.antialias)[0].clamp_(0, 255)

    def _padded(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        rows, columns = self._resized(image.shape[0], image.shape[1])
        padded = torch.tensor(self.mean_colour, dtype=torch.float32)[:, None, None].repeat(1, *self.image_size)
        padded[:, :rows, :columns] = self.with_size((rows, columns)).whole().fit(image)
        return padded

    def geometry(self, height: int, width: int) -> Geometry:
        """Return the steps that bring an image of that height and width, pixels, to the model's input."""
        rows, columns = self._resized(height, width)
        if self.resize == "pad":
            return Geometry((height, width), (Resized(rows, columns), Crop(0, 0, *self.image_size)))
        if self.resampler == "float32" or self._is_thin(rows, columns):
            return Geometry((height, width), (Crop(*self.box(height, width)), Resized(*self.image_size)))
        return Geometry((height, width), (Resized(rows, columns), Crop(*self._corner(rows, columns), *self.image_size)))

    def _corner(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the first row and the first column of the crop from an image that was resized in 8 bits."""
        rounded = round if self.resampler == "pillow" else int  # each source places an odd pixel differently
        return rounded((rows - self.image_size[0]) / 2), rounded((columns - self.image_size[1]) / 2)

    def _is_thin(self, rows: int, columns: int) -> bool:
        """Tell whether resizing the shorter side of an image would make it so enormous that it is cropped first."""
        return max(rows, columns) > LONGEST * max(self.image_size)

    def _fit_in_8_bits(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        height, width = self.image_size
        rows, columns = self._resized(image.shape[0], image.shape[1])
        if self._is_thin(rows, columns):  # where the sources would fail
            return dataclasses.replace(self, resampler="float32", antialias=True).fit(image)
        if self.resampler == "pillow":
            resized = np.asarray(Image.fromarray(image).resize((columns, rows), PILLOW[self.interpolation]))
            pixels = torch.from_numpy(resized.copy()).permute(2, 0, 1)
        else:
            whole_image = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
            pixels = _interpolate(whole_image, (rows, columns), self.interpolation, antialias=True)[0]
        top, left = self._corner(rows, columns)
        return pixels[:, top : top + height, left : left + width].float()

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that an image is resized to before it is cropped or padded."""
        if self.resize == "pad":
            scale = min(self.image_size[0] / height, self.image_size[1] / width)
            return max(1, round(height * scale)), max(1, round(width * scale))
        rows, columns = self.before_crop
        if self.resize == "squash":
            return rows, columns
        if rows == columns:  # the shorter side to the size; the longer side rounded down, as torchvision does
            return (rows, int(rows * width / height)) if height <= width else (int(columns * height / width), columns)
        scale = max(rows / height, columns / width)
        return max(rows, round(height * scale)), max(columns, round(width * scale))

    def view(self, image: Pixels) -> Pixels:
        """Return the part of an image that the model sees, at the image's own resolution."""
        top, left, height, width = self.box(image.shape[0], image.shape[1])
        return image[top : top + height, left : left + width]

    def box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the box that the model sees of an image of that height and width: top, left, height, width, in pixels."""
        crop_height, crop_width = float(height), float(width)
        if self.resize == "crop":  # a centre crop of the target's aspect ratio, so that one resize is enough
            ratio = self.image_size[0] / self.image_size[1]
            crop_height = min(height, width * ratio)
            crop_width = crop_height / ratio
        fraction = 1.0 if self.resize == "pad" else self.crop_fraction
        rows, columns = (max(1, round(side * fraction)) for side in (crop_height, crop_width))
        return (height - rows) // 2, (width - columns) // 2, rows, columns

    def normalize(self, images: Num[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        """Return images of values 0 to 255 normalised by mean and standard deviation, on their own device."""
        mean = torch.tensor([255 * value for value in self.mean], device=images.device).view(3, 1, 1)
        scale = torch.tensor([1 / (255 * value) for value in self.std], device=images.device).view(3, 1, 1)
        return (images.float() - mean) * scale

    def with_size(self, image_size: int | tuple[int, int]) -> "Preprocessing":
        """Return the same preprocessing for another size, an int or (height, width), pixels."""
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        return dataclasses.replace(self, image_size=size)

    def whole(self) -> "Preprocessing":
        """Return the same preprocessing of the whole image: nothing is cropped."""
        return dataclasses.replace(self, resize="squash", crop_fraction=1.0)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Preprocessing":
        """Return what `to_json` wrote, or raise VitralError if a field is unknown, missing or impossible."""
        # Earlier versions did not write the bits, and took all 16-bit images to use 16.
        stated = {"bits": FULL, **values} if isinstance(values, Mapping) else values
        return read_described(cls, stated, "Preprocessing")


def _interpolate(pixels: Tensor, size: tuple[int, int], interpolation: Interpolation, *, antialias: bool) -> Tensor:
    if interpolation == "nearest":
        return functional.interpolate(pixels, size=size, mode="nearest-exact")
    return functional.interpolate(pixels, size=size, mode=interpolation, align_corners=False, antialias=antialias)


# vit_jax/input_pipeline.py at test time: the whole image to a square, bilinear without antialiasing, to [-1, 1].
ORIGINAL = Preprocessing()
# The same for photos of any size, where shrinking without antialiasing would pick single pixels. It works in 8 bits, as
# transformers' processor for these models does, which is several times faster.
PHOTOS = Preprocessing(antialias=True, resampler="torch")

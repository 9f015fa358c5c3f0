"""How a picture becomes a network's input; it travels with the weights."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Num
from torch import Tensor
from torch.nn import functional

from vitral.errors import VitralError, did_you_mean
from vitral.images.decode import Pixels

Resize = Literal["squash", "crop"]
Interpolation = Literal["bilinear", "bicubic", "nearest"]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Resize and normalisation.

    Attributes:
        image_size: height and width of the result, pixels.
        resize: "squash" takes the whole picture to that size whatever its shape, as the original does; "crop" keeps the
            shape and takes the middle.
        crop_fraction: with "crop", the share of the resized picture's side that is kept, 0 to 1.
        interpolation: "bilinear", "bicubic" or "nearest", with half-pixel centres.
        antialias: whether shrinking averages over all pixels that it covers.
        mean: of the channels red, green, blue, on the scale 0 to 1.
        std: likewise.
    """

    image_size: tuple[int, int] = (224, 224)
    resize: Resize = "squash"
    crop_fraction: float = 1.0
    interpolation: Interpolation = "bilinear"
    antialias: bool = False
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        """Refuse what no picture can go through."""
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            raise VitralError(f"Preprocessing needs a height and a width of at least 1, not {self.image_size}.")
        if self.resize not in ("squash", "crop") or self.interpolation not in ("bilinear", "bicubic", "nearest"):
            raise VitralError(f"Preprocessing does not know '{self.resize}' with '{self.interpolation}'.")
        if not 0 < self.crop_fraction <= 1 or len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise VitralError(
                "Preprocessing needs a crop fraction above 0 and up to 1, and std above 0 for 3 channels."
            )

    def __call__(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return a picture as the network's input: resized in float32 without rounding, then normalised."""
        return self.normalize(self.fit(image)[None])[0]

    def fit(self, image: Pixels) -> Float32[Tensor, "3 height width"]:
        """Return a picture at the network's size, values 0 to 255, not yet normalised."""
        height, width = self.image_size
        pixels = torch.from_numpy(np.ascontiguousarray(self.view(image))).permute(2, 0, 1)[None].float()
        if pixels.shape[-2:] == (height, width):
            return pixels[0]
        if self.interpolation == "nearest":
            return functional.interpolate(pixels, size=(height, width), mode="nearest-exact")[0]
        resized = functional.interpolate(
            pixels, size=(height, width), mode=self.interpolation, align_corners=False, antialias=self.antialias
        )
        return resized[0].clamp_(0, 255)

    def view(self, image: Pixels) -> Pixels:
        """Return the part of a picture that the network sees, at the picture's own resolution."""
        if self.resize == "squash":
            return image
        height, width = self.image_size
        return _crop_to_shape(image, height / width, self.crop_fraction)

    def normalize(self, images: Num[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        """Return images of values 0 to 255 with mean and standard deviation taken out, on their own device."""
        mean = torch.tensor([255 * value for value in self.mean], device=images.device).view(3, 1, 1)
        scale = torch.tensor([1 / (255 * value) for value in self.std], device=images.device).view(3, 1, 1)
        return (images.float() - mean) * scale

    def with_size(self, image_size: int | tuple[int, int]) -> "Preprocessing":
        """Return the same preprocessing for another size, an int or (height, width), pixels."""
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        return dataclasses.replace(self, image_size=size)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Preprocessing":
        """Return what `to_json` wrote.

        Raises:
            VitralError: a field is unknown, missing or impossible.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise VitralError(f"Preprocessing has an unknown field '{name}'.{did_you_mean(name, known)}")
        if missing := [name for name in known if name not in values]:
            raise VitralError(f"Preprocessing lacks the field '{missing[0]}'.")
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        try:
            return cls(**fields)
        except (TypeError, ValueError) as error:
            raise VitralError(f"Preprocessing has a field of the wrong type ({error}).") from error


def _crop_to_shape(image: Pixels, shape: float, fraction: float) -> Pixels:
    """Cut the middle of the wanted height-to-width shape out of the full picture, so that one resize is enough."""
    height, width = image.shape[:2]
    crop_height = min(height, width * shape) * fraction
    crop_width = crop_height / shape
    rows, columns = max(1, round(crop_height)), max(1, round(crop_width))
    top, left = (height - rows) // 2, (width - columns) // 2
    return image[top : top + rows, left : left + columns]


# vit_jax/input_pipeline.py at test time: the whole picture to the square, bilinear without antialiasing, to [-1, 1].
ORIGINAL = Preprocessing()
# The same for photos of any size, where shrinking without antialiasing would pick single pixels.
PHOTOS = Preprocessing(antialias=True)

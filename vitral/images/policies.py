"""Augmentation policies, each as in the code that it is named after; every draw comes from a given generator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from PIL import Image

from vitral import plugins
from vitral.errors import PluginError
from vitral.images import pillow_operations, tensorflow_operations
from vitral.images.decode import Pixels
from vitral.images.geometry import Steps
from vitral.images.pillow_operations import OPERATIONS, Canvas, Colour

POLICIES = ("none", "timm-randaugment", "big-vision-randaugment", "autoaugment", "three-augment", "multi-view")
Policy = str  # a name above, or a plugin's
Interpolation = Literal["bilinear", "bicubic", "random"]
Share = Annotated[float, Ge(0), Le(1)]
Zoom = Annotated[float, Ge(0.05), Le(8)]
Moved = tuple[Image.Image, Steps]  # an image and where its pixels went
Value = Callable[[float, int], float]  # an operation's value, from the magnitude and a sign

STRONGEST = 10  # the magnitude at which AutoAugment's paper sets the largest change
# timm clamps to the largest magnitude, big_vision documents its range.
LARGEST = {"timm-randaugment": STRONGEST, "big-vision-randaugment": 30}
BITS = 8  # per value
PROBABILITY = 0.5  # with which timm applies an operation that it has drawn
# Pixels at magnitude 10 in big_vision's RandAugment.
TRANSLATE = 100
CUTOUT = 40
GREY = (128, 128, 128)  # the colour beyond the edge in AutoAugment's paper
BLUR_RADIUS = (0.1, 2.0)  # pixels, of three-augment
# The shares of multi-view's views that are changed, and the strengths.
JITTERED = 0.8
GREYED = 0.2
BLURRED = 0.5
SOLARISED = 0.2 * 0.5  # the source applies RandomSolarize to one in five, which itself leaves out one in two
JITTER = 0.8
HUE = 0.2
SIGMA = (0.1, 2.0)
BLENDS = ("Color", "Contrast", "Brightness", "Sharpness")  # operations that blend an image with another
RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
PLAIN = Canvas(GREY, RESAMPLING["bilinear"])  # for operations that move no pixel


def _none(share: float, sign: int) -> float:
    return 0.0


def _either_way(largest: float) -> Value:
    return lambda share, sign: sign * share * largest


def _counted(largest: float) -> Value:
    # In single precision, because torchvision's rounding changes a few values.
    return lambda number, sign: sign * float(torch.linspace(0.0, largest, 10)[int(number)])


def _enhanced(share: float, sign: int) -> float:
    return max(0.1, 1 + sign * share * 0.9)


def _blended(share: float, sign: int) -> float:
    return share * 1.8 + 0.1


UNVALUED = dict.fromkeys(("AutoContrast", "Equalize", "Invert"), _none)
MOVES: Mapping[str, Value] = {
    **UNVALUED,
    "Rotate": _either_way(30),  # degrees
    "ShearX": _either_way(0.3),
    "ShearY": _either_way(0.3),
}
# timm's data/auto_augment.py, the operations that grow with the magnitude ("inc1").
TIMM: Mapping[str, Value] = {
    **MOVES,
    "Posterize": lambda share, sign: 4 - int(share * 4),
    "Solarize": lambda share, sign: 256 - min(256, int(share * 256)),
    "SolarizeAdd": lambda share, sign: min(128, int(share * 110)),
    **dict.fromkeys(BLENDS, _enhanced),
    "TranslateX": _either_way(0.45),  # of the width
    "TranslateY": _either_way(0.45),  # of the height
}
# big_vision's pp/autoaugment.py: posterize weakens as the magnitude grows, and blends extrapolate beyond the image.
BIG_VISION: Mapping[str, Value] = {
    **MOVES,
    "Posterize": lambda share, sign: int(share * 4),
    "Solarize": lambda share, sign: int(share * 256),
    "SolarizeAdd": lambda share, sign: int(share * 110),
    **dict.fromkeys(BLENDS, _blended),
    "TranslateX": _either_way(TRANSLATE),
    "TranslateY": _either_way(TRANSLATE),
    "Cutout": lambda share, sign: int(share * CUTOUT),
}
# torchvision's, where the magnitudes of AutoAugment's paper run from 0 to 9.
AUTOAUGMENT: Mapping[str, Value] = {
    **UNVALUED,
    "Rotate": _counted(30),
    "ShearX": _counted(0.3),
    "Posterize": lambda number, sign: BITS - round(number / 9 * 4),
    "Solarize": lambda number, sign: 255 - _counted(255)(number, 1),
    **dict.fromkeys(("Color", "Contrast", "Sharpness"), lambda number, sign: 1 + _counted(0.9)(number, sign)),
}
# AutoAugment's policy for ImageNet (arXiv 1805.09501, Table 9): operation, probability, magnitude, twice.
PolicyStep = tuple[str, float, int]
IMAGENET: tuple[tuple[PolicyStep, PolicyStep], ...] = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, 4), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, 7)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, 2)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, 8), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, 2)),
    (("Equalize", 0.0, 7), ("Equalize", 0.8, 8)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, 8)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, 9)),
    (("Color", 0.4, 0), ("Equalize", 0.6, 3)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How a training image varies.

    Attributes:
        crop: The rule by which the view is cut out. "inception": a random box by TensorFlow's rule (the original's).
            "resized": a random box by torchvision's rule (DeiT's). "square": a random crop after a resize to a square of
            `margin` times the size (BiT's). "padded": a random crop after the shorter side is resized to the size and
            `padding` is added on all sides (DeiT III's simple random crop, and CIFAR's shift). "scale-jitter": a random crop
            after the image, as it fits into the view, is resized by a random factor of `scales`; where it is smaller than the
            view then, the view is filled up on the right and at the bottom (large-scale jitter, arXiv 2012.07177; EoMT's).
            "squash-jitter": the same of the image resized to the view, whatever its aspect ratio, as it is squashed in use.
            "centre": the middle, after the shorter side is resized to `margin` times the size, as many networks see images in
            use. "none": the whole image.
        min_area: The least share of the image that a box keeps, 0 to 1.
        margin: The side of what "square" and "centre" crop from, as a multiple of the size; about 8/7.
        padding: The border that "padded" adds on each side, as a share of the side.
        scales: The least and the largest factor of the two jitters, evenly spread.
        border: The content of that border: "reflect" mirrors the image, "black" leaves it black.
        interpolation: "bilinear", "bicubic", or "random", which draws one of the two. It antialiases as Pillow does, except
            for "bilinear" with the crops "inception" and "none", where only whole factors are averaged.
        decode: "full" decodes every image whole. "scaled" decodes a large JPEG no larger than the view needs, which is
            several times faster and changes pixels slightly. "kept" decodes each image once, shrinks it to what most views
            need and keeps it in memory (see `kept_shape`); small images give the same views as with "full".
        flip: Whether half of the views are mirrored left to right, at random. "alternating" draws once an image and
            mirrors it in every second pass over the data (arXiv 2404.00498, section 3.6).
        vertical_flip: Whether half of the views are turned upside down, at random.
        shift: The largest move, as a share of the side.
        rotate: The largest turn, degrees.
        scale: The largest zoom in or out, as a share.
        policy: "timm-randaugment" (timm's "rand-m9-mstd0.5-inc1" and its like), "big-vision-randaugment" (AugReg's, CoAtNet's
            and V-MoE's), "autoaugment" (torchvision's, for ImageNet), "three-augment" (DeiT III's),
            "multi-view" (LeJEPA's: colours with the hue, grey, blur, solarisation), "none", or a plugin's.
        operations: The number of operations that a RandAugment applies in sequence.
        magnitude: The magnitude of a RandAugment. 10 is the strongest of AutoAugment; timm's ends there, big_vision's at 30.
        magnitude_std: The standard deviation of the magnitude between operations, in timm's RandAugment.
        jitter: The largest change of brightness, contrast and saturation, as a share.
        erasing: The share of the images in which a random box is replaced by noise.
        repeats: The number of views of an image in one batch (repeated augmentation).
    """

    crop: Literal["inception", "resized", "square", "padded", "scale-jitter", "squash-jitter", "centre", "none"] = (
        "inception"
    )
    min_area: Annotated[float, Ge(0.0001), Le(1)] = 0.05
    margin: Annotated[float, Ge(1), Le(4)] = 8 / 7
    padding: Share = 0.125
    scales: tuple[Zoom, Zoom] = (0.5, 2.0)
    border: Literal["reflect", "black"] = "reflect"
    interpolation: Interpolation = "bilinear"
    decode: Literal["full", "scaled", "kept"] = "full"
    flip: bool | Literal["alternating"] = True
    vertical_flip: bool = False
    shift: Share = 0.0
    rotate: Annotated[float, Ge(0), Le(180)] = 0.0
    scale: Annotated[float, Ge(0), Le(0.99)] = 0.0
    policy: Policy = "none"
    operations: Annotated[int, Ge(1), Le(10)] = 2
    magnitude: Annotated[float, Ge(0)] = 9.0
    magnitude_std: Annotated[float, Ge(0), Le(100)] = 0.0
    jitter: Share = 0.0
    erasing: Share = 0.0
    repeats: Annotated[int, Ge(1), Le(100)] = 1

    def __post_init__(self) -> None:
        """Refuse an unknown policy, a magnitude that its source does not define, or no range, by a `ValueError`."""
        check_policy(self.policy, self.magnitude, self.magnitude_std)
        if self.scales[0] > self.scales[1]:
            raise ValueError(
                f"scales go from the least to the largest, not from {self.scales[0]:g} to {self.scales[1]:g}"
            )


def check_policy(policy: Policy, magnitude: float, magnitude_std: float) -> None:
    """Refuse an unknown policy, and a magnitude that the policy's source does not define, by a ValueError."""
    known = (*POLICIES, *plugins.registered("augmentation"))
    if policy not in known:
        raise ValueError(f"there is no policy '{policy}'; there are {', '.join(known)}")
    largest = LARGEST.get(policy)
    if largest is not None and not 0 <= magnitude <= largest:
        raise ValueError(f"{policy} takes magnitudes from 0 to {largest}, not {magnitude:g}")
    if policy == "big-vision-randaugment" and magnitude_std:
        raise ValueError("big-vision-randaugment has one magnitude for all images; leave magnitude_std out")


Change = Callable[[Image.Image, Augmentation, np.random.Generator], Moved]


def apply_policy(
    image: Pixels, how: Augmentation, rng: np.random.Generator, fill: Colour = GREY
) -> tuple[Pixels, Steps]:
    """Return an image changed by a policy, and where its pixels went; a pure function of the arguments.

    Args:
        image: The image.
        how: The augmentation, of which its policy, what belongs to that, and the interpolation count.
        rng: The generator of every random choice.
        fill: The colour that timm's RandAugment puts beyond the edge: red, green, blue, 0 to 255.
    """
    if how.policy == "none":
        return image, ()
    if own := plugins.registered("augmentation").get(how.policy):
        return _checked(own(image, rng), image, how.policy)
    if how.policy == "big-vision-randaugment":
        return _big_vision_randaugment(image, how, rng)
    changes: Mapping[str, Change] = {
        "timm-randaugment": partial(_timm_randaugment, fill=fill),
        "autoaugment": _autoaugment,
        "three-augment": _three_augment,
        "multi-view": _multi_view,
    }
    changed, steps = changes[how.policy](Image.fromarray(image), how, rng)
    return np.asarray(changed), steps


def _checked(returned: object, image: Pixels, policy: Policy) -> tuple[Pixels, Steps]:
    """Check that a plugin returned an image like its input, alone or with the steps that moved its pixels."""
    changed, steps = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, ())
    if isinstance(changed, np.ndarray) and changed.dtype == np.uint8 and changed.shape == image.shape:
        return changed, tuple(steps)
    what = f"{changed.dtype} {changed.shape}" if isinstance(changed, np.ndarray) else f"a {type(changed).__name__}"
    raise PluginError(f"The augmentation '{policy}' returns {what}; it must return an array of uint8 {image.shape}.")


def jitter(image: Pixels, strength: float, rng: np.random.Generator) -> Pixels:
    """Change brightness, contrast and saturation in random order, each by up to the fraction `strength` (torchvision's)."""
    changed = Image.fromarray(image)
    factors = rng.uniform(max(0.0, 1 - strength), 1 + strength, 3)
    for index in rng.permutation(3):
        changed = _enhance(changed, int(index), float(factors[index]))
    return np.asarray(changed)


def _enhance(image: Image.Image, number: int, factor: float) -> Image.Image:
    """Change brightness (0), contrast (1) or saturation (2) by a factor."""
    name = ("Brightness", "Contrast", "Color")[number]
    return OPERATIONS[name](image, factor, PLAIN)


def _timm_randaugment(image: Image.Image, how: Augmentation, rng: np.random.Generator, *, fill: Colour) -> Moved:
    names = tuple(TIMM)
    steps: Steps = ()
    for number in rng.integers(len(names), size=how.operations):
        if rng.random() >= PROBABILITY:
            continue
        magnitude = rng.normal(how.magnitude, how.magnitude_std)
        share = min(max(magnitude, 0), STRONGEST) / STRONGEST
        name = names[number]
        value = TIMM[name](share, _sign(rng))
        if name in ("TranslateX", "TranslateY"):
            value *= image.width if name == "TranslateX" else image.height
        steps = (*steps, *pillow_operations.steps_of(name, value, image.size))
        canvas = Canvas(fill, RESAMPLING[drawn_interpolation(how.interpolation, rng)])
        image = OPERATIONS[name](image, value, canvas)
    return image, steps


def _big_vision_randaugment(image: Pixels, how: Augmentation, rng: np.random.Generator) -> tuple[Pixels, Steps]:
    names = tuple(BIG_VISION)
    steps: Steps = ()
    share = how.magnitude / STRONGEST
    for number in rng.integers(len(names), size=how.operations):
        name = names[number]
        value = BIG_VISION[name](share, _sign(rng))
        if name == "Cutout":
            row, column = (int(rng.integers(side)) for side in image.shape[:2])
            image = tensorflow_operations.cutout(image, int(value), row, column)
        else:
            steps = (*steps, *tensorflow_operations.steps_of(name, value, image.shape[:2]))
            image = tensorflow_operations.OPERATIONS[name](image, value)
    return image, steps


def _autoaugment(image: Image.Image, how: Augmentation, rng: np.random.Generator) -> Moved:
    steps: Steps = ()
    for name, probability, strength in IMAGENET[rng.integers(len(IMAGENET))]:
        if rng.random() < probability:
            value = AUTOAUGMENT[name](strength, _sign(rng))
            steps = (*steps, *pillow_operations.steps_of(name, value, image.size))
            canvas = Canvas(GREY, RESAMPLING[drawn_interpolation(how.interpolation, rng)])
            image = OPERATIONS[name](image, value, canvas)
    return image, steps


def _three_augment(image: Image.Image, how: Augmentation, rng: np.random.Generator) -> Moved:
    """Turn grey, solarise or blur with equal probability (DeiT III, arXiv 2204.07118; augment.py)."""
    choice = rng.integers(3)
    if choice == 0:
        return pillow_operations.grey(image), ()
    if choice == 1:
        return OPERATIONS["Solarize"](image, pillow_operations.HALF, PLAIN), ()
    return pillow_operations.blur(image, rng.uniform(*BLUR_RADIUS)), ()


def _multi_view(image: Image.Image, how: Augmentation, rng: np.random.Generator) -> Moved:
    """Change colours, grey, blur and solarise, each at random (LeJEPA's MINIMAL.md, which takes them from torchvision)."""
    if rng.random() < JITTERED:
        factors = rng.uniform(1 - JITTER, 1 + JITTER, 3)
        shift = rng.uniform(-HUE, HUE)
        for index in rng.permutation(4):
            image = (
                _enhance(image, int(index), float(factors[index])) if index < 3 else pillow_operations.hue(image, shift)
            )
    if rng.random() < GREYED:
        image = pillow_operations.grey(image)
    if rng.random() < BLURRED:
        image = pillow_operations.gaussian_blur(image, rng.uniform(*SIGMA))
    if rng.random() < SOLARISED:
        image = OPERATIONS["Solarize"](image, pillow_operations.HALF, PLAIN)
    return image, ()


def _sign(rng: np.random.Generator) -> int:
    return 1 if rng.random() < 0.5 else -1


def drawn_interpolation(interpolation: Interpolation, rng: np.random.Generator) -> str:
    """Return the interpolation itself; for "random" one of the two, drawn."""
    if interpolation == "random":
        return "bicubic" if rng.random() < 0.5 else "bilinear"
    return interpolation

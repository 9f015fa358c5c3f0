"""Augmentation policies, by torchvision's own transforms on uint8 tensors, seeded so that a picture's draw can be repeated."""

import torch
from jaxtyping import UInt8
from torch import Tensor
from torchvision.transforms import v2

from vitral.images.augment import Policy

Image = UInt8[Tensor, "3 height width"]

STRONGEST = 10  # the level at which AutoAugment's paper sets the largest change
LEVELS = 30  # to where RandAugment's magnitudes may go on, three times as far
PARTS = 10  # steps between two levels, so that a magnitude need not be whole
GREY = (128, 128, 128)  # what comes in from beyond the edge
BLUR_RADIUS = (0.1, 2.0)  # pixels, of three-augment


def _spread(largest: float) -> Tensor:
    return torch.linspace(0.0, largest * LEVELS / STRONGEST, LEVELS * PARTS + 1)


class RandAugment(v2.RandAugment):  # type: ignore[misc]  # torchvision is untyped
    """RandAugment on the scale of its paper and of DeiT's "rand-m9-mstd0.5-inc1": level 10 turns by 30 degrees.

    torchvision's own scale has 30 for that, and its solarize and posterize grow likewise; so a published magnitude would be
    three times too weak there.
    """

    _AUGMENTATION_SPACE = {  # torchvision's own name for it
        "AutoContrast": (lambda bins, height, width: None, False),
        "Equalize": (lambda bins, height, width: None, False),
        "Rotate": (lambda bins, height, width: _spread(30.0), True),
        "Posterize": (lambda bins, height, width: (8 - _spread(4.0)).clamp(1, 8).round().int(), False),
        "Solarize": (lambda bins, height, width: (1 - _spread(1.0)).clamp(0, 1), False),
        "Color": (lambda bins, height, width: _spread(0.9), True),
        "Contrast": (lambda bins, height, width: _spread(0.9), True),
        "Brightness": (lambda bins, height, width: _spread(0.9), True),
        "Sharpness": (lambda bins, height, width: _spread(0.9), True),
        "ShearX": (lambda bins, height, width: _spread(0.3), True),
        "ShearY": (lambda bins, height, width: _spread(0.3), True),
        "TranslateX": (lambda bins, height, width: _spread(0.45 * width).clamp(max=0.9 * width), True),
        "TranslateY": (lambda bins, height, width: _spread(0.45 * height).clamp(max=0.9 * height), True),
    }

    def __init__(self, operations: int, magnitude: float) -> None:
        bins = LEVELS * PARTS + 1
        super().__init__(
            num_ops=operations,
            magnitude=round(magnitude * PARTS),
            num_magnitude_bins=bins,
            interpolation=v2.InterpolationMode.BILINEAR,
            fill=list(GREY),
        )


def apply_policy(image: Image, policy: Policy, *, operations: int, magnitude: float, jitter: float, seed: int) -> Image:
    """Return a picture changed by a policy and then by colour jitter, a pure function of the arguments.

    Args:
        image: values 0 to 255.
        policy: which one.
        operations: of RandAugment.
        magnitude: of RandAugment, 0 to 30.
        jitter: the largest change of brightness, contrast and saturation, as a share.
        seed: of every draw.
    """
    # torchvision draws from torch's own generator, which belongs to others.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if policy == "randaugment":
            image = RandAugment(operations, magnitude)(image)
        elif policy == "autoaugment":
            image = v2.AutoAugment(v2.AutoAugmentPolicy.IMAGENET, v2.InterpolationMode.BILINEAR, fill=list(GREY))(image)
        elif policy == "three-augment":
            image = _three_augment(image)
        if jitter:
            image = v2.ColorJitter(brightness=jitter, contrast=jitter, saturation=jitter)(image)
    return image


def _three_augment(image: Image) -> Image:
    """Turn grey, solarise or blur, each as likely (DeiT III, arXiv 2204.07118; augment.py)."""
    choice = int(torch.randint(3, ()))
    if choice == 0:
        return v2.functional.rgb_to_grayscale(image, num_output_channels=3)
    if choice == 1:
        return v2.functional.solarize(image, threshold=128)
    low, high = BLUR_RADIUS
    sigma = low + (high - low) * float(torch.rand(()))
    side = 2 * round(3 * sigma) + 1
    side = min(side, 2 * (min(image.shape[-2:]) // 2) - 1)  # a kernel may not be wider than what it is laid over
    return image if side < 3 else v2.functional.gaussian_blur(image, [side, side], [sigma, sigma])

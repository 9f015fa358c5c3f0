"""Augmentation of a whole batch on its device: random erasing as timm has it, then MixUp or CutMix by torchvision."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitral.objectives.classification import Targets
from vitral.seeds import derive, generator
from vitral.training.settings.sections import MixingSettings

Images = Float[Tensor, "batch 3 height width"]
ERASED_AREA = (0.02, 1 / 3)
ERASED_ASPECT = 0.3
ATTEMPTS = 10


def erase(images: Images, share: float, *, seed: int, step: int, first: int, batch_size: int) -> Images:
    """Replace a random box in a share of the images by normal noise, in place, as timm's `RandomErasing` in mode "pixel".

    Each image's box is a function of (seed, step, its place in the whole batch). The box covers 2 % to a third of the
    image, uniformly; the logarithm of its aspect is uniform from 0.3 to 1 / 0.3 (arXiv 1708.04896).

    Args:
        images: The normalised images.
        share: The share of the images that lose a box.
        seed: The run's seed.
        step: The run's step.
        first: The first image's place in the whole batch.
        batch_size: The number of images in the whole batch.
    """
    for row, image in enumerate(images):
        rng = generator(seed, "erasing", step, (first + row) % batch_size)
        box = _erased_box(image.shape[1], image.shape[2], rng) if rng.random() < share else None
        if box is not None:
            top, left, height, width = box
            noise = torch.from_numpy(rng.standard_normal((3, height, width), dtype=np.float32))
            image[:, top : top + height, left : left + width] = noise.to(images.device)
    return images


def _erased_box(rows: int, columns: int, rng: np.random.Generator) -> tuple[int, int, int, int] | None:
    for _ in range(ATTEMPTS):
        area = rows * columns * rng.uniform(*ERASED_AREA)
        aspect = math.exp(rng.uniform(math.log(ERASED_ASPECT), -math.log(ERASED_ASPECT)))
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if height < rows and width < columns:
            return int(rng.integers(rows - height + 1)), int(rng.integers(columns - width + 1)), height, width
    return None


class Mixer:
    """Mixes every image and its label with the image before it in the batch.

    Args:
        settings: The strengths of MixUp and CutMix; if both are set, each batch takes either at random (DeiT).
        num_classes: The number of classes.
        seed: The run's seed.
    """

    def __init__(self, settings: MixingSettings, *, num_classes: int, seed: int) -> None:
        from torchvision.transforms import v2  # takes a second, which only mixing needs

        kinds = ((v2.MixUp, settings.mixup), (v2.CutMix, settings.cutmix))
        # Labels that are already shares of the classes are mixed as they are.
        self.transforms = [kind(alpha=alpha, num_classes=num_classes) for kind, alpha in kinds if alpha]
        self.seed = seed

    def __call__(self, images: Images, labels: Targets, *, step: int) -> tuple[Images, Float[Tensor, "batch classes"]]:
        """Return the mixed images and labels of a batch; its first image is only the second image's partner.

        The draws are a function of (seed, step), the same for every process that has a part of the batch.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.seed, "mixing", step))
            transform = self.transforms[int(torch.randint(len(self.transforms), ()))]
            mixed, shares = transform(images, labels)
        return mixed[1:], shares[1:]


def mixes(settings: MixingSettings) -> bool:
    """Tell whether images are mixed."""
    return bool(settings.mixup or settings.cutmix)

"""A method's view of a batch: its images normalised, erased and mixed on the device.

Random erasing is as timm has it; MixUp and CutMix are torchvision's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vitral.data.batch import Batch
from vitral.images.augment import Augmentation
from vitral.models.layers import BatchPart
from vitral.seeds import derive, generator
from vitral.tasks.task import Targets
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import MixingSettings, mixes

Images = Float[Tensor, "batch 3 height width"]
ERASED_AREA = (0.02, 1 / 3)
ERASED_ASPECT = 0.3
ATTEMPTS = 10
Normalize = Callable[[Tensor], Tensor]


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


@dataclass(frozen=True)
class View:
    """The settings of a view that a method has of every image.

    Attributes:
        augmentation: The augmentation; None for the recipe's.
        mixed: Whether images are mixed, if the recipe mixes.
        changes: The changed settings of the augmentation, by name.
    """

    augmentation: Augmentation | None = None
    mixed: bool = True
    changes: Mapping[str, Any] = field(default_factory=dict)

    def of(self, augmentation: Augmentation) -> Augmentation:
        """Return the view's augmentation in a recipe with `augmentation`."""
        return replace(self.augmentation or augmentation, **self.changes)


@dataclass(frozen=True)
class ExtraSource:
    """Images that a method learns from besides the labelled images; their labels are not read.

    Attributes:
        data: The data's name, as `open_data` takes it.
        batch_size: The number of images per step, over all processes.
        views: The views of each image; they are never mixed.
    """

    data: str
    batch_size: int
    views: tuple[View, ...] = (View(mixed=False),)


@dataclass(frozen=True)
class Seen:
    """A view of some images, ready for the network.

    Attributes:
        images: The normalised images.
        pixels: The images before normalisation, values 0 to 255.
        targets: The labels as their task encodes them, or shares of the classes if images were mixed; -1 if labels are not
            read.
    """

    images: Float[Tensor, "batch 3 height width"]
    pixels: UInt8[Tensor, "batch 3 height width"]
    targets: Targets


@dataclass(frozen=True)
class Part:
    """Some images of a batch, ready for the network.

    Attributes:
        views: The views of the images, in the order of `Method.views`.
        of_batch: The images' place in the whole batch.
        extra: The images of further sources, by the source's name.
    """

    views: tuple[Seen, ...]
    of_batch: BatchPart
    extra: Mapping[str, "Part"] = field(default_factory=dict)

    @property
    def images(self) -> Float[Tensor, "batch 3 height width"]:
        """The first view, normalised."""
        return self.views[0].images

    @property
    def pixels(self) -> UInt8[Tensor, "batch 3 height width"]:
        """The first view, values 0 to 255."""
        return self.views[0].pixels

    @property
    def targets(self) -> Targets:
        """The first view's labels."""
        return self.views[0].targets


class BatchPreparation:
    """Brings batches to the device; normalises, erases and mixes them there.

    Args:
        recipe: The settings.
        views: The views that the method has of each image.
        normalize: The function from values 0 to 255 to the network's input.
        num_classes: The number of classes.
        device: The network's device.
    """

    def __init__(
        self, recipe: Recipe, views: Sequence[View], normalize: Normalize, *, num_classes: int, device: torch.device
    ) -> None:
        self.recipe, self.views, self.normalize, self.device = recipe, views, normalize, device
        self.mixer = None
        if mixes(recipe.mixing):
            self.mixer = Mixer(recipe.mixing, num_classes=num_classes, seed=recipe.seed)

    def __call__(self, batch: Batch, step: int) -> Part:
        """Return a batch, or a part of it, as the method learns from it; a function of seed and step."""
        seed = self.recipe.seed
        extra = {
            name: Part(
                self._views(other, step, derive(seed, f"extra {name}"), None), BatchPart(other.first, other.total)
            )
            for name, other in batch.extra.items()
        }
        return Part(self._views(batch, step, seed, self.mixer), BatchPart(batch.first, batch.total), extra)

    def _views(self, batch: Batch, step: int, seed: int, mixer: Mixer | None) -> tuple[Seen, ...]:
        seen = []
        for number, values in enumerate((batch.images, *batch.more)):
            pixels = values.to(self.device, non_blocking=True)
            targets = batch.labels.to(self.device, non_blocking=True)
            images = self.normalize(pixels)
            if share := batch.erasing[number]:
                own = derive(seed, "view", number) if number else seed
                first = batch.first - batch.partner
                images = erase(images, share, seed=own, step=step, first=first, batch_size=batch.total)
            if mixer is not None and self.views[number].mixed:
                images, targets = mixer(images, targets, step=step)
            elif batch.partner:
                images, targets = images[1:], targets[1:]
            seen.append(Seen(images, pixels[batch.partner :], targets))
        return tuple(seen)

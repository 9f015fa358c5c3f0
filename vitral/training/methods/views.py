"""A method's view of a batch: its images normalised, erased and mixed on the device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vitral.data.batch import Batch
from vitral.images.augment import Augmentation
from vitral.models.stochastic_depth import BatchPart
from vitral.seeds import derive
from vitral.tasks.task import Targets
from vitral.training.methods.mixing import Mixer, erase, mixes
from vitral.training.settings.recipe import Recipe

Normalize = Callable[[Tensor], Tensor]


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

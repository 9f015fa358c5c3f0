"""A method's batches: the views of each image, partners to mix with, and images of further sources."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from vitral import distributed
from vitral.data.loader import TrainingBatches
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.events import Listener, Message, ignore
from vitral.images.augment import Augmentation
from vitral.images.pillow_operations import Colour
from vitral.images.policies import GREY
from vitral.seeds import derive
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.training.methods.method import method_of
from vitral.training.methods.mixing import mixes
from vitral.training.settings.recipe import Recipe


def open_further(
    recipe: Recipe, class_names: Sequence[str] = (), *, skip_bad_images: bool = False, listener: Listener = ignore
) -> dict[str, DataSet]:
    """Return the further sources that a recipe's method learns from, by name.

    Args:
        recipe: The settings.
        class_names: The names of the classes, in the labels' order.
        skip_bad_images: Whether unreadable images are left out, instead of an error.
        listener: The listener for messages and progress.

    Raises:
        DataError: A source cannot be opened.
    """
    method = method_of(recipe)
    opened = {
        name: open_data(source.data, skip_bad_images=skip_bad_images, listener=listener)
        for name, source in method.sources(recipe).items()
    }
    return {name: method.further(recipe, data, class_names, listener) for name, data in opened.items()}


def training_batches(
    source: Source,
    recipe: Recipe,
    *,
    image_size: tuple[int, int],
    augmentation: Augmentation,
    task: Task = SINGLE_LABEL,
    num_classes: int = 0,
    fill: Colour = GREY,
    further: Mapping[str, DataSet] | None = None,
    listener: Listener = ignore,
) -> TrainingBatches:
    """Return this process's part of a run's batches.

    Args:
        source: The labelled images.
        recipe: The settings; its method names the views of an image and the further sources.
        image_size: The height and width, pixels.
        augmentation: The augmentation of every view for which the method has none of its own.
        task: The meaning of a label.
        num_classes: The number of classes; a single-label task does not need it.
        fill: The colour that timm's RandAugment puts beyond the edge: red, green, blue, 0 to 255.
        further: The result of `open_further`; None to open the sources here.
        listener: The listener for messages.

    Raises:
        DataError: The processes cannot share a batch evenly, or a further source cannot be opened.
    """
    method = method_of(recipe)
    opened = open_further(recipe, listener=listener) if further is None else further
    rank, world = distributed.rank(), distributed.world()
    make = partial(TrainingBatches, image_size=image_size, rank=rank, world=world, fill=fill)
    extra = {}
    for name, settings in method.sources(recipe).items():
        first, *more = (view.of(replace(augmentation, repeats=1)) for view in settings.views)
        extra[name] = make(
            opened[name].splits["train"],
            batch_size=settings.batch_size,
            augmentation=first,
            seed=derive(recipe.seed, f"extra {name}"),
            labelled=False,
            more=more,
        )
    first, *more = augmentations(recipe, augmentation)
    batches = make(
        source,
        batch_size=recipe.batch_size,
        augmentation=first,
        seed=recipe.seed,
        task=task,
        num_classes=num_classes,
        partner=mixes(recipe.mixing) and any(view.mixed for view in method.views(recipe)),
        more=more,
        extra=extra,
    )
    for line in batches.open():
        listener(Message(line))
    return batches


def augmentations(recipe: Recipe, augmentation: Augmentation) -> list[Augmentation]:
    """Return the augmentation of each view of a recipe's method; `augmentation` is for views without their own."""
    return [view.of(augmentation) for view in method_of(recipe).views(recipe)]

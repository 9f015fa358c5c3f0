"""The batches that a method learns from: the views that it wants, partners to mix with, and its further sources."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from vitral.training.methods.mixing import mixes
from vitral.training.methods.registry import method_of
from vitral.training.methods.views import ExtraSource
from vitral.training.settings.recipe import Recipe


def open_further(
    recipe: Recipe, class_names: Sequence[str] = (), *, skip_bad_images: bool = False, listener: Listener = ignore
) -> dict[str, DataSet]:
    """Return the further sources that a recipe's method learns from, by name.

    Args:
        recipe: the settings.
        class_names: of the labels, in order.
        skip_bad_images: leave out images that cannot be read, instead of an error.
        listener: hears of the reading.

    Raises:
        DataError: one cannot be opened.
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
        source: the labelled images.
        recipe: the settings; its method says which views of an image and which further sources it wants.
        image_size: height and width, pixels.
        augmentation: how the images vary, where the method does not say it of a view.
        task: what a label is.
        num_classes: of the labels; a single-label task does without it.
        fill: what timm's RandAugment lets in from beyond the edge: red, green, blue, 0 to 255.
        further: what `open_further` gave; None to open it here.
        listener: receives what is opened.

    Raises:
        DataError: the processes cannot share a batch evenly, or a further source cannot be opened.
    """
    method = method_of(recipe)
    opened = open_further(recipe, listener=listener) if further is None else further
    extra = {
        name: _extra(name, opened[name].splits["train"], wanted, recipe, image_size, augmentation, fill)
        for name, wanted in method.sources(recipe).items()
    }
    views = method.views(recipe)
    first, *more = augmentations(recipe, augmentation)
    batches = TrainingBatches(
        source,
        batch_size=recipe.batch_size,
        image_size=image_size,
        augmentation=first,
        seed=recipe.seed,
        task=task,
        num_classes=num_classes,
        rank=distributed.rank(),
        world=distributed.world(),
        partner=mixes(recipe.mixing) and any(view.mixed for view in views),
        fill=fill,
        more=more,
        extra=extra,
    )
    for line in batches.open():
        listener(Message(line))
    return batches


def augmentations(recipe: Recipe, augmentation: Augmentation) -> list[Augmentation]:
    """Return how the images vary in each view that a recipe's method wants, where the method does not say it itself."""
    return [view.of(augmentation) for view in method_of(recipe).views(recipe)]


def _extra(
    name: str,
    source: Source,
    wanted: ExtraSource,
    recipe: Recipe,
    image_size: tuple[int, int],
    augmentation: Augmentation,
    fill: Colour,
) -> TrainingBatches:
    first, *more = (view.of(replace(augmentation, repeats=1)) for view in wanted.views)
    return TrainingBatches(
        source,
        batch_size=wanted.batch_size,
        image_size=image_size,
        augmentation=first,
        seed=derive(recipe.seed, f"extra {name}"),
        rank=distributed.rank(),
        world=distributed.world(),
        labelled=False,
        fill=fill,
        more=more,
    )

"""`Method`: how a network learns, as the loop, the step, the checkpoints and the run use it; and a method's batches.

A batch holds the views of each image, partners to mix with, and images of further sources.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from vitral import distributed, plugins
from vitral.classifier.classifier import Classifier
from vitral.data.loader import TrainingBatches
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source, class_images
from vitral.errors import DataError, PluginError
from vitral.events import Listener, Message, ignore
from vitral.images.augment import Augmentation
from vitral.images.pillow_operations import Colour
from vitral.images.policies import GREY
from vitral.models.model import Model
from vitral.objectives.unequal import sampling_shares
from vitral.seeds import derive
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.training.methods.views import ExtraSource, Normalize, Part, View
from vitral.training.optimization.optimizers import build_optimizer
from vitral.training.optimization.state import Held, Stateful
from vitral.training.settings.methods import MethodSettings, method_class
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import mixes


@dataclass(frozen=True)
class Context:
    """Facts that a method may need besides network, recipe and task.

    Attributes:
        class_names: The names of the classes, in the labels' order; empty if they have no names.
        normalize: The function from values 0 to 255 to the network's input; None if no images will come.
        listener: The listener for messages.
        class_images: The number of training images of each class; empty where it is not known, or an image may have several.
    """

    class_names: tuple[str, ...] = ()
    normalize: Normalize | None = None
    listener: Listener = ignore
    class_images: tuple[int, ...] = ()


class Method(Stateful):
    """How a network learns. Each method is a subclass in a file of its own, with its settings.

    Every process of a job builds the method at the run's start and at every resumption, from the same arguments. All random
    choices in building it come from `recipe.seed`.

    Args:
        network: The network that is delivered at the end, with its starting weights; its blocks are the unit of sharding.
        recipe: The settings, with the method's own section.
        task: The meaning of a label.
        context: Further facts; None if nothing is known.

    Raises:
        ModelError: The network cannot be trained by this method.
    """

    Settings: ClassVar[type[MethodSettings]]
    # Whether `module` is just the network, and every loss uses all of it, so that it may be sharded.
    plain: ClassVar[bool] = False
    # Whether `loss` makes random choices for single images, which differ between processes.
    draws_by_image: ClassVar[bool] = False

    module: nn.Module  # everything that is trained, with a single call

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        self.network, self.recipe, self.task, self.context = network, recipe, task, context or Context()

    @classmethod
    def views(cls, recipe: Recipe) -> tuple[View, ...]:
        """Return the views of each image that the method learns from."""
        return (View(),)

    @classmethod
    def sources(cls, recipe: Recipe) -> dict[str, ExtraSource]:
        """Return the further sources that the method learns from, by name."""
        return {}

    @classmethod
    def further(cls, recipe: Recipe, data: DataSet, class_names: Sequence[str], listener: Listener) -> DataSet:
        """Return the part of a further source that the method learns from, such as the images that a teacher is sure of."""
        return data

    @classmethod
    def region_head(cls, recipe: Recipe) -> dict[str, int | None]:
        """Return what the settings say of the head that learns regions, by the fields of its config; None for nothing."""
        return {"stride": recipe.head.stride}

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Tell whether the network's head learns; if not, it is not scored during training."""
        return True

    @classmethod
    def labelled(cls, recipe: Recipe, data: DataSet, listener: Listener) -> DataSet:
        """Return the data; if they have no labels, the method may add labels that it finds itself."""
        return data

    def optimizers(self) -> list[Optimizer]:
        """Return the optimizers; a parameter of `module` is in at most one of them.

        This is called once, after the module was distributed over the processes. An average or a teacher that follows the
        parameters is made here, too. A group's learning rate follows the recipe's curve, times the group's "scale"; a group
        with a "wait" begins so many updates later, with a curve of its own over the rest of the run.
        """
        return [build_optimizer(self.module, self.network, self.recipe.optimizer)]

    @abstractmethod
    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of a part of a batch, and its figures by name, all scalars.

        Args:
            call: The callable form of `module` for training; it is called once.
            part: The images.
        """

    def apart(self) -> list[nn.Parameter]:
        """Return the parameters of `module` for which the method itself computes and averages the gradients."""
        return []

    def before_step(self, gone: float) -> None:
        """Do what precedes an update; `gone` is the share of its schedule that the run has completed, 0 to 1."""
        return

    def after_step(self, step: int) -> None:
        """Do what follows update `step`, counted from 0, such as moving an average; a skipped update does not call this."""
        return

    def state_dict(self) -> Mapping[str, Held]:
        """Return the method's state besides parameters, buffers and the optimizers' states."""
        return {}

    def deliver(self) -> None:
        """Put the weights to deliver into the network, at the run's end, after the recipe's average."""
        return

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Complete the classifier of a trained network; `train` are its training images."""
        return


def _check_class(name: str, thing: object) -> None:
    """Refuse a plugin's method that is no class of methods."""
    if not (isinstance(thing, type) and issubclass(thing, Method)):
        raise PluginError(f"The method '{name}' must be registered as a class of methods.")


plugins.subscribe("method", _check_class)


def method_of(recipe: Recipe) -> type[Method]:
    """Return the class of a recipe's method."""
    method: type[Method] = method_class(recipe.method.name)
    return method


def build_method(network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> Method:
    """Return a recipe's method over a network that learns a task; `context` holds further facts.

    Raises:
        ModelError: The network cannot be trained by this method.
    """
    return method_of(recipe)(network, recipe, task, context)


def open_further(
    recipe: Recipe, class_names: Sequence[str] = (), *, skip_bad_images: bool | None = None, listener: Listener = ignore
) -> dict[str, DataSet]:
    """Return the further sources that a recipe's method learns from, by name.

    Args:
        recipe: The settings.
        class_names: The names of the classes, in the labels' order.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
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
        DataError: The processes cannot share a batch evenly, a further source cannot be opened, or images are to be drawn by
            their class, of which they have not exactly one.
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
        shares=_shares(source, recipe, task, num_classes),
    )
    for line in batches.open():
        listener(Message(line))
    return batches


def _shares(source: Source, recipe: Recipe, task: Task, num_classes: int) -> Tensor | None:
    """Return each class's share of the images that a recipe draws; None where it sees every image equally often."""
    if recipe.sampling == "instance-balanced":
        return None
    images = class_images(source, task, num_classes)
    if not images:
        raise DataError(
            f"sampling={recipe.sampling} needs a known number of images that have one class each; these {task.labelled} or are "
            "drawn without end. Leave the setting out."
        )
    return sampling_shares(images, recipe.sampling)


def augmentations(recipe: Recipe, augmentation: Augmentation) -> list[Augmentation]:
    """Return the augmentation of each view of a recipe's method; `augmentation` is for views without their own."""
    return [view.of(augmentation) for view in method_of(recipe).views(recipe)]

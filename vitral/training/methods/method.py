"""`Method`: how a network learns, in one object; what the loop, the step, the checkpoints and the run ask of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.events import Listener, ignore
from vitral.models.model import Model
from vitral.tasks.task import Task
from vitral.training.methods.views import ExtraSource, Normalize, Part, View
from vitral.training.optimization.optimizers import build_optimizer
from vitral.training.optimization.state import Held, fill
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe


@dataclass(frozen=True)
class Context:
    """What a method may have to know besides network, recipe and task.

    Attributes:
        class_names: of the labels, in order; none where nobody has named them.
        normalize: from values 0 to 255 to the network's input; None where no images will come.
        listener: hears messages.
    """

    class_names: tuple[str, ...] = ()
    normalize: Normalize | None = None
    listener: Listener = ignore


class Method(ABC):
    """How a network learns. One subclass a method, in one file, registered by `register`.

    Every process of a job makes one at the run's start and at every resumption, from the same arguments. All that is random
    about its making is drawn by `recipe.seed`.

    Args:
        network: what is delivered in the end, with its starting weights; its blocks are the unit of sharding and the like.
        recipe: the settings, the method's own section among them.
        task: what a label is.
        context: what else it may have to know; None where nobody can say.

    Raises:
        ModelError: the network cannot be trained so.
    """

    Settings: ClassVar[type[MethodSettings]]
    plain: ClassVar[bool] = (
        False  # whether `module` is the network and no more, all of it in every loss: it may be sharded
    )
    draws_by_image: ClassVar[bool] = False  # whether `loss` draws at random for single images, in each process its own

    module: nn.Module  # all that is trained, called as one

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        self.network, self.recipe, self.task, self.context = network, recipe, task, context or Context()

    @classmethod
    def views(cls, recipe: Recipe) -> tuple[View, ...]:
        """Return which views of each image it wants."""
        return (View(),)

    @classmethod
    def sources(cls, recipe: Recipe) -> dict[str, ExtraSource]:
        """Return which further sources it learns from, by name."""
        return {}

    @classmethod
    def further(cls, recipe: Recipe, data: DataSet, class_names: Sequence[str], listener: Listener) -> DataSet:
        """Return what it learns from of one of its further sources, such as the images that a teacher is sure of."""
        return data

    @classmethod
    def trains_head(cls, recipe: Recipe) -> bool:
        """Tell whether the network's head learns; if not, it has nothing to say while the network trains."""
        return True

    @classmethod
    def labelled(cls, recipe: Recipe, data: DataSet, listener: Listener) -> DataSet:
        """Return the data with labels that the method finds itself, where they have none."""
        return data

    def optimizers(self) -> list[Optimizer]:
        """Return what changes the parameters of `module`, each of which is in one optimizer at most; asked for once.

        It is asked after the module was laid out over the processes, so that an average or a teacher that follows the
        parameters is made here, too. A group's learning rate follows the recipe's curve, times the group's "scale".
        """
        return [build_optimizer(self.module, self.network, self.recipe.optimizer)]

    @abstractmethod
    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of a part of a batch, and its figures by name, all scalars.

        Args:
            call: `module`, as it is to be called in training; once.
            part: the images.
        """

    def apart(self) -> list[nn.Parameter]:
        """Return the parameters of `module` whose gradients it makes and brings together over the processes itself."""
        return []

    def after_step(self, step: int) -> None:
        """Do what follows update `step`, counted from 0, such as to move an average; not called where one was skipped."""
        return

    def state_dict(self) -> Mapping[str, Held]:
        """Return what it keeps besides parameters, buffers and the optimizers' states."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` once named.

        Raises:
            ValueError: it is of another method.
        """
        fill(self.state_dict(), saved)

    def deliver(self) -> None:
        """Put into the network what is to be delivered, at the run's end, after the recipe's average was put there."""
        return

    @classmethod
    def complete(cls, recipe: Recipe, classifier: Classifier, train: Source, listener: Listener) -> None:
        """Make a classifier whole whose network was trained so; `train` are the images that it learned from."""
        return

"""The tasks by name: those of Vitral, and what `vitral.register("task", name, thing)` adds."""

from collections.abc import Mapping
from typing import Any

from vitral import plugins
from vitral.errors import PluginError, VitralError, did_you_mean
from vitral.tasks.any_right_label import ANY_RIGHT_LABEL
from vitral.tasks.boxes import BOXES
from vitral.tasks.instances import INSTANCES
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.panoptic import PANOPTIC
from vitral.tasks.semantic import SEMANTIC
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.tasks.unlabelled import UNLABELLED

_TASKS: dict[str, Task] = {
    task.name: task
    for task in (SINGLE_LABEL, MULTI_LABEL, ANY_RIGHT_LABEL, UNLABELLED, SEMANTIC, INSTANCES, BOXES, PANOPTIC)
}


def _add(name: str, thing: object) -> None:
    """Add a task, known by its name to recipes and classifier folders."""
    if not isinstance(thing, Task) or thing.name != name:
        raise PluginError(f"The task '{name}' must be registered as an instance of Task that has that name.")
    if name in _TASKS:
        raise PluginError(f"There is already a task '{name}'; give yours another name.")
    _TASKS[name] = thing


plugins.subscribe("task", _add)


def task_named(name: str) -> Task:
    """Return the task of a name, or raise VitralError if there is none."""
    if name not in _TASKS:
        known = ", ".join(_TASKS)
        raise VitralError(
            f"There is no task '{name}', only {known}; one of your own must be registered first."
            f"{did_you_mean(name, _TASKS)}"
        )
    return _TASKS[name]


def task_of(*, several: bool) -> Task:
    """Return the task of images that may have several classes or none, or of those that have one each."""
    return MULTI_LABEL if several else SINGLE_LABEL


def described_task(description: Mapping[str, Any]) -> Task:
    """Return the task that a classifier's description names; of one of an earlier version, which says `multi_label`, that.

    Raises:
        VitralError: it names none that is known.
    """
    if "task" in description:
        name = description["task"]
        if not isinstance(name, str):
            raise VitralError("its task is no name.")
        return task_named(name).as_described(description)
    several = description.get("multi_label", False)  # the first versions did not write it
    if not isinstance(several, bool):
        raise VitralError("its multi_label is neither true nor false.")
    return task_of(several=several)

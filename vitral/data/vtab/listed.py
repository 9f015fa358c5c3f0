"""What all readers of a task do with its images: thin out those to score on, and check labels."""

from collections.abc import Callable, Mapping

from vitral.data.listing import Listing
from vitral.data.stored import Entry, Store
from vitral.data.vtab.records import Example
from vitral.data.vtab.tasks import VtabTask
from vitral.errors import DataError, one_line


def task_listing(
    task: VtabTask, store: Store, entries: Mapping[str, list[Entry]], names: tuple[str, ...], notes: tuple[str, ...]
) -> Listing:
    """Return the images of a task as a reader finds them."""
    return Listing(title=task.name, name=task.name, store=store, entries=entries, class_names=names, notes=notes)


def size_notes(task: VtabTask, scored: int) -> tuple[str, ...]:
    """Return a note where there are fewer or more images to score than the task has.

    Raises:
        DataError: there are none.
    """
    if not scored:
        raise DataError(f"There are no images to score VTAB's {task.name} on; it has {task.scored:,}.")
    return (
        () if scored == task.scored else (f"VTAB scores {task.name} on {task.scored:,} images; here are {scored:,}.",)
    )


def label_of(task: VtabTask, features: Callable[[], Example], image: str, *, advice: str) -> int:
    """Return an image's class in a task.

    Args:
        task: The task.
        features: Returns the features that the label is made of.
        image: The image's name, for messages.
        advice: The step to take where it has no label, such as "fetch it again".

    Raises:
        DataError: its features give no label, or none of the task's.
    """
    try:
        label = task.label(features())
    except DataError as error:
        raise DataError(f"'{image}': {str(error).removesuffix('.')}.") from error
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        raise DataError(f"'{image}': its features give no label ({one_line(error)}); {advice}.") from error
    if not 0 <= label < task.classes:
        raise DataError(f"'{image}' has the class {label}; VTAB's {task.name} has {task.classes}; {advice}.")
    return label

"""Open a task of VTAB-1k: vtab:ROOT:TASK, with 800 training, 200 validation and the test images that VTAB defines.

| ROOT holds | images of a task |
|---|---|
| datasets as TFDS prepared them | the official ones, in TFDS's order |
| the community's vtab-1k folders with their lists | those of the lists, which were taken from TFDS by their authors |
| what the datasets' authors give out, in folders named as in TFDS (vitral-vtab reads it) | the official ones, by TFDS's rule |
| wds_vtab-* shards | all training images, of which 1,000 are drawn here: not the official ones |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vitral.data.assemble import AUGMENTATION, assemble
from vitral.data.listing import Listing, Opening
from vitral.data.source import DataSet
from vitral.data.vtab.lists import LISTS, list_folder
from vitral.data.vtab.prepared import find
from vitral.data.vtab.raw import ORDER, list_raw, raw_folder, why_not
from vitral.data.vtab.shards import list_wds, shards_of
from vitral.data.vtab.tasks import TASKS, VtabTask
from vitral.data.vtab.tfds import list_prepared
from vitral.errors import DataError, did_you_mean
from vitral.paths import from_home, is_folder

PREFIX = "vtab:"
BOTH = "train800val200"  # stands after the task: 1,000 images to train on, and none to validate
# A reader finds its files, or returns None; where they are incomplete, damaged or do not match, it raises a DataError.
READERS: tuple[Callable[[Path, VtabTask, Opening, int | None], Listing | None], ...] = (
    list_prepared,
    list_folder,
    list_raw,
    list_wds,
)


@dataclass(frozen=True)
class Spec:
    """What is to be opened: a task of those in a folder, and whether its validation images are trained on, too."""

    root: Path
    task: VtabTask
    both: bool

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{PREFIX}{self.root}:{self.task.name}{f':{BOTH}' if self.both else ''}"


def task_named(name: str) -> VtabTask:
    """Return the task of that name, or raise DataError if there is none."""
    tasks = {task.name: task for task in TASKS}
    if name not in tasks:
        raise DataError(f"VTAB has no task '{name}'; its tasks are {', '.join(tasks)}.{did_you_mean(name, tasks)}")
    return tasks[name]


def read_spec(spec: str) -> Spec:
    """Read vtab:ROOT:TASK or vtab:ROOT:TASK:train800val200.

    Raises:
        DataError: it is not of that form, or there is no such task.
    """
    text = spec.removeprefix(PREFIX)
    both = text.endswith(f":{BOTH}")
    root, _, name = text.removesuffix(f":{BOTH}").rpartition(":")
    if not root:
        raise DataError(
            f"'{spec}' is not of the form {PREFIX}FOLDER:TASK, such as {PREFIX}/data/tensorflow_datasets:clevr-count; "
            f"the tasks are {', '.join(task.name for task in TASKS)}."
        )
    return Spec(from_home(root), task_named(name), both)


def divide_vtab(spec: str) -> tuple[str, str, str]:
    """Return "vtab:", the folder in a name such as vtab:ROOT:TASK, and ":TASK"."""
    root = spec.removeprefix(PREFIX).removesuffix(f":{BOTH}").rpartition(":")[0]
    return PREFIX, root, spec[len(PREFIX) + len(root) :]


def open_task(spec: Spec, how: Opening, *, most_test: int | None = None) -> DataSet:
    """Open a task, with at most so many test images, evenly spaced among all.

    Raises:
        DataError: the folder holds no such dataset, or an incomplete one.
        ImageError: images cannot be read.
    """
    if not is_folder(spec.root):
        raise DataError(f"There is no folder '{spec.root}'; it should hold the datasets of VTAB.")
    listing = next((made for read in READERS if (made := read(spec.root, spec.task, how, most_test))), None)
    if listing is None:
        raise DataError(why_not(spec.root, spec.task) or _missing(spec))
    entries = dict(listing.entries)
    if spec.both:
        entries["train"] = [*entries["train"], *entries.pop("validation")]
    name, base = f"vtab-{spec.task.name}", str(spec.root)
    listing = replace(listing, title=str(spec), name=name, base=base, entries=entries, held_out=0.0)
    data = assemble(listing, how)
    crop = AUGMENTATION.crop if spec.task.crop else "none"
    return replace(data, augmentation=replace(AUGMENTATION, crop=crop, flip=spec.task.flip))


def source_of(spec: Spec) -> str:
    """Return where a task's images come from, for people; empty where there are none."""
    task = spec.task
    if (prepared := find(spec.root, task.dataset, task.version)) is not None:
        named = f"TFDS {task.dataset} {prepared.version}"
        same = prepared.is_of(task.version)
        return f"official images, from {named}" if same else f"{named}; VTAB is defined on version {task.version}"
    if any((spec.root / task.folder / name).is_file() for name in LISTS.values()):
        return "official images, by the lists of vtab-1k"
    if raw_folder(spec.root, task) is not None:
        return "" if why_not(spec.root, task) else f"images from the authors' files, {ORDER}"
    return "1,000 others, drawn from WebDataset shards" if shards_of(spec.root, task) is not None else ""


def _missing(spec: Spec) -> str:
    task = spec.task
    return (
        f"'{spec.root}' has no data of VTAB's {task.name}: neither '{task.dataset}' as TFDS prepares it (version "
        f"{task.version}), nor the folder '{task.folder}' of vtab-1k with its lists, nor '{task.dataset.partition('/')[0]}' "
        f"with its authors' files, nor shards 'wds_vtab-{task.shards}'."
    )

"""The 19 tasks of VTAB-1k, as `tasks.toml` lists them, and their labels (google-research/task_adaptation, data/*.py)."""

import bisect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from vitral.data.listing import Listing
from vitral.data.stored import Entry, Store
from vitral.data.vtab.records import Example
from vitral.errors import DataError, one_line

Group = Literal["natural", "specialised", "structured"]
GROUPS: tuple[Group, ...] = get_args(Group)
Label = Callable[[Example], int]

# The label is the index of the last threshold below the distance.
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
NO_VEHICLE = 1000.0  # metres: the distance of an image without a vehicle
VEHICLES = 3  # KITTI's types below this number are car, van and truck
FEWEST_OBJECTS = 3  # in an image of CLEVR


@dataclass(frozen=True, kw_only=True)
class VtabTask:
    """A task.

    Attributes:
        name: Our name of it.
        title: Its name in the paper's Table 9.
        group: One of the three groups.
        dataset: TFDS's name, with its configuration after a slash.
        version: TFDS's major version, on which the splits are defined.
        classes: The number of classes.
        validation: The 200 validation images, in TFDS's words.
        scored: The number of images to score on.
        folder: Its name among the community's folders (vtab-1k).
        shards: Its name among the WebDataset shards (wds_vtab-*).
        marks: Patterns of paths below the dataset's folder; where its authors' files are, one of them at least is there.
        train: The 800 training images.
        test: The images to score on.
        label: Returns an example's class.
        names: The names of the classes, where the dataset does not name them.
        scale: The factor by which the image's values are multiplied.
        flip: Whether a mirrored image keeps its class.
        crop: Whether a part of an image keeps its class.
    """

    name: str
    title: str
    group: Group
    dataset: str
    version: int
    classes: int
    validation: str
    scored: int
    folder: str
    shards: str
    marks: tuple[str, ...]
    train: str = "train[:800]"
    test: str = "test"
    label: Label
    names: tuple[str, ...] = ()
    scale: int = 1
    flip: bool = True
    crop: bool = True

    @property
    def parts(self) -> dict[str, str]:
        """The images to train, validate and score on, in TFDS's words."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def numbered(self) -> tuple[str, ...]:
        """The names of the classes, or their numbers where the task has no names."""
        return self.names or tuple(str(number) for number in range(self.classes))

    def listing(
        self, store: Store, entries: Mapping[str, list[Entry]], names: tuple[str, ...], notes: tuple[str, ...]
    ) -> Listing:
        """Return the task's images as a reader finds them."""
        return Listing(title=self.name, name=self.name, store=store, entries=entries, class_names=names, notes=notes)

    def size_notes(self, scored: int) -> tuple[str, ...]:
        """Return a note where there are more or fewer images to score than the task has; raise DataError if there are none."""
        if not scored:
            raise DataError(f"There are no images to score VTAB's {self.name} on; it has {self.scored:,}.")
        if scored == self.scored:
            return ()
        return (f"VTAB scores {self.name} on {self.scored:,} images; here are {scored:,}.",)

    def class_of(self, features: Callable[[], Example], image: str, *, advice: str) -> int:
        """Return an image's class by its features; `advice` says what to do where they give none: "fetch it again".

        Raises:
            DataError: its features give no label, or none of the task's.
        """
        try:
            label = self.label(features())
        except DataError as error:
            raise DataError(f"'{image}': {str(error).removesuffix('.')}.") from error
        except (ValueError, TypeError, OverflowError, IndexError) as error:
            raise DataError(f"'{image}': its features give no label ({one_line(error)}); {advice}.") from error
        if not 0 <= label < self.classes:
            raise DataError(f"'{image}' has the class {label}; VTAB's {self.name} has {self.classes}; {advice}.")
        return label


def _stored(name: str, width: float, example: Example) -> int:
    """Return the class of a stored feature: so many values, counted from 0, are one class."""
    return int(int(_of(example, name)[0]) // width)


def clevr_count(example: Example) -> int:
    """Return the number of objects, above the fewest that there are."""
    return len(_of(example, "objects/pixel_coords")) // 3 - FEWEST_OBJECTS


def clevr_distance(example: Example) -> int:
    """Return how far away the nearest object is, in CLEVR's units: one of 6 bins."""
    return _bin(min(_of(example, "objects/pixel_coords")[2::3]), CLEVR_DISTANCES)


def kitti_distance(example: Example) -> int:
    """Return how far away the nearest car, van or truck is: up to 8 m, up to 20, further, or there is none."""
    depths = example.get("objects/location", ())[2::3]
    kinds = example.get("objects/type", ())
    near = [depth for depth, kind in zip(depths, kinds, strict=True) if kind < VEHICLES]
    return _bin(min([*near, NO_VEHICLE]), KITTI_DISTANCES)


def _bin(value: float, thresholds: tuple[float, ...]) -> int:
    return bisect.bisect_left(thresholds, value) - 1


OF_OBJECTS: dict[str, Label] = {
    "clevr_count": clevr_count,
    "clevr_distance": clevr_distance,
    "kitti_distance": kitti_distance,
}


def _of(example: Example, name: str) -> list[float]:
    values = example.get(name)
    if values is not None and not values:
        raise DataError(f"its feature '{name}' is empty")
    if values is None:
        raise DataError(f"a record has no feature '{name}', but {', '.join(sorted(example)) or 'none'}")
    return list(values)


def _read_tasks() -> tuple[VtabTask, ...]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(_task(group, row, table["marks"]) for group in GROUPS for row in table[group])


def _task(group: Group, row: dict[str, Any], marks: Mapping[str, list[str]]) -> VtabTask:
    folder = row["dataset"].partition("/")[0]
    usual = {"validation": "validation[:200]", "folder": folder, "shards": row["name"], "marks": tuple(marks[folder])}
    name, width = row.pop("label", "label"), row.pop("bin", 1)
    label = OF_OBJECTS.get(name) or partial(_stored, name, width)
    return VtabTask(group=group, label=label, **{**usual, **row, "names": tuple(row.get("names", ()))})


TASKS = _read_tasks()

"""The 19 tasks of VTAB-1k, as `tasks.toml` lists them: dataset, splits, label and group of each."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vitral.data.listing import Listing
from vitral.data.stored import Entry, Store
from vitral.data.vtab.labels import Label, label_named
from vitral.data.vtab.records import Example
from vitral.errors import DataError, one_line

Group = Literal["natural", "specialised", "structured"]
GROUPS: tuple[Group, ...] = get_args(Group)


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
        """Return a note where there are fewer or more images to score than the task has.

        Raises:
            DataError: there are none.
        """
        if not scored:
            raise DataError(f"There are no images to score VTAB's {self.name} on; it has {self.scored:,}.")
        return (
            ()
            if scored == self.scored
            else (f"VTAB scores {self.name} on {self.scored:,} images; here are {scored:,}.",)
        )

    def class_of(self, features: Callable[[], Example], image: str, *, advice: str) -> int:
        """Return an image's class.

        Args:
            features: Returns the features that the label is made of.
            image: The image's name, for messages.
            advice: The step to take where it has no label, such as "fetch it again".

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


def _read_tasks() -> tuple[VtabTask, ...]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(_task(group, row) for group in GROUPS for row in table[group])


def _task(group: Group, row: dict[str, Any]) -> VtabTask:
    usual = {"validation": "validation[:200]", "folder": row["dataset"].partition("/")[0], "shards": row["name"]}
    label = label_named(row.pop("label", "label"), row.pop("bin", None))
    return VtabTask(group=group, label=label, **{**usual, **row, "names": tuple(row.get("names", ()))})


TASKS = _read_tasks()

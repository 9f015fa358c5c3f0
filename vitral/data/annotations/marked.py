"""What a reader of annotations finds in a folder, which photos are meant by the names in it, and what it left out."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vitral.advice import counted
from vitral.data.annotations.annotation import Annotation, Mark, Marks, Size
from vitral.data.annotations.traps import Trap
from vitral.data.masks import FOLDER
from vitral.data.names import ALL, composed, natural_key, split_in, split_within
from vitral.data.source import BadImage
from vitral.errors import DataError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.paths import Walk, refuse_endless
from vitral.tasks.boxes import BOXES
from vitral.tasks.instances import INSTANCES
from vitral.tasks.task import Task

LARGEST = 1 << 30  # bytes of a file of annotations
MOST_JSON = 200  # files
# Kinds of traps that several formats have.
NOT_THERE = "photos with annotations that are not in the folder, or one of several of the name"
NO_AREA = "boxes without width or height, left out"
FEW_POINTS = "polygons of fewer than three points, left out"
OTHER_SIZE = "masks of another size than their photo, enlarged or reduced to it by the nearest pixel"


@dataclass(frozen=True, kw_only=True)
class MarkedPhotos:
    """The annotated photos of a folder.

    Attributes:
        form: What the annotations are, for people: "COCO JSON".
        task: The task that they are for.
        annotations: The annotation of each photo, by its path in the folder.
        class_names: The classes, in the order of the data.
        splits: The splits of the photos that are in one, by path.
        things: The classes whose regions are objects; the others are matter, such as sky.
        traps: What misleads in them, and what became of it.
        notes: What was decided, one line each.
        bad: The photos whose annotations cannot be read.
        others: The images that are no photos but masks, where their folders are not called so.
    """

    form: str
    task: Task
    annotations: Mapping[str, Annotation]
    class_names: tuple[str, ...]
    splits: Mapping[str, str] = field(default_factory=dict)
    things: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()
    notes: tuple[str, ...] = ()
    bad: tuple[BadImage, ...] = ()
    others: frozenset[str] = frozenset()


class Photos:
    """The photos of a folder, found by the names that annotations call them.

    Args:
        walked: The folder's content.
    """

    def __init__(self, walked: Walk) -> None:
        self.paths = [file.path for file in walked.files if file.path.lower().endswith(EXTENSIONS)]

    @functools.cached_property
    def _named(self) -> dict[str, list[str]]:
        """The photos by their names, with and without suffix."""
        named: dict[str, list[str]] = {}
        for path in self.paths:
            name = path.rpartition("/")[2]
            for key in {_key(name), _key(name.rpartition(".")[0])}:
                named.setdefault(key, []).append(path)
        return named

    def find(self, name: str, beside: str, split: str = ALL, other_than: str | None = None) -> str | None:
        """Return the path of the photo that an annotation means; None where there is none, or it may be any of several.

        Of photos of one name the one counts whose path ends in more of the name's folders, that is in the same split, in no
        folder of masks, and in more of the annotation's folders.

        Args:
            name: The photo's name, with folders or not, with a suffix or not, of this or another machine.
            beside: The path of the file of annotations.
            split: The split that the file of annotations speaks of.
            other_than: The path of an image that is not meant: the photo's mask.
        """
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        named = self._named.get(_key(parts[-1]), []) if parts else []
        fitting = [path for path in named if path != other_than]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        around = set(PurePosixPath(beside).parts[:-1])

        def nearness(path: str) -> tuple[int, bool, bool, int]:
            folders = path.split("/")[:-1]
            shared = 0
            for own, other in zip(reversed(folders), reversed(parts[:-1]), strict=False):
                if own != other:
                    break
                shared += 1
            in_split = split != ALL and split in map(split_within, folders)
            return shared, in_split, not any(map(speaks_of_masks, folders)), len(around & set(folders))

        best = max(map(nearness, fitting))
        nearest = [path for path in fitting if nearness(path) == best]
        return nearest[0] if len(nearest) == 1 else None


def speaks_of_masks(folder: str) -> bool:
    """Tell whether a folder is called like one that holds masks."""
    return FOLDER.fullmatch(folder) is not None


def _key(name: str) -> str:
    return composed(name).casefold()


def split_of_path(path: str) -> str:
    """Return the split that a file of annotations or a photo is in, by a word of its name or of a folder's; else `ALL`."""
    *folders, name = PurePosixPath(path).parts
    own = (
        split_in(PurePosixPath(name).stem.rstrip("0123456789"))[0] if name.lower().endswith((".json", ".txt")) else None
    )
    if own in ("train", "validation", "test"):
        return own
    return next((split for folder in reversed(folders) if (split := split_within(folder))), ALL)


def json_files(walked: Walk) -> list[str]:
    """Return the JSON files of a folder that may speak of all its photos: of very many, such as one a photo, the largest."""
    files = [file for file in walked.files if file.path.lower().endswith(".json")]
    return sorted(file.path for file in sorted(files, key=lambda file: -file.size)[:MOST_JSON])


def read_bytes(path: Path, what: str) -> bytes:
    """Return the content of a file of annotations.

    Raises:
        DataError: it cannot be read, or is too large for what it is.
    """
    refuse_endless(path, DataError)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read as {what} ({one_line(error)}).") from error
    if len(content) > LARGEST:
        raise DataError(f"'{path}' has over {LARGEST:,} bytes, too many for {what}.")
    return content


def of_marks(
    form: str,
    marks: Mapping[str, Sequence[Mark]],
    class_names: Sequence[str],
    *,
    stated: Mapping[str, Size | None] | None = None,
    splits: Mapping[str, str] | None = None,
    traps: Sequence[Trap] = (),
    bad: Sequence[BadImage] = (),
    relative: bool = False,
) -> MarkedPhotos:
    """Return the photos of a format that lists regions: instances where most have masks, boxes otherwise.

    Args:
        form: What the annotations are, for people.
        marks: The regions of each photo, by its path.
        class_names: The classes in order.
        stated: The photos' sizes as the annotations have them.
        splits: The splits of the photos that are in one.
        traps: What misleads.
        bad: The photos whose annotations cannot be read.
        relative: Whether coordinates are shares of the photos' width and height.
    """
    every = [mark for listed in marks.values() for mark in listed]
    count = sum(mark.has_mask for mark in every)
    masked = 2 * count > len(every)
    notes = []
    if masked and count < len(every):
        rest = counted(len(every) - count, "region has", "regions have")
        notes.append(f"{rest} a box and no mask; the box is taken as the mask.")
    elif not masked and count:
        notes.append(f"Only {counted(count, 'region has', 'regions have')} a mask; boxes are taken from all.")
    return MarkedPhotos(
        form=form,
        task=INSTANCES if masked else BOXES,
        annotations={
            path: Marks.of(
                listed, masked=masked, relative=relative, stated=None if stated is None else stated.get(path)
            )
            for path, listed in marks.items()
        },
        class_names=tuple(class_names),
        splits=splits or {},
        traps=tuple(traps),
        notes=tuple(notes),
        bad=tuple(bad),
    )


def in_order(marks: Mapping[str, Sequence[Mark]]) -> tuple[str, ...]:
    """Return the classes of regions whose format gives them no order, in natural order."""
    return tuple(sorted({mark.name for listed in marks.values() for mark in listed}, key=natural_key))


def has_area(mark: Mark) -> bool:
    """Tell whether a region has run lengths, or a box of some width and height."""
    outer = mark.outer_box()
    return mark.runs is not None or (outer is not None and outer[2] > outer[0] and outer[3] > outer[1])


def read_xml(path: Path) -> Element:
    """Return the root of an XML file of annotations; nothing outside it is fetched, and no entities are defined in it.

    Raises:
        DataError: it cannot be read.
    """
    content = read_bytes(path, "XML")
    try:
        if b"<!ENTITY" in content:
            raise ValueError("it defines entities")
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError) as error:
        raise DataError(f"'{path}' cannot be read as XML ({one_line(error)}).") from error

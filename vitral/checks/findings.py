"""One look at every image of a dataset, and what a data check gives: plain values.

A look gives sizes, format, hashes and statistics, and what is odd about an image; a check gives counts, sizes, damage,
duplicates, leaks and doubtful labels.
"""

import dataclasses
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitral.advice import counted
from vitral.checks.marked import RegionCheck, RegionLook, look_at_regions
from vitral.data.bad_images import unusable
from vitral.data.names import ALL, alike_names
from vitral.data.source import BadImage, DataSet
from vitral.errors import DataError, ImageError
from vitral.images import tiff
from vitral.images.decode import FORMATS, HEIC_INSTALL, Pixels, formats, lacks_reader
from vitral.images.look_alikes import Look, look_at_image, small
from vitral.machine import in_threads
from vitral.tasks.class_sizes import ClassSizes
from vitral.tasks.regions import Regions
from vitral.tasks.task import classes_of

SPLITS = "in several splits: scores would be too good"
SIDES = "on several sides of the split that Vitral made: scores would be too good"
TINY = 32  # pixels of the shorter side
NO_CLASS = "(no class)"  # the row of images without any
LONG = 4.0  # ratio of the sides
FLAT = 2.0  # standard deviation of the values
ANIMATED = " animated"  # after the format and mode of an image
PAGES = " of several pages"
SAMPLED = 4096  # pixels of an image that its mean and standard deviation are taken of, about


@dataclass(frozen=True)
class Finding:
    """An image and what is odd about it."""

    name: str
    reason: str


@dataclass(frozen=True)
class Duplicates:
    """Images that are the same, or nearly.

    Attributes:
        kind: "exact", of the same pixels or bytes, or "near", which look alike.
    """

    kind: str
    names: tuple[str, ...]
    splits: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def leaks(self) -> bool:
        """Whether they stand in different splits, so that a score would be of images already seen."""
        return len(set(self.splits)) > 1

    @property
    def contradicts(self) -> bool:
        """Whether they have different classes."""
        return len(set(self.classes)) > 1


@dataclass(frozen=True)
class Suspect:
    """An image whose label the features of a classifier doubt, because they give another class more probability, 0 to 1."""

    name: str
    split: str
    label: str
    predicted: str
    probability: float
    own_probability: float


@dataclass(frozen=True)
class Doubts:
    """The labels that the features of a classifier doubt.

    Attributes:
        accuracy: How often the most probable class was the label, 0 to 1.
        expected: The number of labels that may be wrong at most, since the features' own mistakes are among them; None where
            these are too weak to tell.
        suspects: The images of which another class is more probable, the most doubtful first: three times as many as are
            probably wrong, and at least 20, if there are as many.
    """

    images: int
    accuracy: float
    expected: int | None
    suspects: tuple[Suspect, ...]

    def sentence(self) -> str:
        """Return how many labels are probably wrong, and by what."""
        head, right = (
            "a linear head on the classifier's features",
            f"right on {self.accuracy:.1%} of images left out of its fit",
        )
        if self.expected is None:
            return (
                f"How many of {self.images:,} labels are wrong cannot be said, because {head} is only {right}; a network with "
                "better features tells more."
            )
        return (
            f"Of {self.images:,} images up to {counted(self.expected, 'label')} may be wrong, as far as {head} knows, which is "
            f"{right}."
        )


@dataclass(frozen=True, eq=False)
class DataCheck:
    """What was found in a dataset.

    Attributes:
        counts: Readable images by split and class; one of several classes counts in each.
        images: Readable images by split.
        unlabelled: Those of them without any class.
        suspicious: Images that can be read but look like mistakes.
        duplicates: The groups of duplicates: those across splits first, then those with contradictory classes.
        doubts: The labels that a classifier doubts; None without a classifier, and where labels are of another form.
        widths: The least, the median and the greatest width, pixels.
        size: The size of all images, bytes.
        mean: The mean of the channels red, green, blue, 0 to 1.
        sheet: Some images of every class, as a PNG.
        shared_out: The splits that Vitral made, and that are not the data's own.
        thumbnails: Small images of the first duplicates and doubtful labels, by split and name.
        regions: What the annotations tell; None of data without regions.
    """

    name: str
    fingerprint: str
    class_names: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]
    images: Mapping[str, int]
    unlabelled: Mapping[str, int]
    bad: tuple[BadImage, ...]
    suspicious: tuple[Finding, ...]
    duplicates: tuple[Duplicates, ...]
    doubts: Doubts | None
    widths: tuple[int, int, int]
    heights: tuple[int, int, int]
    formats: Mapping[str, int]
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    notes: tuple[str, ...]
    sheet: bytes
    thumbnails: Mapping[tuple[str, str], Pixels]
    shared_out: tuple[str, ...] = ()
    regions: RegionCheck | None = None

    def __repr__(self) -> str:
        """Return what there is and what should be fixed in two lines."""
        found = "; ".join(self.problems()) or "nothing to fix"
        return f"DataCheck: {self.name}, {self.contents}\n{found}"

    @property
    def contents(self) -> str:
        """How many images and classes there are."""
        return f"{counted(self.total, 'image')}, {counted(len(self.class_names), 'class', 'classes')}"

    @property
    def total(self) -> int:
        """The number of readable images."""
        return sum(self.images.values())

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """The labels that a classifier doubts, the most doubtful first; empty without a classifier."""
        return () if self.doubts is None else self.doubts.suspects

    @property
    def imbalance(self) -> float:
        """How many times the images of the smallest class the largest has, classes without an image aside.

        They are the training images; where there is no training split, those of all splits.
        """
        counts = self._sizes().values()
        return max(counts) / min(counts) if counts else 1.0

    @property
    def imbalance_of(self) -> str:
        """The split that `imbalance` is of, or "all" for the splits together."""
        return "train" if "train" in self.counts else ALL

    def class_sizes(self) -> str | None:
        """Return how many images the smallest and the largest class have, for people; None of fewer than two classes."""
        sizes = self._sizes()
        if len(sizes) < 2:
            return None
        (least, fewest), (most, largest) = min(sizes.items(), key=itemgetter(1)), max(sizes.items(), key=itemgetter(1))
        where = "of the training images" if self.imbalance_of == "train" else "of all splits"
        if fewest == largest:
            return f"{fewest:,} each {where}"
        rare = ClassSizes(tuple(sizes.values())).listed(list(sizes))
        ratio = f"1 : {self.imbalance:.1f}" + (f"; rare: {rare}" if rare else "")
        return f"{fewest:,} ({least}) to {largest:,} ({most}) {where}, {ratio}"

    def _sizes(self) -> dict[str, int]:
        """Return how many of the images that `imbalance` is of each class has, without classes that have none."""
        splits = ["train"] if "train" in self.counts else list(self.counts)
        sizes = {name: sum(self.counts[split].get(name, 0) for split in splits) for name in self.class_names}
        return {name: count for name, count in sizes.items() if count}

    @property
    def leaks(self) -> int:
        """How many groups of duplicates stand in different splits."""
        return sum(group.leaks for group in self.duplicates)

    def problems(self) -> list[str]:
        """Return what should be fixed, one line each, the gravest first."""
        heic = sum(lacks_reader(image.path) for image in self.bad)
        found = (
            *self._grouped("stands", "stand", lambda group: group.leaks and not self._ours(group), SPLITS),
            *self._grouped("stands", "stand", lambda group: group.leaks and self._ours(group), SIDES),
            *self._grouped("has", "have", lambda group: group.contradicts, "different classes"),
            (len(self.bad) - heic, "image", "images", unusable(self.bad)),
            (heic, "HEIC photo is", "HEIC photos are", f"left out: {HEIC_INSTALL}"),
            ((self.doubts and self.doubts.expected) or 0, "label is", "labels are", "possibly wrong"),
            (len({finding.name for finding in self.suspicious}), "image looks", "images look", "like a mistake"),
            (len(self.duplicates) - self.leaks, "group of duplicates", "groups of duplicates", "within a split"),
            (len(alike_names(self.class_names)), "class", "classes", "under several names"),
        )
        lines = [
            f"{count} {singular if count == 1 else plural} {what}" for count, singular, plural, what in found if count
        ]
        return lines if self.regions is None else [*lines, *self.regions.problems()]

    def _ours(self, group: Duplicates) -> bool:
        """Tell whether only the split that Vitral made parts a group."""
        return set(group.splits) <= set(self.shared_out)

    def _grouped(
        self, singular: str, plural: str, chosen: Callable[[Duplicates], bool], what: str
    ) -> Iterator[tuple[int, str, str, str]]:
        """Count the chosen groups of duplicates, those of equal images apart from those of images that look alike."""
        for kind, images in (("exact", "equal images"), ("near", "images that look alike")):
            count = sum(chosen(group) for group in self.duplicates if group.kind == kind)
            yield count, f"group of {images} {singular}", f"groups of {images} {plural}", what

    def to_json(self) -> dict[str, Any]:
        """Return everything but the images as JSON values."""
        values = dataclasses.asdict(dataclasses.replace(self, sheet=b"", thumbnails={}))
        del values["sheet"], values["thumbnails"]
        suspects = [] if self.doubts is None else values["doubts"].pop("suspects")
        return {
            **values,
            "suspects": suspects,
            "imbalance": self.imbalance,
            "imbalance_of": self.imbalance_of,
            "leaks": self.leaks,
            "problems": self.problems(),
        }


@dataclass(frozen=True)
class InspectedImage:
    """What one image is like."""

    split: str
    index: int
    name: str
    classes: tuple[str, ...]
    height: int
    width: int
    size: int
    format: str
    digest: str
    look: Look | None
    mean: tuple[float, float, float]
    square: tuple[float, float, float]
    deviation: float
    regions: RegionLook | None = None


def inspect(data: DataSet, split: str) -> Iterator[InspectedImage | BadImage]:
    """Look at every image of a split, in order; of one that cannot be read, say so."""
    yield from in_threads(partial(_inspect, data, split), range(len(data.splits[split])))


def label_names(data: DataSet, split: str, index: int) -> tuple[str, ...]:
    """Return the names of an image's class or classes."""
    return tuple(data.class_names[number] for number in classes_of(data.splits[split].label(index)))


def _inspect(data: DataSet, split: str, index: int) -> InspectedImage | BadImage:
    source = data.splits[split]
    name = source.describe(index)
    sides: list[tuple[int, int]] = []

    def whole(height: int, width: int) -> int:  # of a JPEG, which is read smaller where it is very large
        sides.append((height, width))
        return 1

    try:
        encoded = source.encoded(index)
        pixels = source.image(index, whole)
        label = source.label(index)
        marked = (
            look_at_regions(source, index, label, data.class_names, encoded) if isinstance(label, Regions) else None
        )
    except ImageError as error:
        return BadImage(name, str(error).rstrip("."))
    except DataError as error:  # of the annotation
        return BadImage(name, str(error).rstrip("."), listed=True)
    content = encoded.read_bytes() if isinstance(encoded, Path) else encoded
    height, width = sides[0] if sides else pixels.shape[:2]
    mean, square = _moments(pixels)
    kind = "pixels" if content is None else _format(content)
    shrinks = kind.startswith("JPEG") and small(*pixels.shape[:2]) > 1  # a look is that of an image decoded smaller
    return InspectedImage(
        split=split,
        index=index,
        name=name,
        classes=tuple(data.class_names[number] for number in classes_of(label)),
        height=height,
        width=width,
        size=pixels.nbytes if content is None else len(content),
        format=kind,
        digest=hashlib.sha256(pixels.tobytes()).hexdigest(),
        look=look_at_image(source.image(index, small) if shrinks else pixels),
        mean=mean,
        square=square,
        deviation=float(pixels.std()),
        regions=marked,
    )


def _moments(pixels: Pixels) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return the means of the channels and of their squares, values 0 to 1."""
    values = pixels.reshape(-1, 3)[:: max(1, pixels.size // 3 // SAMPLED)].astype(np.float64) / 255
    mean, square = values.mean(axis=0), (values**2).mean(axis=0)
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(square[0]), float(square[1]), float(square[2]))


def _format(content: bytes) -> str:
    with Image.open(io.BytesIO(content), formats=formats()) as image:
        if image.format == "MPO":  # a camera's JPEG with a preview or a depth map behind it, which is no animation
            return f"JPEG {image.mode}"
        # Not the number of frames, for which every one of them would be read.
        several = getattr(image, "is_animated", False)
        more = "" if not several else PAGES if image.format == tiff.FORMAT else ANIMATED
        return f"{image.format} {image.mode}{more}"


def oddities(image: InspectedImage, median_side: float) -> Iterator[Finding]:
    """Give what is odd about an image; the median is that of the shorter sides of all images, pixels."""
    if image.deviation < FLAT:
        yield Finding(image.name, "one colour only")
    if min(image.height, image.width) < TINY and median_side >= 2 * TINY:
        yield Finding(image.name, f"only {image.width}x{image.height} pixels, where most are larger")
    if max(image.height, image.width) > LONG * min(image.height, image.width):
        yield Finding(image.name, f"{image.width}x{image.height} pixels: very long for its width")
    if image.format.endswith(ANIMATED):
        yield Finding(image.name, "animated: only the first frame is used")
    if image.format.endswith(PAGES):
        yield Finding(image.name, "several pages: only the first is used")
    suffix = Path(image.name).suffix.lower().lstrip(".")
    known = {"jpg": "JPEG", "jpeg": "JPEG", "jpe": "JPEG", "jfif": "JPEG", "tif": tiff.FORMAT}.get(
        suffix, suffix.upper()
    )
    if known in FORMATS and not image.format.startswith((known, "pixels")):
        yield Finding(image.name, f"named .{suffix}, but it is {image.format.split()[0]}")

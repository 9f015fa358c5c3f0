"""What is in a data set before anything is trained on it: counts, sizes, damage, duplicates, leaks, doubtful labels."""

import dataclasses
import hashlib
import io
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.names import unread_classes
from vitral.data.open import open_data
from vitral.data.source import BadImage, DataSet, Source
from vitral.errors import ImageError
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener, Progress
from vitral.images.contact_sheet import contact_sheet
from vitral.images.decode import FORMATS, Pixels
from vitral.progress import show
from vitral.seeds import generator
from vitral.studies.near_pairs import near_pairs
from vitral.studies.thumbnails import thumbnail, thumbnails

NEAR = 4  # bits of 64 in which the perceptual hashes of two near duplicates may differ
TINY, LONG, FLAT = 32, 4.0, 2.0  # pixels of the shorter side, ratio of the sides, standard deviation of the values
SHEET = 48  # images on the contact sheet
SURE, DOUBTED = 0.9, 0.05  # probabilities of another class, and of an image's own, from where its label is doubtful
SPLITS = "in several splits: scores would be too good"
SIDES = "on several sides of the split that Vitral made: scores would be too good"
SHOWN = 40  # groups of duplicates and doubtful labels with thumbnails
SHOWN_OF_GROUP = 6  # images of a group


@dataclass(frozen=True)
class Look:
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
    perceptual: int
    mean: tuple[float, float, float]
    square: tuple[float, float, float]
    deviation: float


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
        names: of the images.
        splits: in which they are, in the names' order.
        classes: of each, in the names' order.
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
    """An image whose label a classifier doubts."""

    name: str
    split: str
    label: str
    predicted: str
    probability: float
    own_probability: float


@dataclass(frozen=True, eq=False)
class DataCheck:
    """What was found in a data set.

    Attributes:
        name: of the data set.
        fingerprint: of its names, sizes, classes and splits.
        class_names: in order.
        counts: images by split and class.
        bad: images that cannot be read.
        suspicious: images that can, but look like mistakes.
        duplicates: those across splits first, then those with contradictory classes.
        suspects: labels that a classifier doubts, the most doubtful first; empty without a classifier.
        widths: least, middle and greatest, pixels.
        heights: likewise.
        formats: images by format.
        size: of all images, bytes.
        mean: of the channels red, green, blue, 0 to 1.
        std: likewise.
        notes: what opening the data had to say.
        sheet: some images of every class, as a PNG.
        shared_out: the splits that Vitral made, and that are not the data's own.
        thumbnails: small images of the first duplicates and doubtful labels, by split and name.
    """

    name: str
    fingerprint: str
    class_names: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]
    bad: tuple[BadImage, ...]
    suspicious: tuple[Finding, ...]
    duplicates: tuple[Duplicates, ...]
    suspects: tuple[Suspect, ...]
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

    def __repr__(self) -> str:
        """Return what there is and what should be mended in two lines."""
        images = sum(sum(classes.values()) for classes in self.counts.values())
        found = "; ".join(self.problems()) or "nothing to mend"
        return f"DataCheck: {self.name}, {images:,} images, {len(self.class_names)} classes\n{found}"

    @property
    def imbalance(self) -> float:
        """How often the largest class has the images of the smallest, in the training split."""
        counts = [count for count in next(iter(self.counts.values())).values() if count]
        return max(counts) / min(counts) if counts else 1.0

    @property
    def leaks(self) -> int:
        """How many groups of duplicates stand in different splits."""
        return sum(group.leaks for group in self.duplicates)

    def problems(self) -> list[str]:
        """Return what should be mended, one line each, the gravest first."""
        found = (
            *self._grouped("stands", "stand", lambda group: group.leaks and not self._ours(group), SPLITS),
            *self._grouped("stands", "stand", lambda group: group.leaks and self._ours(group), SIDES),
            *self._grouped("has", "have", lambda group: group.contradicts, "different classes"),
            (len(self.bad), "image cannot", "images cannot", "be read"),
            (len(self.suspects), "label is", "labels are", "doubtful"),
            (len(self.suspicious), "image looks", "images look", "like a mistake"),
            (len(self.duplicates) - self.leaks, "group of duplicates", "groups of duplicates", "within a split"),
        )
        return [f"{count} {one if count == 1 else several} {what}" for count, one, several, what in found if count]

    def _ours(self, group: Duplicates) -> bool:
        """Tell whether only the split that Vitral made parts a group."""
        return set(group.splits) <= set(self.shared_out)

    def _grouped(
        self, one: str, several: str, chosen: Callable[[Duplicates], bool], what: str
    ) -> Iterator[tuple[int, str, str, str]]:
        """Count the chosen groups of duplicates, those of equal images apart from those of images that look alike."""
        for kind, images in (("exact", "equal images"), ("near", "images that look alike")):
            count = sum(chosen(group) for group in self.duplicates if group.kind == kind)
            yield count, f"group of {images} {one}", f"groups of {images} {several}", what

    def to_json(self) -> dict[str, Any]:
        """Return everything but the images as JSON values."""
        values = dataclasses.asdict(dataclasses.replace(self, sheet=b"", thumbnails={}))
        del values["sheet"], values["thumbnails"]
        return {**values, "imbalance": self.imbalance, "leaks": self.leaks, "problems": self.problems()}


def check_data(
    data: str | Path,
    *,
    classes: Reading | None = None,
    classifier: Classifier | str | Path | None = None,
    listener: Listener = show,
) -> DataCheck:
    """Look at every image of a dataset; nothing of it is changed.

    Args:
        data: what `open_data` takes; an endless source is not looked at as a whole, only its validation split.
        classes: of nested folders, which one names the class; see `open_data`.
        classifier: doubts labels, if there is one; itself, or whatever `load` takes.
        listener: hears progress.

    Raises:
        DataError: there is no such data set.
        WeightsError: there is no such classifier.
    """
    judge = None if classifier is None else as_classifier(classifier)
    found = open_data(data, classes=classes, skip_bad_images=True, verify=False, listener=listener)
    looks: list[Look] = []
    bad: list[BadImage] = list(found.bad_images)
    splits = {split: source for split, source in found.splits.items() if not source.endless}
    total = sum(map(len, splits.values()))
    for split, source in splits.items():
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for seen in pool.map(_looker(found, split, source), range(len(source))):
                (looks if isinstance(seen, Look) else bad).append(seen)  # type: ignore[arg-type]
                listener(Progress("check", len(looks) + len(bad), max(total, len(looks) + len(bad))))
    middle = float(np.median([min(look.height, look.width) for look in looks])) if looks else 0.0
    suspects = [] if judge is None else _suspects(judge, found, listener)
    duplicates = sorted([*_exact(looks), *_near(looks)], key=lambda group: (not group.leaks, not group.contradicts))
    return DataCheck(
        name=found.name,
        fingerprint=found.fingerprint,
        class_names=found.class_names,
        counts=_counts(found, looks),
        bad=tuple(bad),
        suspicious=tuple(itertools.chain.from_iterable(_odd(look, middle) for look in looks)),
        duplicates=tuple(duplicates),
        suspects=tuple(suspects),
        widths=_spread([look.width for look in looks]),
        heights=_spread([look.height for look in looks]),
        formats=dict(Counter(look.format for look in looks).most_common()),
        size=sum(look.size for look in looks),
        mean=_channels(looks)[0],
        std=_channels(looks)[1],
        notes=(*found.notes, *_unread(found, splits, looks)),
        sheet=_sheet(found, looks),
        shared_out=found.shared_out,
        thumbnails=thumbnails(found, _places(looks, duplicates, suspects)),
    )


def _classes(data: DataSet, source: Source, index: int) -> tuple[str, ...]:
    label = source.label(index)
    return tuple(data.class_names[one] for one in (label if isinstance(label, tuple) else (label,)))


def _unread(data: DataSet, splits: Mapping[str, Source], looks: Sequence[Look]) -> list[str]:
    every = (_classes(data, source, index) for source in splits.values() for index in range(len(source)))
    return unread_classes(set(itertools.chain.from_iterable(every)), {name for look in looks for name in look.classes})


def _looker(data: DataSet, split: str, source: Source) -> Callable[[int], Look | BadImage]:
    def look(index: int) -> Look | BadImage:
        name = source.describe(index)
        classes = _classes(data, source, index)
        try:
            encoded = getattr(source, "encoded", None)
            content = None if encoded is None else encoded(index)
            pixels = source.image(index)
        except ImageError as error:
            return BadImage(name, str(error).rstrip("."))
        raw = content.read_bytes() if isinstance(content, Path) else content
        kind = "pixels" if raw is None else _format(raw)
        small = Image.fromarray(pixels)
        values = pixels.reshape(-1, 3)[:: max(1, pixels.size // 3 // 4096)].astype(np.float64) / 255
        mean, square = values.mean(axis=0), (values**2).mean(axis=0)
        return Look(
            split=split,
            index=index,
            name=name,
            classes=classes,
            height=pixels.shape[0],
            width=pixels.shape[1],
            size=len(raw) if raw is not None else pixels.nbytes,
            format=kind,
            digest=hashlib.sha256(pixels.tobytes()).hexdigest(),
            perceptual=int(str(imagehash.phash(small)), 16),
            mean=(float(mean[0]), float(mean[1]), float(mean[2])),
            square=(float(square[0]), float(square[1]), float(square[2])),
            deviation=float(pixels.std()),
        )

    return look


def _format(content: bytes) -> str:
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        # Not the number of frames, for which every one of them would be read.
        animated = " animated" if getattr(image, "is_animated", False) else ""
        return f"{image.format} {image.mode}{animated}"


def _odd(look: Look, middle: float) -> Iterator[Finding]:
    if look.deviation < FLAT:
        yield Finding(look.name, "one colour only")
    if min(look.height, look.width) < TINY and middle >= 2 * TINY:
        yield Finding(look.name, f"only {look.width}x{look.height} pixels, where most are larger")
    if max(look.height, look.width) > LONG * min(look.height, look.width):
        yield Finding(look.name, f"{look.width}x{look.height} pixels: very long for its width")
    if "animated" in look.format:
        yield Finding(look.name, "animated: only the first frame is used")
    suffix = Path(look.name).suffix.lower().lstrip(".")
    known = {"jpg": "JPEG", "jpeg": "JPEG", "jpe": "JPEG", "jfif": "JPEG"}.get(suffix, suffix.upper())
    if known in FORMATS and not look.format.startswith((known, "pixels")):
        yield Finding(look.name, f"named .{suffix}, but it is {look.format.split()[0]}")


def _exact(looks: Sequence[Look]) -> Iterator[Duplicates]:
    groups: dict[tuple[str, int, int], list[Look]] = defaultdict(list)
    for look in looks:
        groups[look.digest, look.height, look.width].append(look)
    yield from (_group("exact", group) for group in groups.values() if len(group) > 1)


def _near(looks: Sequence[Look]) -> Iterator[Duplicates]:
    """Give groups that are linked by pairs whose hashes differ in few bits; equal pixels are left to `_exact`."""
    varied = [look for look in looks if look.deviation >= FLAT]
    first_of = {look.digest: place for place, look in reversed(list(enumerate(varied)))}
    distinct = sorted(first_of.values())
    hashes = np.array([varied[place].perceptual for place in distinct], dtype=np.uint64)
    parent = list(range(len(distinct)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for one, other in near_pairs(hashes, NEAR):
        parent[root(one)] = root(other)
    groups: dict[int, list[Look]] = defaultdict(list)
    for place, look in enumerate(distinct):
        groups[root(place)].append(varied[look])
    yield from (_group("near", group) for group in groups.values() if len(group) > 1)


def _group(kind: str, looks: Sequence[Look]) -> Duplicates:
    return Duplicates(
        kind,
        tuple(look.name for look in looks),
        tuple(look.split for look in looks),
        tuple(", ".join(look.classes) for look in looks),
    )


def _suspects(classifier: Classifier, data: DataSet, listener: Listener) -> list[Suspect]:
    if data.multi_label or classifier.multi_label or not set(data.class_names) <= set(classifier.class_names):
        return []
    columns = np.array([classifier.class_names.index(name) for name in data.class_names])
    found: list[Suspect] = []
    for split, source in data.splits.items():
        if source.endless:
            continue
        readable = _Readable(source)
        values, labels = predict_probabilities(classifier, readable, listener=listener)
        probabilities, truth = values.numpy(), columns[labels.numpy()]
        own = probabilities[np.arange(len(truth)), truth]
        surest = probabilities.argmax(axis=1)
        for row in np.flatnonzero((own < DOUBTED) & (probabilities.max(axis=1) > SURE)).tolist():
            found.append(
                Suspect(
                    name=readable.describe(row),
                    split=split,
                    label=classifier.class_names[truth[row]],
                    predicted=classifier.class_names[surest[row]],
                    probability=float(probabilities[row].max()),
                    own_probability=float(own[row]),
                )
            )
    return sorted(found, key=lambda suspect: suspect.own_probability - suspect.probability)


class _Readable:
    """A source in which an image that cannot be read is grey, so that the others can be judged."""

    endless = False
    shards: tuple[int, ...] = ()

    def __init__(self, source: Source) -> None:
        self._source = source
        self.label, self.labels, self.describe = source.label, source.labels, source.describe

    def __len__(self) -> int:
        return len(self._source)

    def image(self, index: int, shrink: object = None) -> Pixels:
        try:
            return self._source.image(index)
        except ImageError:
            return np.full((8, 8, 3), 128, dtype=np.uint8)


def _counts(data: DataSet, looks: Sequence[Look]) -> dict[str, dict[str, int]]:
    counts = {split: dict.fromkeys(data.class_names, 0) for split in data.splits}
    for look in looks:
        for name in look.classes:
            counts[look.split][name] += 1
    return counts


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    return (min(values), int(np.median(values)), max(values)) if values else (0, 0, 0)


def _channels(looks: Sequence[Look]) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    if not looks:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    mean = np.mean([look.mean for look in looks], axis=0)
    std = np.sqrt(np.maximum(np.mean([look.square for look in looks], axis=0) - mean**2, 0))
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(std[0]), float(std[1]), float(std[2]))


def _places(
    looks: Sequence[Look], duplicates: Sequence[Duplicates], suspects: Sequence[Suspect]
) -> Iterator[tuple[str, str, int]]:
    """Give split, name and place of the images that a page shows small: those of the first groups and doubtful labels."""
    wanted = {(suspect.split, suspect.name) for suspect in suspects[:SHOWN]}
    for group in duplicates[:SHOWN]:
        wanted.update(list(zip(group.splits, group.names, strict=True))[:SHOWN_OF_GROUP])
    for look in looks:
        if (look.split, look.name) in wanted:
            yield look.split, look.name, look.index


def _sheet(data: DataSet, looks: Sequence[Look]) -> bytes:
    """Draw some images of as many classes as there is room for, chosen by a fixed seed."""
    if not looks:
        return b""
    order = generator(0, "contact sheet").permutation(len(looks))
    by_class: dict[tuple[str, ...], list[Look]] = defaultdict(list)
    for place in order.tolist():
        by_class[looks[place].classes].append(looks[place])
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*by_class.values()))
    chosen = sorted(
        itertools.islice((look for look in rounds if look is not None), SHEET),
        key=lambda look: [data.class_names.index(name) for name in look.classes],
    )
    images = [thumbnail(data.splits[look.split].image(look.index)) for look in chosen]
    return contact_sheet(images, [", ".join(look.classes) or "none" for look in chosen])

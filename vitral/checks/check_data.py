"""What is in a dataset before anything is trained on it: counts, sizes, damage, duplicates, leaks, doubtful labels.

Images are the same if their pixels are equal, and nearly if they look alike; see `vitral.images.look_alikes`.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vitral.checks.findings import DataCheck, Duplicates, InspectedImage, Suspect, inspect, label_names, oddities
from vitral.checks.marked import RegionCheck, check_regions
from vitral.checks.suspects import FEWEST, find_suspects
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.batch import evenly
from vitral.data.classes import Reading
from vitral.data.names import unread_classes
from vitral.data.open import open_data
from vitral.data.source import BadImage, DataSet
from vitral.events import Listener, Progress, show
from vitral.images.decode import Pixels
from vitral.images.drawing import contact_sheet, thumbnail
from vitral.images.look_alikes import look_alikes
from vitral.seeds import generator
from vitral.tasks.drawn_regions import drawn_regions
from vitral.tasks.regions import Regions
from vitral.tasks.semantic import SEMANTIC

SHEET = 48  # images on the contact sheet
DRAWN = 12  # images with regions on a contact sheet
DRAWN_SIDE = 400  # pixels of the longer side of each of them
SHOWN = 40  # groups of duplicates and doubtful labels with thumbnails
SHOWN_OF_GROUP = 6  # images of a group
UNDOUBTED = f"No label was doubted: images need one class each, and at least two classes {FEWEST} images."


def duplicates(inspected: Sequence[InspectedImage]) -> list[Duplicates]:
    """Return the groups of duplicates: those across splits first, then those with contradictory classes."""
    groups = [*_exact(inspected), *_near(inspected)]
    return sorted(groups, key=lambda group: (not group.leaks, not group.contradicts))


def _exact(inspected: Sequence[InspectedImage]) -> Iterator[Duplicates]:
    groups: dict[tuple[str, int, int], list[InspectedImage]] = defaultdict(list)
    for image in inspected:
        groups[image.digest, image.height, image.width].append(image)
    yield from (_group("exact", group) for group in groups.values() if len(group) > 1)


def _near(inspected: Sequence[InspectedImage]) -> Iterator[Duplicates]:
    """Give groups of images that look alike, however indirectly; equal pixels are left to `_exact`."""
    distinct = list({image.digest: image for image in reversed(inspected)}.values())[::-1]  # the first of equal ones
    groups: dict[int, list[InspectedImage]] = defaultdict(list)
    for image, number in zip(distinct, look_alikes([image.look for image in distinct]), strict=True):
        groups[number].append(image)
    yield from (_group("near", group) for group in groups.values() if len(group) > 1)


def _group(kind: str, inspected: Sequence[InspectedImage]) -> Duplicates:
    return Duplicates(
        kind,
        tuple(image.name for image in inspected),
        tuple(image.split for image in inspected),
        tuple(", ".join(image.classes) for image in inspected),
    )


def check_data(
    data: str | Path,
    *,
    classes: Reading | None = None,
    group: str | None = None,
    classifier: Classifier | str | Path | None = None,
    listener: Listener = show,
) -> DataCheck:
    """Look at every image of a dataset; nothing of it is changed.

    Args:
        data: What `open_data` takes; an endless source is not looked at as a whole, only its validation split.
        classes: The folder that names the class where folders are nested; see `open_data`.
        group: What tells images that belong together; a note says of groups that several splits share. See `open_data`.
        classifier: The classifier whose features doubt labels, or whatever `load` takes; None for no doubts.
        listener: The receiver of progress.

    Raises:
        DataError: There is no such dataset.
        WeightsError: There is no such classifier.
        ModelError: The classifier has no features to show.
    """
    judge = None if classifier is None else as_classifier(classifier, listener)
    dataset = open_data(data, classes=classes, group=group, skip_bad_images=True, verify=False, listener=listener)
    inspected, bad = _inspect_all(dataset, listener)
    groups = duplicates(inspected)
    doubts = None if judge is None else find_suspects(judge, dataset, inspected, listener)
    median_side = float(np.median([min(image.height, image.width) for image in inspected])) if inspected else 0.0
    mean, std = _channels(inspected)
    return DataCheck(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        class_names=dataset.class_names,
        counts=_counts(dataset, inspected),
        images=_images(dataset, inspected),
        unlabelled=_images(dataset, [image for image in inspected if not image.classes]),
        bad=(*dataset.bad_images, *bad),
        suspicious=tuple(itertools.chain.from_iterable(oddities(image, median_side) for image in inspected)),
        duplicates=tuple(groups),
        doubts=doubts,
        widths=_spread([image.width for image in inspected]),
        heights=_spread([image.height for image in inspected]),
        formats=dict(Counter(image.format for image in inspected).most_common()),
        size=sum(image.size for image in inspected),
        mean=mean,
        std=std,
        notes=(*dataset.notes, *_unread(dataset, inspected), *([UNDOUBTED] if judge and doubts is None else [])),
        sheet=_sheet(dataset, inspected),
        shared_out=dataset.shared_out,
        regions=_regions(dataset, inspected) if dataset.task.dense else None,
        thumbnails=_thumbnails(dataset, inspected, groups, () if doubts is None else doubts.suspects),
    )


def _finite(data: DataSet) -> dict[str, int]:
    """Return the sizes of the splits that can be looked at as a whole."""
    return {split: len(source) for split, source in data.splits.items() if not source.endless}


def _inspect_all(data: DataSet, listener: Listener) -> tuple[list[InspectedImage], list[BadImage]]:
    """Look at every image of every finite split; return the looks and the images that cannot be read."""
    inspected: list[InspectedImage] = []
    bad: list[BadImage] = []
    before = len(data.bad_images)  # those that are in no split any more
    total = before + sum(_finite(data).values())
    for seen in itertools.chain.from_iterable(inspect(data, split) for split in _finite(data)):
        if isinstance(seen, InspectedImage):
            inspected.append(seen)
        else:
            bad.append(seen)
        listener(Progress("check", before + len(inspected) + len(bad), total))
    return inspected, bad


def _regions(data: DataSet, inspected: Sequence[InspectedImage]) -> RegionCheck:
    looks = [(image.split, image.name, image.regions) for image in inspected if image.regions is not None]
    return check_regions(looks, data.class_names, [*data.splits], data.notes)


def _unread(data: DataSet, inspected: Sequence[InspectedImage]) -> list[str]:
    if data.task.dense:  # the classes without a region are said
        return []
    every = (label_names(data, split, index) for split, size in _finite(data).items() for index in range(size))
    return unread_classes(
        set(itertools.chain.from_iterable(every)), {name for image in inspected for name in image.classes}
    )


def _counts(data: DataSet, inspected: Sequence[InspectedImage]) -> dict[str, dict[str, int]]:
    counts = {split: dict.fromkeys(data.class_names, 0) for split in data.splits}
    for image in inspected:
        for name in image.classes:
            counts[image.split][name] += 1
    return counts


def _images(data: DataSet, inspected: Iterable[InspectedImage]) -> dict[str, int]:
    found = Counter(image.split for image in inspected)
    return {split: found[split] for split in data.splits}


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    return (min(values), int(np.median(values)), max(values)) if values else (0, 0, 0)


def _channels(inspected: Sequence[InspectedImage]) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    if not inspected:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    mean = np.mean([image.mean for image in inspected], axis=0)
    std = np.sqrt(np.maximum(np.mean([image.square for image in inspected], axis=0) - mean**2, 0))
    return (float(mean[0]), float(mean[1]), float(mean[2])), (float(std[0]), float(std[1]), float(std[2]))


def _thumbnails(
    data: DataSet, inspected: Sequence[InspectedImage], groups: Sequence[Duplicates], doubtful: Sequence[Suspect]
) -> dict[tuple[str, str], Pixels]:
    """Return, by split and name, the images that a page shows small: those of the first groups and doubtful labels."""
    wanted = {(suspect.split, suspect.name) for suspect in doubtful[:SHOWN]}
    for group in groups[:SHOWN]:
        wanted.update(list(zip(group.splits, group.names, strict=True))[:SHOWN_OF_GROUP])
    chosen = (image for image in inspected if (image.split, image.name) in wanted)
    return {(image.split, image.name): thumbnail(data.splits[image.split].image(image.index)) for image in chosen}


def _sheet(data: DataSet, inspected: Sequence[InspectedImage]) -> bytes:
    """Draw some images of as many classes as there is room for, chosen by a fixed seed."""
    if not inspected:
        return b""
    order = generator(0, "contact sheet").permutation(len(inspected))
    by_class: dict[tuple[str, ...], list[InspectedImage]] = defaultdict(list)
    for index in order.tolist():
        by_class[inspected[index].classes].append(inspected[index])
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*by_class.values()))
    chosen = sorted(
        itertools.islice((image for image in rounds if image is not None), SHEET),
        key=lambda image: [data.class_names.index(name) for name in image.classes],
    )
    if data.task.dense:
        return _sheet_of_regions(data, evenly(chosen, DRAWN))
    images = [thumbnail(data.splits[image.split].image(image.index)) for image in chosen]
    return contact_sheet(images, [", ".join(image.classes) or "none" for image in chosen])


def _sheet_of_regions(data: DataSet, chosen: Sequence[InspectedImage]) -> bytes:
    """Draw images with their regions, each over its name."""
    images = []
    for image in chosen:
        source = data.splits[image.split]
        regions = source.label(image.index)
        assert isinstance(regions, Regions), "the label of another task"
        drawn = drawn_regions(
            source.image(image.index), regions, data.class_names, counted=data.task != SEMANTIC, legend=False
        )
        images.append(thumbnail(drawn, DRAWN_SIDE))
    return contact_sheet(images, [image.name.rpartition("/")[2] for image in chosen], columns=3, cell=DRAWN_SIDE)

"""What is in a dataset before anything is trained on it: counts, sizes, damage, duplicates, leaks, doubtful labels."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitral.checks.duplicates import duplicates
from vitral.checks.findings import DataCheck, Duplicates, Suspect
from vitral.checks.looks import Look, label_names, look_at, oddities
from vitral.checks.suspects import suspects
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.names import unread_classes
from vitral.data.open import open_data
from vitral.data.source import BadImage, DataSet
from vitral.events import Listener, Progress
from vitral.images.decode import Pixels
from vitral.images.drawing import contact_sheet
from vitral.images.encode import thumbnail
from vitral.progress import show
from vitral.seeds import generator

SHEET = 48  # images on the contact sheet
SHOWN = 40  # groups of duplicates and doubtful labels with thumbnails
SHOWN_OF_GROUP = 6  # images of a group


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
        listener: receives progress.

    Raises:
        DataError: there is no such dataset.
        WeightsError: there is no such classifier.
    """
    judge = None if classifier is None else as_classifier(classifier, listener)
    dataset = open_data(data, classes=classes, skip_bad_images=True, verify=False, listener=listener)
    looks, bad = _look_at_all(dataset, listener)
    groups = duplicates(looks)
    doubtful = [] if judge is None else suspects(judge, dataset, looks, listener)
    median_side = float(np.median([min(look.height, look.width) for look in looks])) if looks else 0.0
    mean, std = _channels(looks)
    return DataCheck(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        class_names=dataset.class_names,
        counts=_counts(dataset, looks),
        bad=(*dataset.bad_images, *bad),
        suspicious=tuple(itertools.chain.from_iterable(oddities(look, median_side) for look in looks)),
        duplicates=tuple(groups),
        suspects=tuple(doubtful),
        widths=_spread([look.width for look in looks]),
        heights=_spread([look.height for look in looks]),
        formats=dict(Counter(look.format for look in looks).most_common()),
        size=sum(look.size for look in looks),
        mean=mean,
        std=std,
        notes=(*dataset.notes, *_unread(dataset, looks)),
        sheet=_sheet(dataset, looks),
        shared_out=dataset.shared_out,
        thumbnails=_thumbnails(dataset, looks, groups, doubtful),
    )


def _finite(data: DataSet) -> dict[str, int]:
    """Return the sizes of the splits that can be looked at as a whole."""
    return {split: len(source) for split, source in data.splits.items() if not source.endless}


def _look_at_all(data: DataSet, listener: Listener) -> tuple[list[Look], list[BadImage]]:
    """Look at every image of every finite split; return the looks and the images that cannot be read."""
    looks: list[Look] = []
    bad: list[BadImage] = []
    before = len(data.bad_images)  # those that are in no split any more
    total = before + sum(_finite(data).values())
    for seen in itertools.chain.from_iterable(look_at(data, split) for split in _finite(data)):
        if isinstance(seen, Look):
            looks.append(seen)
        else:
            bad.append(seen)
        listener(Progress("check", before + len(looks) + len(bad), total))
    return looks, bad


def _unread(data: DataSet, looks: Sequence[Look]) -> list[str]:
    every = (label_names(data, split, index) for split, size in _finite(data).items() for index in range(size))
    return unread_classes(set(itertools.chain.from_iterable(every)), {name for look in looks for name in look.classes})


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


def _thumbnails(
    data: DataSet, looks: Sequence[Look], groups: Sequence[Duplicates], doubtful: Sequence[Suspect]
) -> dict[tuple[str, str], Pixels]:
    """Return, by split and name, the images that a page shows small: those of the first groups and doubtful labels."""
    wanted = {(suspect.split, suspect.name) for suspect in doubtful[:SHOWN]}
    for group in groups[:SHOWN]:
        wanted.update(list(zip(group.splits, group.names, strict=True))[:SHOWN_OF_GROUP])
    shown = (look for look in looks if (look.split, look.name) in wanted)
    return {(look.split, look.name): thumbnail(data.splits[look.split].image(look.index)) for look in shown}


def _sheet(data: DataSet, looks: Sequence[Look]) -> bytes:
    """Draw some images of as many classes as there is room for, chosen by a fixed seed."""
    if not looks:
        return b""
    order = generator(0, "contact sheet").permutation(len(looks))
    by_class: dict[tuple[str, ...], list[Look]] = defaultdict(list)
    for index in order.tolist():
        by_class[looks[index].classes].append(looks[index])
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*by_class.values()))
    chosen = sorted(
        itertools.islice((look for look in rounds if look is not None), SHEET),
        key=lambda look: [data.class_names.index(name) for name in look.classes],
    )
    images = [thumbnail(data.splits[look.split].image(look.index)) for look in chosen]
    return contact_sheet(images, [", ".join(look.classes) or "none" for look in chosen])

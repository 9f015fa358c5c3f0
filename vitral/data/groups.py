"""Images that belong together, of which none is scored if another is trained on: those that look alike, and a user's groups."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from vitral.advice import argument, counted
from vitral.data.names import series_in, some
from vitral.data.source import Routine, Splits, mark
from vitral.data.stored import Entry
from vitral.images.look_alikes import Links
from vitral.seeds import generator

SERIAL_SHARE = 0.2  # of the images that are numbered like series, from which it is said
ENOUGH = 10  # images of a class that must be scored even if they all look alike
Indices = Int64[np.ndarray, " examples"]


@dataclass(frozen=True, eq=False)
class Kin:
    """Which images belong together, by their indices in the store.

    Attributes:
        alike: A number that images have in common which look alike; images that look like no other are not in it.
        column: What the user's groups are called.
        values: Each image's group of the user; images in none are not in it.
    """

    alike: Mapping[int, int] = field(default_factory=dict)
    column: str | None = None
    values: Mapping[int, str] = field(default_factory=dict)

    def marks(self, entries: Iterable[Entry]) -> str:
        """Return how data were split, as their fingerprint says it; see `vitral.data.source.mark`."""
        entries = list(entries)
        alike, values = (
            _hash((entry.name, groups[entry.store_index]) for entry in entries if entry.store_index in groups)
            for groups in (self.alike, self.values)
        )
        return mark(alike if self.alike else None, values, self.column)

    def together(self, splits: Splits, contents: Mapping[int, str]) -> dict[str, Indices]:
        """Return by split a number for each image that those have in common which belong together."""
        roots = self.links([entry for images in splits.values() for entry in images], contents, alike=self.alike)
        ends = np.cumsum([len(images) for images in splits.values()])[:-1]
        return dict(zip(splits, np.split(np.array(roots, dtype=np.int64), ends), strict=True))

    def links(self, entries: Sequence[Entry], contents: Mapping[int, str], *, alike: Mapping[int, int]) -> list[int]:
        """Return of each image the first that it belongs together with, images of equal bytes among them."""
        links = Links(len(entries))
        for groups in (contents, self.values, alike):
            keys = ((index, groups.get(entry.store_index)) for index, entry in enumerate(entries))
            links.join_equal((index, key) for index, key in keys if key not in (None, ""))
        return links.roots()


def _hash(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a hash of a partition, given as names with what they have in common."""
    members: dict[object, list[str]] = defaultdict(list)
    for name, group in pairs:
        members[group].append(name)
    text = "\n".join(sorted("\t".join(sorted(names)) for names in members.values()))
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def split_kin(
    entries: Sequence[Entry],
    classes: Sequence[Sequence[int]],
    shares: Sequence[float],
    contents: Mapping[int, str],
    kin: Kin,
    notes: list[str],
    *,
    seed: int,
) -> list[list[int]]:
    """Split images so that those that belong together stay together; see `split_groups`.

    Where all images of a class look alike, it could not be scored: they are then shared out like others, which a note says.
    """
    parts = len(shares) + 1
    alike = dict(kin.alike)
    groups, apart = (kin.links(entries, contents, alike=each) for each in (alike, {}))
    counts, without = (_groups_of(classes, each) for each in (groups, apart))
    sizes = Counter(label for labels in classes for label in set(labels))
    monotonous = {label for label, size in sizes.items() if counts[label] < parts <= without[label] and size >= ENOUGH}
    if monotonous:
        let_go = {
            alike[entry.store_index]
            for entry, labels in zip(entries, classes, strict=True)
            if entry.store_index in alike and monotonous & set(labels)
        }
        alike = {index: group for index, group in alike.items() if group not in let_go}
        groups = kin.links(entries, contents, alike=alike)
        names = {
            entry.classes[labels.index(label)]
            for entry, labels in zip(entries, classes, strict=True)
            for label in set(labels) & monotonous
        }
        notes.append(
            f"Nearly all images of {some(names)} look alike, so that they are in several splits: scores may be "
            "too good."
        )
    if together := len(set(alike.values())):
        notes.append(Routine(f"Images that look alike are in the same split: {counted(together, 'group')}."))
    if kin.column is not None:
        notes += _in_too_few(kin.column, entries, classes, _groups_of(classes, groups), parts)
        alone = sum(entry.store_index not in kin.values for entry in entries)
        there = {kin.values[entry.store_index] for entry in entries if entry.store_index in kin.values}
        notes.append(
            f"Images of one {kin.column} are in the same split: {counted(len(there), 'group')}"
            + (f"; {counted(alone, 'image is', 'images are')} in none." if alone else ".")
        )
    return [part.tolist() for part in split_groups(classes, groups, shares, seed=seed, purpose="folder")]


def _in_too_few(
    column: str, entries: Sequence[Entry], classes: Sequence[Sequence[int]], counts: Mapping[int, int], parts: int
) -> list[str]:
    """Return a note on the classes that are in fewer groups than there are parts; none where there are none."""
    labelled = zip(entries, classes, strict=True)
    names = {
        name
        for entry, labels in labelled
        for name, label in zip(entry.classes, labels, strict=False)
        if counts[label] < parts
    }
    return (
        [f"In fewer than {parts} groups by {column}, so that not every split has images of it: {some(names)}."]
        if names
        else []
    )


def _groups_of(classes: Sequence[Sequence[int]], groups: Sequence[int]) -> Counter[int]:
    """Return in how many groups each class is."""
    return Counter(
        label
        for label, _ in {(label, group) for labels, group in zip(classes, groups, strict=True) for label in labels}
    )


def split_groups(
    classes: Sequence[Sequence[int]], groups: Sequence[int], shares: Sequence[float], *, seed: int, purpose: str
) -> list[Indices]:
    """Split images by whole groups, class by class as far as these allow it.

    The largest groups come first; each goes where most is missing of its classes. A class in at least as many groups as there
    are parts is in every part, unless others that share its groups prevent that; of another class the first part takes all.
    Shares, seed and purpose are those of `stratified`.

    Returns:
        The indices of each part, ascending.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    labels = {
        group: Counter(label for index in indices for label in classes[index]) for group, indices in members.items()
    }
    sizes = Counter(label for each in classes for label in each)
    left = Counter(label for counted in labels.values() for label in counted)
    missing: list[dict[int, float]] = [{} for _ in range(len(shares) + 1)]
    for label, size in sizes.items():
        counts = [max(1, round(share * size)) if left[label] > len(shares) else 0 for share in shares]
        for part, count in zip(missing, (size - sum(counts), *counts), strict=True):
            part[label] = count
    wanted = [{label for label, count in part.items() if count > 0} for part in missing]
    order = generator(seed, f"split/{purpose}/groups").permutation(list(members)).tolist()
    parts: list[list[int]] = [[] for _ in missing]
    for group in sorted(order, key=lambda group: -len(members[group])):
        counted = labels[group]
        lacking = [
            part
            for part in range(len(parts))
            if any(label in wanted[part] and _last(label, wanted, left) for label in counted)
        ]
        need = {
            part: sum(count * missing[part][label] / sizes[label] for label, count in counted.items())
            for part in lacking or range(len(parts))
        }
        chosen = max(need, key=lambda part: need[part])
        parts[chosen].append(group)
        wanted[chosen] -= set(counted)
        for label, count in counted.items():
            missing[chosen][label] -= count
            left[label] -= 1
    keep_trained(parts, labels)
    return [np.array(sorted(index for group in part for index in members[group]), dtype=np.int64) for part in parts]


def _last(label: int, wanted: Sequence[set[int]], left: Mapping[int, int]) -> bool:
    """Tell whether no more groups are left of a class than there are parts without it."""
    return left[label] <= sum(label in part for part in wanted)


def keep_trained(parts: list[list[int]], labels: Mapping[int, Iterable[int]]) -> None:
    """Move groups to the first part where needed, so that every class is in it."""
    have = {label for group in parts[0] for label in labels[group]}
    for part in parts[1:]:
        for group in list(part):
            if not set(labels[group]) <= have:
                part.remove(group)
                parts[0].append(group)
                have |= set(labels[group])


def shared_groups(kin: Kin, splits: Splits) -> list[str]:
    """Return a note on the user's groups of which images are in several splits; none where there are none."""
    where: dict[str, set[str]] = defaultdict(set)
    for split, images in splits.items():
        for entry in images:
            if (value := kin.values.get(entry.store_index)) is not None:
                where[value].add(split)
    shared = {value: found for value, found in where.items() if len(found) > 1}
    if not shared:
        return []
    found = " and ".join(split for split in splits if any(split in each for each in shared.values()))
    return [
        f"{len(shared):,} of {len(where):,} groups by {kin.column} are in several splits ({found}): {some(shared)}. "
        "Scores would be too good."
    ]


def series_note(splits: Mapping[str, list[Entry]], made: Collection[str]) -> list[str]:
    """Return a note on images whose numbering looks like series that the splits made may part; none where few do."""
    images = [(entry.name, entry.classes) for split in made for entry in splits[split]]
    series = series_in(images)
    count = sum(map(len, series.values()))
    if not series or count < SERIAL_SHARE * len(images):
        return []
    example = ", ".join(map(os.path.basename, next(iter(series.values()))[:2]))
    return [
        f"{count:,} images are numbered like {len(series):,} series, such as {example}: if those of one series show the same "
        f"thing, keep each in one split, by {argument('group', 'series')} or another."
    ]

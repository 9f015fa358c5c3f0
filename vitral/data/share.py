"""Sharing images out over splits that the data does not have, equal images always on one side.

An image that is trained on and scored on, too, makes the score too good; so those of the same bytes stay together, counted as
one of the first one's class.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from vitral.data.names import ALL
from vitral.data.splits import stratified
from vitral.data.stored import Entry

SPLIT_SEED = 0  # fixed, so that a data set is shared out the same way whenever it is opened
SHARE = 0.1  # of the images of a class for validation, and for test


def share_out(
    entries: Mapping[str, list[Entry]],
    names: Sequence[str],
    notes: list[str],
    contents: Mapping[int, str],
    *,
    whole: bool,
) -> dict[str, list[Entry]]:
    """Return the images by "train", "validation" and "test", as the data has them or shared out by class.

    Args:
        entries: by split, or under "all" without splits.
        names: of the classes, in order.
        notes: what is decided is added here.
        contents: a hash of the bytes of images by their place; what has none is equal to none.
        whole: whether data without splits are all for scoring.
    """
    splits = dict(entries)
    if ALL in entries and whole:
        notes.append("The data has no train and test split and is not what was trained on, so all of it is scored.")
        return {"test": entries[ALL]}
    if ALL in entries:
        parts = _stratify(entries[ALL], names, (SHARE, SHARE), contents, notes)
        notes.append(
            "No train/ folder, so the images of each class were shared out: 80 % train, 10 % validation and test."
        )
        splits = dict(zip(("train", "validation", "test"), parts, strict=True))
    elif "train" in entries and "validation" not in entries:
        train, validation = _stratify(entries["train"], names, (SHARE,), contents, notes)
        notes.append("No val/ folder, so 10 % of the training images of each class became the validation split.")
        splits = {**entries, "train": train, "validation": validation}
    if "test" not in splits:
        notes.append("No test/ folder: scores are of the validation split.")
    return {split: chosen for split, chosen in splits.items() if chosen}


def _stratify(
    entries: list[Entry], names: Sequence[str], shares: tuple[float, ...], contents: Mapping[int, str], notes: list[str]
) -> list[list[Entry]]:
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[entry.classes[0]] if entry.classes else -1 for entry in entries], dtype=np.int64)
    first: dict[str, int] = {}
    members: dict[int, list[int]] = defaultdict(list)
    for place, entry in enumerate(entries):
        content = contents.get(entry.place)
        members[first.setdefault(content, place) if content else place].append(place)
    if several := sum(len(places) > 1 for places in members.values()):
        notes.append(
            f"Equal images, {several} groups of them, were kept on one side each where the images were shared out."
        )
    firsts = np.array(list(members), dtype=np.int64)
    parts = [firsts[part].tolist() for part in stratified(labels[firsts], shares, seed=SPLIT_SEED, purpose="folder")]
    _keep_classes(parts, {group: set(labels[places].tolist()) for group, places in members.items()})
    return [[entries[place] for place in sorted(place for group in part for place in members[group])] for part in parts]


def _keep_classes(parts: list[list[int]], classes: Mapping[int, set[int]]) -> None:
    """Move what is needed to the first part, so that a class whose images all equal another's is trained on, too."""
    have = {label for group in parts[0] for label in classes[group]}
    for part in parts[1:]:
        for group in list(part):
            if not classes[group] <= have:
                part.remove(group)
                parts[0].append(group)
                have |= classes[group]

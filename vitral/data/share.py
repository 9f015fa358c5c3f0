"""Splitting data that have no splits, with identical images always in the same split.

An image that is both trained on and scored makes the score too good; so images of the same bytes stay together, and count
as one image of the first one's class.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from vitral.data.names import ALL
from vitral.data.splits import stratified
from vitral.data.stored import Entry

SPLIT_SEED = 0  # fixed, so that a dataset is split in the same way whenever it is opened
SHARE = 0.1  # fraction of a class's images for validation, and for test


def share_out(
    entries: Mapping[str, list[Entry]],
    names: Sequence[str],
    notes: list[str],
    contents: Mapping[int, str],
    *,
    whole: bool,
    held_out: float = SHARE,
) -> dict[str, list[Entry]]:
    """Return the images by "train", "validation" and "test": the data's own splits, or stratified by class.

    Args:
        entries: by split, or under "all" without splits.
        names: of the classes, in the data's own order.
        notes: decisions are added here.
        contents: hashes of the images' bytes by store index; an image without one equals no other.
        whole: whether data without splits are all for scoring.
        held_out: the share of the training images for validation where there are no images for it; 0 for none.
    """
    splits = dict(entries)
    if ALL in entries and whole:
        notes.append(
            "The data have no train and test splits and are not just as the classifier learned them, so all of them are "
            "scored: too well, if it learned some of these images."
        )
        return {"test": entries[ALL]}
    if ALL in entries:
        parts = _stratify(entries[ALL], names, (SHARE, SHARE), contents, notes)
        notes.append(
            "No train/ folder, so the images of each class were split: 80 % train, 10 % validation, 10 % test."
        )
        splits = dict(zip(("train", "validation", "test"), parts, strict=True))
    elif "train" in entries and "validation" not in entries and held_out:
        train, validation = _stratify(entries["train"], names, (held_out,), contents, notes)
        share = f"{held_out * 100:.2g} %"
        if len(names) > 1:
            notes.append(
                f"No val/ folder, so {share} of the training images of each class became the validation split."
            )
        elif validation:
            notes.append(f"{share} of the images are held out; by them training is followed.")
        splits = {**entries, "train": train, "validation": validation}
    if "test" not in splits and len(names) > 1:
        notes.append("No test/ folder: scores are on the validation split.")
    return {split: images for split, images in splits.items() if images}


def _stratify(
    entries: list[Entry], names: Sequence[str], shares: tuple[float, ...], contents: Mapping[int, str], notes: list[str]
) -> list[list[Entry]]:
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[entry.classes[0]] if entry.classes else -1 for entry in entries], dtype=np.int64)
    first: dict[str, int] = {}
    members: dict[int, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        content = contents.get(entry.store_index)
        members[first.setdefault(content, index) if content else index].append(index)
    if several := sum(len(indices) > 1 for indices in members.values()):
        notes.append(f"Identical images were kept in the same split: {several} groups.")
    firsts = np.array(list(members), dtype=np.int64)
    parts = [firsts[part].tolist() for part in stratified(labels[firsts], shares, seed=SPLIT_SEED, purpose="folder")]
    _keep_classes(parts, {group: set(labels[indices].tolist()) for group, indices in members.items()})
    return [[entries[index] for index in sorted(index for group in part for index in members[group])] for part in parts]


def _keep_classes(parts: list[list[int]], classes: Mapping[int, set[int]]) -> None:
    """Move groups to the first part where needed, so that every class is trained on."""
    have = {label for group in parts[0] for label in classes[group]}
    for part in parts[1:]:
        for group in list(part):
            if not classes[group] <= have:
                part.remove(group)
                parts[0].append(group)
                have |= classes[group]

"""From a list of labelled images to a dataset: checked images, class names in order, splits, a fingerprint."""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from vitral import distributed
from vitral.advice import argument, function
from vitral.data.bad_images import check_few, left_out
from vitral.data.batch import evenly
from vitral.data.groups import Kin, series_note, shared_groups
from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL, doubtful_names, natural_key, side_by_side, some, unread_classes
from vitral.data.part import chosen_part, part_name
from vitral.data.published.imagenet_classes import translated
from vitral.data.source import (
    BadImage,
    DataSet,
    content_hashes,
    drawn,
    fingerprint,
    former_fingerprint,
    hash_contents,
    marked,
    of_part,
    take_inventory,
    whole,
    with_annotations,
)
from vitral.data.stored import Entry, Store, StoredImages
from vitral.data.subset import make_splits
from vitral.described import is_text
from vitral.errors import DataError, ImageError, did_you_mean
from vitral.events import Progress
from vitral.images.augment import Augmentation
from vitral.images.depth import FULL
from vitral.images.look_alikes import Look, look_alikes, look_at_image, small
from vitral.machine import in_threads
from vitral.tasks.class_sizes import class_notes
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.task import Task

AUGMENTATION = Augmentation(crop="inception", min_area=0.25, flip=True, decode="scaled")
# Of data whose regions are marked: things of all sizes, and padding as where photos are shown whole (EoMT's for semantic data).
DENSE_AUGMENTATION = Augmentation(crop="scale-jitter", scales=(0.5, 2.0), flip=True, decode="scaled")
SURVEYED = 200  # 16-bit images that are looked at for the bits that they use at most, evenly spaced
CHECKED = 50_000  # images that are decoded before training at most, evenly spaced
CHECKED_AFAR = 64  # the same for images that are read over a network


# From what groups are called to those of the listed images, by store index; read once.
Groups = Callable[[str], Mapping[int, str]]


def assemble(listing: Listing, how: Opening, groups: Groups | None = None) -> DataSet:
    """Make a dataset from a reader's listing.

    Without splits the images are split 80/10/10 by class; a missing validation split is taken from train, a missing test
    split is left missing. `groups` tells the user's groups, where the images have some.

    Raises:
        DataError: there are no classes, or they do not match the wanted ones; or there are no such groups.
        ImageError: images cannot be read; the first are named, all are counted.
    """
    notes = list(listing.notes)
    if how.group is not None and groups is not None:
        groups(how.group)  # what is no group is refused before the images are decoded
    entries, bad, looks = _check(listing, how, notes)
    notes += unread_classes(_named(listing.entries) | listing.bad_classes, _named(entries))
    entries = _in_the_classifiers_words(entries, listing, how.class_names)
    names = _class_names(listing, entries, how.class_names, notes)
    _refuse_many(listing, names)
    deep: list[int] = []
    contents = hash_contents(listing.store, entries, deep, remote=listing.remote)
    bits = _bits(listing.store, deep, notes)
    marked = with_annotations(contents, listing.annotations)
    prints = (fingerprint(entries, marked), former_fingerprint(entries))
    before = _drawn_before(how, prints, notes)
    others = how.trained_on is not None and not set(map(whole, how.trained_on)) & set(prints)
    kin = _kin(listing, entries, contents, how, before, looks, groups)
    held_out = listing.held_out if how.hold_out or "test" not in entries else 0.0
    order = _own_order(listing, entries, names)
    splits = make_splits(entries, order, notes, contents, whole=others, held_out=held_out, kin=kin)
    made = _made(entries, splits)
    notes += [] if kin is None else shared_groups(kin, splits)
    if listing.task.scored and (kin is None or kin.column is None):
        notes += series_note(splits, made)
    own = f"{prints[0]}{kin.marks(_every(entries)) if kin is not None and made else ''}"
    if how.part is not None and "train" in splits:
        splits["train"] = _part(splits["train"], listing.base, how.part, notes)
    if how.class_names is None:
        notes += [*doubtful_names(names), *_equal_note(_every(entries), contents)]
        if listing.task.exclusive:
            notes += class_notes(name for entry in splits.get("train", []) for name in entry.classes)
    numbers = {name: number for number, name in enumerate(names)}
    return DataSet(
        name=listing.name if how.part is None else part_name(listing.name, how.part),
        class_names=names,
        splits={
            split: StoredImages(
                listing.store,
                [entry.store_index for entry in images],
                [listing.label([numbers[name] for name in entry.classes]) for entry in images],
                _shards(listing, split, entries, images),
                bits,
                [listing.annotations[entry.store_index] for entry in images] if listing.annotations else (),
                numbers,
            )
            for split, images in splits.items()
        },
        augmentation=DENSE_AUGMENTATION if listing.task.dense else AUGMENTATION,
        bad_images=bad,
        notes=tuple(notes),
        fingerprint=own if how.part is None else of_part(own, how.part),
        inventory=take_inventory(splits, marked),
        task=_task(listing, names),
        reading=listing.reading,
        shared_out=made,
        outside=listing.outside,
        bits=bits,
        contents={split: content_hashes(images, contents) for split, images in splits.items()},
        together={} if kin is None else kin.together(splits, contents),
    )


def _task(listing: Listing, names: Sequence[str]) -> Task:
    """Return the task of a listing; of objects and matter it knows which classes are objects."""
    if not isinstance(listing.task, Panoptic):
        return listing.task
    return Panoptic(tuple(number for number, name in enumerate(names) if name in listing.things))


def _bits(store: Store, deep: Sequence[int], notes: list[str]) -> int | None:
    """Return how many bits the values of 16-bit images use, as far as some of them show; note it where it is not all.

    It is one number for all, because the same value is to be the same grey in every image.
    """
    shown = evenly(deep, SURVEYED)
    source = StoredImages(store, shown, [0] * len(shown))

    def used(index: int) -> int:
        try:
            return getattr(source.image(index), "bits", 0)
        except ImageError:  # reported elsewhere
            return 0

    bits = max(in_threads(used, range(len(shown))), default=0) or None
    if bits is not None and bits < FULL:
        notes.append(
            f"The values of the 16-bit images use {bits} bits, so white is {(1 << bits) - 1:,}, not 65,535; the classifier "
            "keeps that."
        )
    return bits


def _every(entries: Mapping[str, list[Entry]]) -> list[Entry]:
    return [entry for images in entries.values() for entry in images]


def _drawn_before(how: Opening, prints: Collection[str], notes: list[str]) -> str | None:
    """Return the known fingerprint of the same data, which says how they were split; None where there is none."""
    known = [each for each in (*how.drawn_as, *(how.trained_on or ())) if whole(each) in prints]
    if known and how.group not in (None, marked(known[0])[1]):
        return None
    if len(set(map(drawn, known))) > 1:
        notes.append(
            "The classifiers were trained on different splits of these data; the images are split as for the first, so that "
            "others may have been trained on some that are scored."
        )
    return known[0] if known else None


def _kin(
    listing: Listing,
    entries: Mapping[str, list[Entry]],
    contents: Mapping[int, str],
    how: Opening,
    before: str | None,
    looks: Mapping[int, Look | None] | None,
    groups: Groups | None,
) -> Kin | None:
    """Return which images belong together; None where each is by itself, but for those of equal bytes.

    Data that were split before are split again in the same way.
    """
    near, column = (True, None) if before is None else marked(before)
    column = how.group or column
    alike: dict[int, int] = {}
    if near and looks is not None:
        indices = [entry.store_index for entry in entries.get(ALL, entries.get("train", []))]
        numbers = dict(zip(indices, look_alikes([looks.get(index) for index in indices]), strict=True))
        different = Counter(number for number, _ in {(numbers[index], contents.get(index, index)) for index in indices})
        alike = {index: number for index, number in numbers.items() if different[number] > 1}
    if column is None:
        return Kin(alike) if alike else None
    if groups is None:
        raise DataError(
            f"The images of '{listing.title}' have no groups, so {argument('group', column)} cannot be honoured."
        )
    return Kin(alike, column, groups(column))


def _part(images: list[Entry], base: str, share: Fraction, notes: list[str]) -> list[Entry]:
    """Return a share of the training images, and note what it is."""
    named = [(image.name.removeprefix(base).lstrip("/"), image.classes) for image in images]
    chosen, more = chosen_part(named, share)
    notes += more
    return [images[index] for index in chosen]


def _in_the_classifiers_words(
    entries: dict[str, list[Entry]], listing: Listing, wanted: Sequence[str] | None
) -> dict[str, list[Entry]]:
    """Return the images with their classes as a classifier names them: ImageNet's have names of several kinds."""
    words = {} if wanted is None or listing.annotations else translated(_named(entries), listing.class_names, wanted)
    if not words:
        return entries
    return {
        split: [entry._replace(classes=tuple(words[name] for name in entry.classes)) for entry in images]
        for split, images in entries.items()
    }


def _refuse_many(listing: Listing, names: Sequence[str]) -> None:
    """Refuse more classes than the listing's task can hold."""
    if (most := listing.task.most_classes) is not None and len(names) > most:
        raise DataError(
            f"'{listing.title}' has {len(names):,} classes, and the task '{listing.task.name}' holds up to {most}; leave out "
            "rare ones, or put 'boxes:' before the data's name."
        )


def _own_order(listing: Listing, entries: Mapping[str, list[Entry]], names: Sequence[str]) -> list[str]:
    """Return the classes in the data's own order: images are shared out alike, whatever else a classifier knows."""
    there = _named(entries)
    own = sorted(there, key=natural_key) if listing.class_names is None else list(listing.class_names)
    # Where the data's own classes do not hold, their names are the classifier's.
    return list(dict.fromkeys([*own, *names] if there <= set(own) else names))


def _named(entries: Mapping[str, list[Entry]]) -> set[str]:
    return {name for images in entries.values() for entry in images for name in entry.classes}


def _made(entries: Collection[str], splits: Collection[str]) -> tuple[str, ...]:
    """Return the splits that were made here, with the one that they were taken from."""
    made = [split for split in splits if split not in entries]
    return tuple(split for split in splits if split in made or split == "train") if made else ()


def _shards(listing: Listing, split: str, entries: Mapping[str, list[Entry]], images: list[Entry]) -> tuple[int, ...]:
    ends = listing.shards.get(split) or listing.shards.get(ALL) or listing.shards.get("train")
    if not ends:
        return ()
    base = listing.entries.get(split) or listing.entries.get(ALL) or listing.entries["train"]
    order = {entry.store_index: position for position, entry in enumerate(base)}
    positions = np.array([order[entry.store_index] for entry in images])
    return tuple(int(end) for end in np.unique(np.searchsorted(positions, ends)) if end)


@dataclass
class _Decoded:
    """What decoding images told: why they cannot be read, a look at each that can be, and how many were tried."""

    reasons: dict[int, str] = field(default_factory=dict)
    looks: dict[int, Look | None] = field(default_factory=dict)
    done: int = 0


def _check(
    listing: Listing, how: Opening, notes: list[str]
) -> tuple[dict[str, list[Entry]], tuple[BadImage, ...], Mapping[int, Look | None] | None]:
    """Return the images that can be read, those that cannot, and looks at the former where look-alikes are looked for."""
    asked = how.skip_bad_images
    every = _every(listing.entries)
    looking = _looks_for_alike(listing, how)
    if not how.verify and (not looking or len(every) > CHECKED):
        return dict(listing.entries), listing.bad, None
    most = CHECKED_AFAR if listing.remote else len(every) if how.skip_bad_images else CHECKED
    checked = evenly(every, most)
    decoded = _decode(listing.store, checked, how)
    if decoded.reasons and how.skip_bad_images is None and not listing.remote and decoded.done < len(every):
        # What is left out may not depend on how far a check came, or a resumed run would learn from other images.
        checked, how = every, replace(how, skip_bad_images=True)
        decoded = _decode(listing.store, checked, how)
    complete = decoded.done == len(every) <= CHECKED
    if decoded.done < len(every):
        there_was = "" if decoded.done == len(checked) else f", for which {argument('time')} has room"
        notes.append(
            f"Only {decoded.done:,} of the {len(every):,} images were decoded beforehand{there_was}; "
            f"{function('check')} checks all of them."
        )
    if looking and not complete:
        notes.append(
            "Images that look alike were not searched for, so some may be trained on and others scored; "
            f"{function('check')} finds them, and {argument('group')} keeps together what you know."
        )
    looks = decoded.looks if looking and complete else None
    if not how.verify:
        return dict(listing.entries), listing.bad, looks
    reasons = decoded.reasons
    bad = (*listing.bad, *(BadImage(listing.store.name(index), reason) for index, reason in reasons.items()))
    good = {
        split: [entry for entry in images if entry.store_index not in reasons]
        for split, images in listing.entries.items()
    }
    lost = _named(listing.entries) | listing.bad_classes
    lost -= _named(good)
    check_few(bad, len(every) + len(listing.bad), lost, skip=asked)
    notes += left_out(bad)
    return good, bad, looks


def _looks_for_alike(listing: Listing, how: Opening) -> bool:
    """Tell whether images that look alike are to be kept in one split: where splits are made, and were not made otherwise."""
    known = (*how.drawn_as, *(how.trained_on or ()))
    if (
        not how.near
        or listing.remote
        or not listing.task.scored
        or (how.trained_on is not None and not any(marked(each)[0] for each in known))
    ):
        return False
    return ALL in listing.entries or ("validation" not in listing.entries and listing.held_out > 0)


def _decode(store: Store, entries: list[Entry], how: Opening) -> _Decoded:
    """Decode images, each process of a job its share.

    Under a limit of time the order is random, so that the images that were tried are of every class. Where any number of
    unreadable images is left out, all images are tried, however long that takes.
    """
    seconds = math.inf if how.checking_seconds is None or how.skip_bad_images else how.checking_seconds
    if seconds < math.inf:
        entries = [entries[index] for index in np.random.default_rng(0).permutation(len(entries))]
    share, until = entries[distributed.rank() :: distributed.world()], time.monotonic() + seconds
    source = StoredImages(store, [entry.store_index for entry in share], [0] * len(share))

    def look(index: int) -> tuple[int, str | None, Look | None]:
        try:
            seen = look_at_image(source.image(index, small))
        except ImageError as error:
            return share[index].store_index, str(error).rstrip("."), None
        return share[index].store_index, None, seen

    decoded = _Decoded()
    for store_index, why, seen in in_threads(look, range(len(share))):
        decoded.done += 1
        if why is None:
            decoded.looks[store_index] = seen
        else:
            decoded.reasons[store_index] = why
        if decoded.done % 50 == 0 or decoded.done == len(share):
            how.listener(Progress("check images", decoded.done, len(share)))
        if time.monotonic() > until:
            break
    parts = distributed.gather(decoded)
    return _Decoded(
        dict(sorted(pair for part in parts for pair in part.reasons.items())),
        {index: look for part in parts for index, look in part.looks.items()},
        sum(part.done for part in parts),
    )


def _too_few(listing: Listing, only: str) -> str:
    """Return what is wrong with data of one class, or of none, and what to do; the folder that was meant, if one is likely."""
    title, below = listing.title, os.path.join(listing.title, only)
    what = f"only one class ('{only}')" if only else "no classes"
    if listing.class_names is not None or not os.path.isdir(title):
        needs = "something marked in its photos" if listing.task.dense else "at least two, each with photos to train on"
        return f"'{title}' has {what}; a classifier needs {needs}."
    inside = (
        sorted(entry.name for entry in os.scandir(below) if entry.is_dir()) if only and os.path.isdir(below) else []
    )
    if len(inside) > 1:
        return f"'{title}' has {what}. Did you mean '{below}' ({len(inside)} classes: {some(inside)})?"
    return f"'{title}' has {what}; put the photos of each class into a folder of its own, at least two (or those into train/)."


def _class_names(
    listing: Listing,
    entries: Mapping[str, list[Entry]],
    wanted: Sequence[str] | None,
    notes: list[str],
) -> tuple[str, ...]:
    title = listing.title
    if broken := sorted(name for name in _named(entries) if not is_text(name)):
        raise DataError(
            f"The class '{broken[0]}' of '{title}' has a name that is not UTF-8, which a classifier cannot store; rename it."
        )
    classes = {split: {name for entry in images for name in entry.classes} for split, images in entries.items()}
    if wanted is not None:
        return _wanted_names(title, _named(entries), wanted, notes)
    base = classes.get("train", classes.get(ALL, set()))
    if "train" not in classes and ALL not in classes and classes:
        raise DataError(f"'{title}' has no training images, only {' and '.join(classes)}: it is for scoring.")
    if len(base) < listing.task.fewest_classes:
        raise DataError(" ".join([_too_few(listing, next(iter(base), "")), *notes]))
    declared = listing.class_names
    for split, names in classes.items():
        if declared is None and (unknown := sorted(names - base, key=natural_key)):
            raise DataError(
                f"The class '{unknown[0]}'{_more(unknown, names)} is in {split} but has no training images in '{title}'."
                f"{did_you_mean(unknown[0], base)}"
            )
        if split != ALL and (missing := sorted(base - names, key=natural_key)):
            notes.append(f"No {split} images of {len(missing)} of the {len(base)} classes: {some(missing)}.")
    if declared is None:
        return tuple(sorted(base, key=natural_key))
    if unused := [name for name in declared if name not in base]:
        notes.append(f"No training images of {len(unused)} of the {len(declared)} declared classes: {some(unused)}.")
    return declared


def _wanted_names(title: str, names: set[str], wanted: Sequence[str], notes: list[str]) -> tuple[str, ...]:
    if unknown := sorted(names - set(wanted), key=natural_key):
        raise DataError(
            f"The classifier does not know the class '{unknown[0]}'{_more(unknown, names)} of '{title}'."
            f"{did_you_mean(unknown[0], wanted)} {side_by_side(wanted, names)}"
        )
    if not names:
        raise DataError(f"'{title}' holds no images in classes.")
    if missing := [name for name in wanted if name not in names]:
        notes.append(f"No images of {len(missing)} of the classifier's {len(wanted)} classes: {some(missing)}.")
    return tuple(wanted)


def _more(unknown: Sequence[str], names: Collection[str]) -> str:
    return "" if len(unknown) == 1 else f" (and {len(unknown) - 1} more of the {len(names)})"


def _equal_note(images: Sequence[Entry], contents: Mapping[int, str]) -> list[str]:
    """Return a note where all images of several classes are of equal bytes, by hashes of those; none where they are not."""
    classes = {name for entry in images for name in entry.classes}
    if len(classes) < 2 or len({contents.get(entry.store_index, entry.name) for entry in images}) > 1:
        return []
    return [
        f"All {len(images):,} images are one and the same, byte for byte: nothing tells their {len(classes):,} classes apart. "
        "Look at how they were saved."
    ]

"""From a list of labelled images to a dataset: checked images, class names in order, splits, a fingerprint."""

import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

import numpy as np

from vitral import distributed
from vitral.advice import argument, function
from vitral.data.batch import evenly
from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL, NAMED, natural_key, side_by_side, some, unread_classes
from vitral.data.part import chosen_part, part_name
from vitral.data.published.imagenet_classes import translated
from vitral.data.source import (
    BadImage,
    DataSet,
    fingerprint,
    former_fingerprint,
    hash_contents,
    of_part,
    take_inventory,
    whole,
)
from vitral.data.stored import Entry, Store, StoredImages
from vitral.data.subset import make_splits
from vitral.described import is_text
from vitral.errors import DataError, ImageError, UnreadableImagesError, did_you_mean
from vitral.events import Progress
from vitral.images.augment import Augmentation
from vitral.images.depth import FULL
from vitral.machine import in_threads

AUGMENTATION = Augmentation(crop="inception", min_area=0.25, flip=True, decode="scaled")
SURVEYED = 200  # 16-bit images that are looked at for the bits that they use at most, evenly spaced
CHECKED = 50_000  # images that are decoded before training at most, evenly spaced
CHECKED_AFAR = 64  # the same for images that are read over a network


def assemble(listing: Listing, how: Opening) -> DataSet:
    """Make a dataset from a reader's listing.

    Without splits the images are split 80/10/10 by class; a missing validation split is taken from train, a missing test
    split is left missing.

    Raises:
        DataError: there are no classes, or they do not match the wanted ones.
        ImageError: images cannot be read; the first are named, all are counted.
    """
    notes = list(listing.notes)
    entries, bad = _check(listing, how, notes)
    unread = unread_classes(_named(listing.entries) | listing.bad_classes, _named(entries))
    notes += unread
    entries = _in_the_classifiers_words(entries, listing, how.class_names)
    names = _class_names(listing, entries, how.class_names, notes, unread)
    deep: list[int] = []
    contents = hash_contents(listing.store, entries, deep, remote=listing.remote)
    bits = _bits(listing.store, deep, notes)
    fingerprints = (fingerprint(entries, contents), former_fingerprint(entries))
    others = how.trained_on is not None and not set(map(whole, how.trained_on)) & set(fingerprints)
    held_out = listing.held_out if how.hold_out or "test" not in entries else 0.0
    order = _own_order(listing, entries, names)
    splits = make_splits(entries, order, notes, contents, whole=others, held_out=held_out)
    if how.part is not None and "train" in splits:
        splits["train"] = _part(splits["train"], listing.base, how.part, notes)
    numbers = {name: number for number, name in enumerate(names)}
    return DataSet(
        name=listing.name if how.part is None else part_name(listing.name, how.part),
        class_names=names,
        splits={
            split: StoredImages(
                listing.store,
                [entry.store_index for entry in images],
                [listing.task.label([numbers[name] for name in entry.classes]) for entry in images],
                _shards(listing, split, entries, images),
                bits,
            )
            for split, images in splits.items()
        },
        augmentation=AUGMENTATION,
        bad_images=bad,
        notes=tuple(notes),
        fingerprint=fingerprints[0] if how.part is None else of_part(fingerprints[0], how.part),
        inventory=take_inventory(splits, contents),
        task=listing.task,
        reading=listing.reading,
        shared_out=_made(entries, splits),
        outside=listing.outside,
        bits=bits,
    )


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
    words = translated(_named(entries), listing.class_names, wanted)
    if not words:
        return entries
    return {
        split: [entry._replace(classes=tuple(words[name] for name in entry.classes)) for entry in images]
        for split, images in entries.items()
    }


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


def _check(listing: Listing, how: Opening, notes: list[str]) -> tuple[dict[str, list[Entry]], tuple[BadImage, ...]]:
    every = [entry for images in listing.entries.values() for entry in images]
    if not how.verify:
        return dict(listing.entries), listing.bad
    most = CHECKED_AFAR if listing.remote else len(every) if how.skip_bad_images else CHECKED
    checked = evenly(every, most)
    reasons, done = _unreadable(listing.store, checked, how)
    if done < len(every):
        there_was = "" if done == len(checked) else f", for which {argument('time')} has room"
        notes.append(
            f"Only {done:,} of the {len(every):,} images were decoded beforehand{there_was}; "
            f"{function('check')} checks all of them."
        )
    bad = (*listing.bad, *(BadImage(listing.store.name(index), reason) for index, reason in reasons.items()))
    if bad and not how.skip_bad_images:
        named = "; ".join(image.reason for image in bad[:NAMED])
        more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise UnreadableImagesError(
            f"{len(bad)} of {len(every) + len(listing.bad)} images cannot be read: {named}{more}",
            advice=f"Fix or remove them, or continue without them by {argument('skip_bad_images', True)}.",
        )
    good = {
        split: [entry for entry in images if entry.store_index not in reasons]
        for split, images in listing.entries.items()
    }
    return good, bad


def _unreadable(store: Store, entries: list[Entry], how: Opening) -> tuple[dict[int, str], int]:
    """Decode images, each process of a job its share; return the errors by store index, and how many images were tried.

    Under a limit of time the order is random, so that the images that were tried are of every class. Where unreadable images
    are left out, all images are tried, however long that takes.
    """
    seconds = math.inf if how.checking_seconds is None or how.skip_bad_images else how.checking_seconds
    if seconds < math.inf:
        entries = [entries[index] for index in np.random.default_rng(0).permutation(len(entries))]
    share, until = entries[distributed.rank() :: distributed.world()], time.monotonic() + seconds
    source = StoredImages(store, [entry.store_index for entry in share], [0] * len(share))

    def reason(index: int) -> tuple[int, str | None]:
        try:
            source.image(index)
        except ImageError as error:
            return share[index].store_index, str(error).rstrip(".")
        return share[index].store_index, None

    reasons: dict[int, str] = {}
    done = 0
    for done, (store_index, why) in enumerate(in_threads(reason, range(len(share))), 1):
        if why is not None:
            reasons[store_index] = why
        if done % 50 == 0 or done == len(share):
            how.listener(Progress("check images", done, len(share)))
        if time.monotonic() > until:
            break
    found = {store_index: why for part in distributed.gather(reasons) for store_index, why in part.items()}
    return dict(sorted(found.items())), sum(distributed.gather(done))


def _class_names(
    listing: Listing,
    entries: Mapping[str, list[Entry]],
    wanted: Sequence[str] | None,
    notes: list[str],
    unread: Sequence[str],
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
        what = f"only one class ('{next(iter(base))}')" if base else "no classes"
        needs = (
            "it needs at least two sub-folders with images, one per class (or train/ with such sub-folders)."
            if listing.class_names is None and os.path.isdir(title)
            else "a classifier needs at least two, each with images to train on."
        )
        raise DataError(" ".join([f"'{title}' has {what}; {needs}", *listing.notes, *unread]))
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

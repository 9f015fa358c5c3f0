"""A share of a dataset's training images: part:SHARE:SOURCE, with a share of 10%, 0.1 or 1/16 of whatever else is data.

Whether an image belongs to a share follows from a hash of its name alone, so that shares are nested, are the same on every
machine and in every order of the files, and keep their images when others are added. Only what is trained on is cut: the
validation and test images are those of the whole, also where the validation images are held out of the training images.
"""

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from vitral.data.listing import Opening
from vitral.data.source import DataSet, of_part
from vitral.data.subset import Subset
from vitral.errors import DataError
from vitral.paths import look_at
from vitral.tasks.task import classes_of

PREFIX = "part:"
FORM = f"{PREFIX}SHARE:SOURCE, such as {PREFIX}10%:photos/"
NUMBER = r"(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})"
SHARE = re.compile(rf"({NUMBER})\s*(%?)|(\d{{1,18}})\s*/\s*(\d{{1,18}})", re.ASCII)
BITS = 64  # the size of a hash
PERSON = b"vitral part"  # sets these hashes apart from others of the same names


def is_part(spec: str) -> bool:
    """Tell whether a name of data is spelled like a share of others."""
    return spec.startswith(PREFIX) and look_at(spec) is None


def open_part(spec: str, how: Opening, open_source: Callable[[str, Opening], DataSet]) -> DataSet:
    """Open part:SHARE:SOURCE; see `Prefix.open`."""
    share, source = read_part(spec)
    return open_source(source, replace(how, part=share))


def read_part(spec: str) -> tuple[Fraction, str]:
    """Return the share of part:SHARE:SOURCE, above 0 and at most 1, and the source.

    Raises:
        DataError: it is not of that form, or the share is not above 0 and at most 1.
    """
    written, _, source = spec.removeprefix(PREFIX).partition(":")
    share = _fraction(written)
    if share is None:
        raise DataError(
            f"'{written:.40}' in '{spec:.200}' is no share; write {FORM}, {PREFIX}0.1:... or {PREFIX}1/16:..."
        )
    if not 0 < share <= 1:
        raise DataError(f"The share '{written}' in '{spec:.200}' must be above 0 and at most 1, which is 100%.")
    if not source.strip():
        raise DataError(f"'{spec:.200}' does not say of which data; write {FORM}.")
    if is_part(source):
        raise DataError(f"'{spec:.200}' is a share of a share; write one alone, {FORM}.")
    return share, os.path.expanduser(source)


def _fraction(text: str) -> Fraction | None:
    match = SHARE.fullmatch(text.strip())
    if match is None or (match[4] is not None and not int(match[4])):
        return None
    if match[4] is not None:
        return Fraction(int(match[3]), int(match[4]))
    return Fraction(match[1]) / (100 if match[2] else 1)


def members(images: Iterable[tuple[str, Iterable[Hashable]]], share: Fraction) -> tuple[list[int], int]:
    """Return the indices of a share's images, ascending, and how many classes it would have left without any.

    Such a class keeps its image of the least hash, which a larger share has, too.
    """
    limit = share.numerator << BITS
    taken: set[int] = set()
    least: dict[Hashable, tuple[int, str, int]] = {}
    for index, (name, classes) in enumerate(images):
        value = _hash(name)
        if value * share.denominator < limit:
            taken.add(index)
        for label in classes:
            mine = (value, name, index)
            least[label] = min(least.get(label, mine), mine)
    least_of_all = {index for _, _, index in least.values()}
    bare = sum(index not in taken for _, _, index in least.values())
    return sorted(taken | least_of_all), bare


def _hash(name: str) -> int:
    # The same file name may have composed letters on one system and decomposed letters on another.
    encoded = unicodedata.normalize("NFC", name).encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=BITS // 8, person=PERSON).digest(), "big")


def part_name(name: str, share: Fraction) -> str:
    """Return what a share of some data is called, such as "photos-1-of-10"."""
    return f"{name}-{share.numerator}-of-{share.denominator}"


def chosen_part(images: Sequence[tuple[str, Iterable[Hashable]]], share: Fraction) -> tuple[list[int], list[str]]:
    """Return the indices of a share's images, see `members`, and what the share is, a line each."""
    chosen, bare = members(images, share)
    notes = [
        f"{float(100 * share):.4g}% of the training photos are used, {len(chosen):,} of {len(images):,}, chosen by a "
        "hash of their names; validation and test images are those of the whole."
    ]
    if bare:
        classes = "1 class keeps" if bare == 1 else f"{bare:,} classes keep"
        notes.append(f"{classes} one training image that is beyond the share: no class is left without.")
    return chosen, notes


def cut(data: DataSet, share: Fraction) -> DataSet:
    """Return a dataset that was opened whole with a share of its training images, chosen by what the source calls them.

    Raises:
        DataError: its training images have no end.
    """
    train = data.splits.get("train")
    if train is None:
        return data  # the data are for scoring
    if train.endless:
        raise DataError(f"'{data.name}' is endless, so that it has no share; train on it for fewer steps instead.")
    named = [(train.describe(index), classes_of(train.label(index))) for index in range(len(train))]
    chosen, notes = chosen_part(named, share)
    return replace(
        data,
        name=part_name(data.name, share),
        splits={**data.splits, "train": Subset(train, chosen)},
        notes=(*data.notes, *notes),
        fingerprint=of_part(data.fingerprint, share) if data.fingerprint else "",
    )

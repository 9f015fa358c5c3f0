"""Images that cannot be used: a few are left out and named, many are an error, as is a class of which none is left.

They cannot be read, or their line in a table lacks something.
"""

from collections.abc import Collection, Sequence

from vitral.advice import argument, counted
from vitral.data.names import NAMED, some
from vitral.data.source import BadImage
from vitral.errors import UnreadableImagesError
from vitral.images.decode import HEIC_INSTALL, lacks_reader

SHARE = 0.1  # of the images that may be left out,
FEW = 3  # or so many, which is more of a small folder


def are_few(bad: int, images: int) -> bool:
    """Tell whether so many of all images, the bad ones among them, may be left out."""
    return bad <= max(FEW, SHARE * images)


def check_few(bad: Sequence[BadImage], images: int, lost: Collection[str], *, skip: bool | None) -> None:
    """Refuse images that cannot be used unless they may be left out.

    HEIC photos that only lack their reader do not count: they are sound, and no sign of a wrong folder.

    Args:
        bad: The images that cannot be used.
        images: The number of all images, these among them.
        lost: The classes of which no image can be read.
        skip: True to leave out any number, False to leave out none; None for at most a tenth of the images (or three), and no
            class as a whole.

    Raises:
        UnreadableImagesError: They may not be left out.
    """
    heic, damaged = _by_kind(bad)
    if not bad or skip or (skip is None and are_few(len(damaged), images) and not lost):
        return
    found = [f"{len(bad):,} of {counted(images, 'image')} {unusable(bad)}: {_named(damaged or heic)}"]
    if heic:
        found.append(_heic(heic))
    if lost and skip is None:
        found.append(f"No image is left of the {'class' if len(lost) == 1 else 'classes'} {some(lost)}")
    raise UnreadableImagesError(
        ". ".join(found),
        advice=f"Replace or remove them, or continue without them by {argument('skip_bad_images', True)}.",
    )


def left_out(bad: Sequence[BadImage]) -> list[str]:
    """Return notes on images that are left out because they cannot be used."""
    heic, damaged = _by_kind(bad)
    what = f"{counted(len(damaged), 'image')} that {unusable(damaged)} {'is' if len(damaged) == 1 else 'are'}"
    return [
        *([f"{_heic(heic)}."] if heic else []),
        *([f"{what} left out: {_named(damaged)}."] if damaged else []),
    ]


def unusable(bad: Sequence[BadImage]) -> str:
    """Return what is wrong with bad images, in words that fit them all."""
    return BadImage("", "", listed=any(image.listed for image in bad)).fault


def _by_kind(bad: Sequence[BadImage]) -> tuple[list[BadImage], list[BadImage]]:
    """Return the HEIC photos whose reader is not installed, and the others."""
    heic = [image for image in bad if lacks_reader(image.path)]
    return heic, [image for image in bad if not lacks_reader(image.path)]


def _heic(images: Sequence[BadImage]) -> str:
    what = "1 HEIC photo is" if len(images) == 1 else f"{len(images):,} HEIC photos are"
    return f"{what} left out; '{HEIC_INSTALL}' installs what reads them"


def _named(images: Sequence[BadImage]) -> str:
    more = f"; and {len(images) - NAMED:,} more" if len(images) > NAMED else ""
    return "; ".join(image.reason for image in images[:NAMED]) + more

"""Masks as images: the class of each pixel as one value or colour, or an image for each object of a photo.

| mask | its values |
|---|---|
| grey, of 1, 8 or 16 bits | as they are; 0 and one other are background and object; 255 beside several others is ignored |
| with a palette | the palette's indices, never its colours |
| colours | each colour a class; equal channels are grey |
| an image an object (PHOTO/images/1.png, PHOTO/masks/*.png) | what is not 0 is the object |

Values of a few pixels that hardly any mask has are no classes: they are ignored.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
from jaxtyping import Int64
from PIL import Image

from vitral.data.annotations.annotation import Mark, Size, resized
from vitral.data.annotations.marked import OTHER_SIZE, MarkedPhotos, Photos, of_marks, split_of_path
from vitral.data.annotations.mask_names import OBJECT, ValueNames, names_of_values
from vitral.data.annotations.traps import Trap
from vitral.data.masks import find_masks
from vitral.data.names import ALL
from vitral.data.source import BadImage
from vitral.data.stored import Entry
from vitral.errors import DataError, ImageError, one_line
from vitral.images.decode import SIDEWAYS, pixel_limit
from vitral.images.header import stored_size
from vitral.images.run_lengths import Bitmap, RunLengths, counts_text, encode_mask
from vitral.machine import in_threads
from vitral.paths import Walk
from vitral.tasks.regions import VOID, Regions
from vitral.tasks.semantic import SEMANTIC

FORM = "mask images"
OBJECT_FORM = "a mask image an object"
FORMATS = ("PNG", "GIF", "BMP", "WEBP")
MOST_VALUES = 4096  # of an image that is a mask
GREY = 0x010101  # times a value is that grey as a colour
EMPTY = "masks without a pixel of an object, left out"
STRAY = "masks with values of a few pixels that are no classes, ignored"
NO_MASK = "images that cannot be read as masks"
Values = Int64[np.ndarray, "height width"]


@dataclass(frozen=True)
class MaskImage:
    """The class of each pixel of a photo, in an image beside it; an `Annotation`.

    Attributes:
        path: The image.
        classes: The names of the classes in it.
        names: The class of each value.
        colours: Whether values are colours.
        stated: The mask's height and width, pixels.
        digest: A hash of its values.
    """

    path: str
    classes: tuple[str, ...]
    names: tuple[tuple[int, str], ...]
    colours: bool
    stated: Size
    digest: bytes

    def content(self) -> bytes:
        """Return a hash of the values, and what they are called."""
        return self.digest + repr(self.names).encode()

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return a region for each class; pixels of other values are ignored. See `Annotation`."""
        values = read_values(Path(self.path), self.colours)
        if values.shape != size:
            values = resized(values, size)
        known = [(values == value, numbers.get(name)) for value, name in self.names]
        labels = np.full(size, VOID, dtype=np.int64)
        for mask, number in known:
            labels[mask] = VOID if number is None else number
        return replace(Regions.of_map(labels), ignored=_rest(known, size))


def _rest(known: Sequence[tuple[Bitmap, int | None]], size: Size) -> RunLengths | None:
    """Return the pixels that have a value of no class."""
    ignored = np.ones(size, dtype=bool)
    for mask, _ in known:
        ignored &= ~mask
    return encode_mask(ignored) if ignored.any() else None


def read_values(path: Path, colours: bool) -> Values:
    """Return the value of each pixel of a mask: a colour as red, green and blue in one number, grey as one of 0 to 65,535.

    Args:
        path: The image.
        colours: Whether grey is a colour, too, and a palette stands for its colours.

    Raises:
        DataError: it cannot be read, or is a JPEG.
    """
    try:
        with Image.open(path, formats=(*FORMATS, "JPEG")) as image:
            if image.format in ("JPEG", "MPO"):
                raise DataError(f"'{path}' is a JPEG, which changes the values of a mask; save masks as PNG.")
            if image.format not in FORMATS or image.width * image.height > pixel_limit():
                raise ValueError(f"{image.format}, {image.width}x{image.height}")
            if image.mode in ("RGB", "RGBA", "RGBX") or (image.mode == "P" and colours):
                red, green, blue = np.moveaxis(np.asarray(image.convert("RGB")), 2, 0).astype(np.int64)
                grey = not colours and np.array_equal(red, green) and np.array_equal(green, blue)
                coded: Values = red if grey else (red << 16) | (green << 8) | blue
                return coded
            values: Values = np.asarray(image.getchannel(0) if image.mode == "LA" else image).astype(np.int64)
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(f"'{path}' cannot be read as a mask ({one_line(error)[:120]}).") from error
    return values * GREY if colours else values


@dataclass(frozen=True)
class _SeenValues:
    """What is in a mask: its size, the pixels of each value, whether these are colours, and a hash of them."""

    size: Size
    counts: Counter[int]
    colours: bool
    digest: bytes


PNG = b"\x89PNG\r\n\x1a\n"
HEADER = 26  # bytes of a PNG, of which the last two are depth and colour type
EIGHT_BITS_OF_GREY = b"\x08\x00"


@dataclass(frozen=True)
class MaskPairs:
    """The masks of each photo by its path, and whether each mask is of an object."""

    masks: Mapping[str, Sequence[str]]
    objects: bool


def pair_masks(folder: Path, walked: Walk, photos: Photos, *, by_name: bool) -> MaskPairs | None:
    """Return which images of a folder are masks of which others; None where none are.

    Args:
        folder: The folder.
        walked: Its content.
        photos: Its images, masks among them.
        by_name: Whether images are masks by their names alone, and not also by their few colours.
    """
    if (pairs := _objects(walked, photos)) is not None:
        return MaskPairs(pairs, objects=True)
    pairs = _pairs(folder, photos, by_name=by_name)
    return MaskPairs(pairs, 2 * sum(len(masks) > 1 for masks in pairs.values()) > len(pairs)) if pairs else None


def read_masks(folder: Path, walked: Walk, pairs: MaskPairs) -> MarkedPhotos:
    """Return what the masks in a folder say of its photos.

    Raises:
        DataError: masks are JPEGs, or of too many values.
    """
    if pairs.objects:
        return _of_objects(folder, pairs.masks)
    return _of_values(folder, walked, {photo: masks[0] for photo, masks in pairs.masks.items()})


def _objects(walked: Walk, photos: Photos) -> dict[str, list[str]] | None:
    """Return the masks of each photo of PHOTO/images/*.png and PHOTO/masks/*.png; None where not most photos are so."""
    inside: dict[str, list[str]] = defaultdict(list)
    for path in photos.paths:
        inside[path.rpartition("/")[0]].append(path)
    there = {*walked.folders}  # an empty one is of a photo without objects
    pairs = {
        images[0]: inside.get(f"{around}masks", [])
        for place, images in inside.items()
        if place.endswith("images") and len(images) == 1 and f"{(around := place[:-6])}masks" in there
    }
    several = any(len(masks) > 1 for masks in pairs.values())
    return pairs if several and 2 * sum(map(len, pairs.values())) > len(photos.paths) - len(pairs) else None


def _pairs(folder: Path, photos: Photos, *, by_name: bool) -> dict[str, list[str]]:
    """Return the masks of each photo, by their names, and by their colours unless names decide alone."""
    images = [Entry(index, path, (), 0) for index, path in enumerate(photos.paths)]
    parts = [PurePosixPath(path).parts for path in photos.paths]
    pairs: dict[str, list[str]] = defaultdict(list)
    for mask, photo in find_masks(_Paths(folder, photos.paths), images, parts, spoken_of=True, by_name=by_name).items():
        pairs[photos.paths[photo]].append(photos.paths[mask])
    masks = {mask for each in pairs.values() for mask in each}
    return {photo: each for photo, each in pairs.items() if photo not in masks}


class _Paths:
    """Images in files, as a `Store`."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root, self._paths = root, paths

    def read(self, index: int) -> Path:
        """Return an image's path."""
        return self._root / self._paths[index]

    def name(self, index: int) -> str:
        """Return an image's path."""
        return str(self._root / self._paths[index])


def _of_objects(folder: Path, pairs: Mapping[str, Sequence[str]]) -> MarkedPhotos:
    traps: list[Trap] = []
    bad: list[BadImage] = []
    marks: dict[str, list[Mark]] = {}
    stated: dict[str, Size | None] = {}

    def read(photo: str) -> tuple[list[Mark], list[Trap], str]:
        try:
            return *_read_objects(folder, photo, pairs[photo]), ""
        except DataError as error:
            return [], [], str(error).rstrip(".")

    for photo, (found, own, why) in zip(pairs, in_threads(read, list(pairs)), strict=True):
        traps += own
        if why:
            bad.append(BadImage(str(folder / photo), why, listed=True))
        else:
            marks[photo] = found
            stated[photo] = next((mark.runs[1:] for mark in found if mark.runs), None)
    return of_marks(OBJECT_FORM, marks, (OBJECT,), stated=stated, splits=_splits(marks), traps=traps, bad=bad)


def _read_object(path: Path) -> Bitmap:
    """Return where an image of one object is not 0; grey PNGs of 8 bits by OpenCV, which is faster.

    Raises:
        DataError: it cannot be read, or is a JPEG.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(HEADER)
        if header[: len(PNG)] == PNG and header[len(PNG) :][-2:] == EIGHT_BITS_OF_GREY:
            values = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
            if values is not None and values.ndim == 2:
                return values != 0
    except OSError:  # which is reported as of every mask
        pass
    return read_values(path, colours=False) != 0


def _read_objects(folder: Path, photo: str, paths: Sequence[str]) -> tuple[list[Mark], list[Trap]]:
    """Return a photo's objects, and what misleads in their masks; `DataError` if one cannot be read."""
    found: list[Mark] = []
    traps: list[Trap] = []
    sizes: dict[Size, str] = {}
    for path in paths:
        mask = _read_object(folder / path)
        height, width = mask.shape
        sizes.setdefault((height, width), path)
        if mask.any():
            found.append(Mark(OBJECT, runs=(counts_text(encode_mask(mask)), height, width)))
        else:
            traps.append(Trap(EMPTY, path))
    return found, [*traps, *(trap for size, path in sizes.items() for trap in size_traps(folder / photo, path, size))]


def _of_values(folder: Path, walked: Walk, pairs: Mapping[str, str]) -> MarkedPhotos:
    seen: dict[str, _SeenValues] = {}
    traps: list[Trap] = []
    bad: list[BadImage] = []

    def look(photo: str) -> tuple[_SeenValues | None, list[Trap], str]:
        try:
            found = _look(folder / pairs[photo])
            return found, size_traps(folder / photo, pairs[photo], found.size), ""
        except DataError as error:
            return None, [], str(error).rstrip(".")

    for photo, (found, own, why) in zip(pairs, in_threads(look, list(pairs)), strict=True):
        traps += own
        if found is None:
            bad.append(BadImage(str(folder / photo), why, listed=True))
        else:
            seen[photo] = found
    if not seen:
        raise DataError(f"{bad[0].reason}.")
    colours = any(found.colours for found in seen.values())
    counts = {photo: _in_colours(found, colours) for photo, found in seen.items()}
    names = names_of_values(folder, walked, list(counts.values()), colours=colours)
    traps += [Trap(STRAY, pairs[photo]) for photo, values in counts.items() if values.keys() & names.stray]
    return MarkedPhotos(
        form=FORM,
        task=SEMANTIC,
        annotations={
            photo: _annotation(folder / pairs[photo], found, counts[photo], names, colours)
            for photo, found in seen.items()
        },
        class_names=tuple(dict.fromkeys(names.classes.values())),
        splits=_splits(seen),
        traps=tuple(traps),
        notes=names.notes,
        bad=tuple(bad),
    )


def _annotation(path: Path, seen: _SeenValues, counts: Counter[int], names: ValueNames, colours: bool) -> MaskImage:
    own = tuple(dict.fromkeys(name for value, name in names.classes.items() if value in counts))
    return MaskImage(str(path), own, tuple(names.classes.items()), colours, seen.size, seen.digest)


def _look(path: Path) -> _SeenValues:
    values = read_values(path, colours=False)
    found, pixels = np.unique(values, return_counts=True)
    if len(found) > MOST_VALUES:
        raise DataError(f"'{path}' has {len(found):,} values, too many for a mask.")
    with Image.open(path) as image:
        colours = image.mode in ("RGB", "RGBA", "RGBX") and int(found[-1]) > 255
    counts = Counter(dict(zip(found.tolist(), pixels.tolist(), strict=True)))
    height, width = values.shape
    return _SeenValues((height, width), counts, colours, hashlib.blake2b(values.tobytes(), digest_size=16).digest())


def _in_colours(seen: _SeenValues, colours: bool) -> Counter[int]:
    """Return the pixels of each value, as a colour where the masks of the data are colours."""
    if seen.colours or not colours:
        return seen.counts
    return Counter({value * GREY: count for value, count in seen.counts.items()})


def size_traps(photo: Path, mask: str, size: Size) -> list[Trap]:
    """Return a trap where a mask is not of its photo's size, as stored or the right way up; the photo may be unreadable."""
    try:
        own, turn = stored_size(photo)
    except ImageError:  # which is said elsewhere
        return []
    return [] if size in (own, own[::-1] if turn in SIDEWAYS else own) else [Trap(OTHER_SIZE, mask)]


def _splits(photos: Mapping[str, object]) -> dict[str, str]:
    return {photo: split for photo in photos if (split := split_of_path(photo)) != ALL}

"""`CodedMap`: a mask image whose values are codes of classes or of instances, as a table says what each code means."""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Int64
from PIL import Image

from vitral.data.annotations.annotation import Size, resized
from vitral.data.annotations.tree import FileTree, StoredFile
from vitral.data.source import BadImage
from vitral.errors import DataError, one_line
from vitral.images.decode import pixel_limit
from vitral.images.run_lengths import RunLengths, encode_mask, encode_parts
from vitral.machine import in_threads
from vitral.tasks.regions import Regions

FORMATS = ("PNG", "GIF", "BMP", "WEBP", "PPM", "TIFF")
LOSSY = ("JPEG", "MPO")  # which are read where they are black and white
COLOURED = ("RGB", "RGBA", "RGBX")
GREY = 0x010101  # times a value is that grey as a colour
WHITE = 255
HALF = 128  # from which a softened value is nearer to white
ENDS = 32  # of values: what a JPEG makes of black is below, what it makes of white this near
PLAIN = 0.25  # share of white in what is not black: the rest are edges
SEVERAL = 32  # codes of a map that are looked for one by one
COLOURLESS = 0.99  # share of the pixels whose channels differ by less than ENDS
PALETTE = "masks with a palette, whose numbers are the classes and not their colours"
TRANSPARENT = "masks with transparency, which is not looked at"
BLACK_AND_WHITE = "masks of 0 and 255 alone, which are background and object"
Values = Int64[np.ndarray, "height width"]


class Meaning(NamedTuple):
    """What a code means: a class, of which it is a whole or an instance, and whether it is a crowd of instances."""

    name: str
    crowd: bool = False


Meanings = Callable[[int], Meaning | None]


@dataclass(frozen=True)
class CodedMap:
    """A mask image with what its codes mean; an `Annotation`.

    Attributes:
        file: The image.
        meanings: The meaning of each code in it; pixels of other codes count for nothing.
        stated: The image's height and width.
        colours: Whether codes are colours, 65536 R + 256 G + B.
        more: Further images of the photo, whose codes count where those before have 0.
        softened: Whether values count as the nearer of black and white.
    """

    file: StoredFile
    meanings: tuple[tuple[int, Meaning], ...]
    stated: Size
    colours: bool = False
    more: Sequence[StoredFile] = ()
    softened: bool = False

    @classmethod
    def read(cls, file: StoredFile, meaning: Meanings, *, colours: bool = False) -> Self:
        """Return the annotation that a mask image is; `meaning` gives that of a code, None for one that counts for nothing.

        Raises:
            DataError: it cannot be read.
        """
        codes = read_values(file, colours)
        known = ((code, meaning(code)) for code in np.unique(codes).tolist())
        height, width = codes.shape
        return cls(file, tuple((code, there) for code, there in known if there is not None), (height, width), colours)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes in it, each once."""
        return tuple(dict.fromkeys(meaning.name for _, meaning in self.meanings))

    def traps(self) -> Iterator[str]:
        """Give what other programs read otherwise in such a mask."""
        with Image.open(io.BytesIO(self.file.content()), formats=(*FORMATS, *LOSSY)) as image:
            if image.mode == "P" and not self.colours:
                yield PALETTE
            if image.has_transparency_data:
                yield TRANSPARENT
        if self.meanings and max(code for code, _ in self.meanings) == WHITE and not self.colours:
            yield BLACK_AND_WHITE

    def content(self) -> bytes:
        """Return a hash of the file, and what its codes mean."""
        files = (self.file, *self.more)
        return b"".join(hashlib.sha256(file.content()).digest() for file in files) + repr(self.meanings).encode()

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return a region for each code; pixels of codes without a meaning are ignored. See `Annotation`."""
        codes = read_together((self.file, *self.more), self.colours).values
        if self.softened:
            codes = np.where(codes < HALF, 0, WHITE)
        codes = codes if codes.shape == size else resized(codes, size)
        wanted = [(code, meaning) for code, meaning in self.meanings if meaning.name in numbers]
        unknown = ~np.isin(codes, [code for code, _ in self.meanings])
        runs = _runs_of_codes(codes, [code for code, _ in wanted])
        there = [(code, meaning) for code, meaning in wanted if code in runs]
        return Regions.of_runs(
            size,
            [numbers[meaning.name] for _, meaning in there],
            [runs[code] for code, _ in there],
            crowd=[meaning.crowd for _, meaning in there],
            ignored=encode_mask(unknown) if unknown.any() else None,
        )


def boxes_of_codes(codes: Values, wanted: Sequence[int]) -> dict[int, tuple[slice, slice]]:
    """Return the rows and columns around the pixels of each of some codes that is in a map."""
    from scipy import ndimage  # a sixth of a second of start-up for maps of few codes

    ordered = np.unique(np.array(wanted, dtype=np.int64))
    places = np.searchsorted(ordered, codes).clip(max=len(ordered) - 1)
    numbered = np.where(ordered[places] == codes, places + 1, 0)
    boxes = ndimage.find_objects(numbered, len(ordered))
    return {code: box for code, box in zip(ordered.tolist(), boxes, strict=True) if box is not None}


def _runs_of_codes(codes: Values, wanted: Sequence[int]) -> dict[int, RunLengths]:
    """Return the run lengths of the pixels of each of some codes that is in a map; of many, only boxes are gone through."""
    if len(wanted) <= SEVERAL:
        return {code: encode_mask(mask) for code in wanted if (mask := codes == code).any()}
    boxes = boxes_of_codes(codes, wanted)
    parts = [codes[box] == code for code, box in boxes.items()]
    corners = [(rows.start, columns.start) for rows, columns in boxes.values()]
    return dict(zip(boxes, encode_parts(parts, corners, (codes.shape[0], codes.shape[1])), strict=True))


class MaskValues(NamedTuple):
    """The values of a mask's pixels, whether these are colours, and the mode in which Pillow reads the image: "RGB"."""

    values: Values
    colours: bool
    mode: str


def read_values(file: StoredFile, colours: bool) -> Values:
    """Return the value of each pixel of a mask; see `read_mask`."""
    return read_mask(file, colours).values


def read_together(files: Sequence[StoredFile], colours: bool) -> MaskValues:
    """Return the values of a photo's masks together: of each pixel the first that is not 0; see `read_mask`."""
    first, *others = (read_mask(file, colours) for file in files)
    values = first.values
    for file, other in zip(files[1:], others, strict=True):
        if other.values.shape != values.shape or other.colours != first.colours:
            raise DataError(f"'{file.name}' is of another size or kind than another mask of its photo.")
        values = np.where(values == 0, other.values, values)
    return MaskValues(values, first.colours, first.mode)


def read_mask(file: StoredFile, colours: bool) -> MaskValues:
    """Return the value of each pixel of a mask: a colour as red, green and blue in one number, grey as one of 0 to 65,535.

    Args:
        file: The image.
        colours: Whether grey is a colour, too, and a palette stands for its colours.

    Raises:
        DataError: it cannot be read, or is a JPEG of more than black and white.
    """
    content = file.content()
    try:
        with Image.open(io.BytesIO(content), formats=(*FORMATS, *LOSSY)) as image:
            if image.format not in (*FORMATS, *LOSSY) or image.width * image.height > pixel_limit():
                raise ValueError(f"{image.format}, {image.width}x{image.height}")
            if image.format in LOSSY:
                return MaskValues(_black_and_white(image, file.name) * (GREY if colours else 1), colours, "L")
            if image.mode in COLOURED or (image.mode == "P" and colours):
                red, green, blue = np.moveaxis(np.asarray(image.convert("RGB")), 2, 0).astype(np.int64)
                grey = not colours and np.array_equal(red, green) and np.array_equal(green, blue)
                coded: Values = red if grey else (red << 16) | (green << 8) | blue
                return MaskValues(coded, not grey, image.mode)
            values: Values = np.asarray(image.getchannel(0) if image.mode == "LA" else image).astype(np.int64)
            mode = image.mode
    except DataError:
        raise
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(f"'{file.name}' cannot be read as a mask ({one_line(error)[:120]}).") from error
    return MaskValues(values * GREY if colours else values, colours, mode)


def _black_and_white(image: Image.Image, name: str) -> Values:
    """Return a JPEG's pixels as black or white, 0 or 255.

    Raises:
        DataError: it has anything else.
    """
    shades = np.asarray(image.convert("RGB")).astype(np.int64)
    darkest, lightest = shades.min(axis=2), shades.max(axis=2)
    marked, white = int((lightest >= ENDS).sum()), int((darkest > WHITE - ENDS).sum())
    colourless = float((lightest - darkest < ENDS).mean())
    if white < PLAIN * marked or colourless < COLOURLESS or (not marked and lightest.any()):
        raise DataError(
            f"'{name}' is a JPEG, which changes the values of a mask, and not of black and white; save masks as PNG."
        )
    values: Values = np.where(shades.mean(axis=2) < HALF, 0, WHITE).astype(np.int64)
    return values


def read_maps(
    tree: FileTree, masks: Mapping[str, str], meanings: Callable[[str], Meanings], *, colours: bool = False
) -> tuple[dict[str, CodedMap], tuple[BadImage, ...]]:
    """Return the annotations that mask images are by their photos, and the photos whose masks cannot be read.

    Of a photo's mask `meanings` gives what its codes mean; it may raise a `DataError`, too.
    """

    def read(photo: str) -> CodedMap | BadImage:
        try:
            return CodedMap.read(tree.file(masks[photo]), meanings(photo), colours=colours)
        except DataError as error:
            return tree.bad(photo, error)

    seen = dict(zip(masks, in_threads(read, [*masks]), strict=True))
    return (
        {photo: there for photo, there in seen.items() if isinstance(there, CodedMap)},
        tuple(there for there in seen.values() if isinstance(there, BadImage)),
    )

"""`CodedMap`: a mask image whose values are codes of classes or of instances, as a table says what each code means."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from vitral.data.annotations.annotation import Size, resized
from vitral.data.annotations.mask_images import read_values
from vitral.data.source import BadImage
from vitral.errors import DataError
from vitral.images.run_lengths import encode_mask
from vitral.machine import in_threads
from vitral.tasks.regions import Regions


class Meaning(NamedTuple):
    """What a code means: a class, of which it is a whole or an instance, and whether it is a crowd of instances."""

    name: str
    crowd: bool = False


Meanings = Callable[[int], Meaning | None]


@dataclass(frozen=True)
class CodedMap:
    """A mask image with what its codes mean; an `Annotation`.

    Attributes:
        path: The image.
        meanings: The meaning of each code in it; pixels of other codes count for nothing.
        stated: The image's height and width.
        colours: Whether codes are colours, 65536 R + 256 G + B.
    """

    path: str
    meanings: tuple[tuple[int, Meaning], ...]
    stated: Size
    colours: bool = False

    @classmethod
    def read(cls, path: Path, meaning: Meanings, *, colours: bool = False) -> Self:
        """Return the annotation that a mask image is; `meaning` gives that of a code, None for one that counts for nothing.

        Raises:
            DataError: it cannot be read.
        """
        codes = read_values(path, colours)
        known = ((code, meaning(code)) for code in np.unique(codes).tolist())
        height, width = codes.shape
        return cls(
            str(path), tuple((code, there) for code, there in known if there is not None), (height, width), colours
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes in it, each once."""
        return tuple(dict.fromkeys(meaning.name for _, meaning in self.meanings))

    def content(self) -> bytes:
        """Return a hash of the file."""
        return hashlib.sha256(Path(self.path).read_bytes()).digest()

    def regions(self, numbers: Mapping[str, int], size: Size) -> Regions:
        """Return a region for each code; pixels of codes without a meaning are ignored. See `Annotation`."""
        codes = read_values(Path(self.path), self.colours)
        codes = codes if codes.shape == size else resized(codes, size)
        wanted = [(code, meaning) for code, meaning in self.meanings if meaning.name in numbers]
        unknown = ~np.isin(codes, [code for code, _ in self.meanings])
        masks = [(meaning, mask) for code, meaning in wanted if (mask := codes == code).any()]
        return Regions.of_runs(
            size,
            [numbers[meaning.name] for meaning, _ in masks],
            [encode_mask(mask) for _, mask in masks],
            crowd=[meaning.crowd for meaning, _ in masks],
            ignored=encode_mask(unknown) if unknown.any() else None,
        )


def read_maps(
    folder: Path, masks: Mapping[str, str], meanings: Callable[[str], Meanings], *, colours: bool = False
) -> tuple[dict[str, CodedMap], tuple[BadImage, ...]]:
    """Return the annotations that mask images are by their photos, and the photos whose masks cannot be read.

    Args:
        folder: The folder of the data.
        masks: The mask image of each photo; both are paths in the folder.
        meanings: What the codes of a photo's mask mean, by the photo; it may raise a `DataError`, too.
        colours: Whether codes are colours.
    """

    def read(photo: str) -> CodedMap | BadImage:
        try:
            return CodedMap.read(folder / masks[photo], meanings(photo), colours=colours)
        except DataError as error:
            return BadImage(str(folder / photo), str(error).rstrip("."), listed=True)

    seen = dict(zip(masks, in_threads(read, [*masks]), strict=True))
    return (
        {photo: there for photo, there in seen.items() if isinstance(there, CodedMap)},
        tuple(there for there in seen.values() if isinstance(there, BadImage)),
    )

"""`Photo`: pixels with the size of the file that they are of, which a JPEG of very many pixels is decoded smaller than.

What is marked in a photo, and what is found in it, is in pixels of the file.
"""

from dataclasses import dataclass
from typing import Self

from vitral.images.decode import Pixels, ReadsPixels
from vitral.images.geometry import Geometry, Resize, Size
from vitral.images.preprocessing import Preprocessing


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo as it was decoded, RGB, and the height and width of the whole photo the right way up."""

    pixels: Pixels
    size: Size

    @classmethod
    def read(cls, read: ReadsPixels) -> Self:
        """Return a photo with the size that its file states; whatever `read` raises is raised."""
        stated: list[Size] = []

        def whole(height: int, width: int) -> int:
            stated.append((height, width))
            return 1

        pixels = read(shrink=whole)
        return cls(pixels, stated[-1] if stated else (pixels.shape[0], pixels.shape[1]))

    @property
    def decoded(self) -> Geometry:
        """The steps from the whole photo to its pixels."""
        shape = self.pixels.shape[0], self.pixels.shape[1]
        return Geometry(self.size, () if shape == self.size else (Resize(*shape),))

    def view(self, preprocessing: Preprocessing) -> Geometry:
        """Return the steps from the whole photo to a network's input."""
        decoded = self.decoded
        return Geometry(self.size, (*decoded.steps, *preprocessing.geometry(*decoded.size).steps))

"""The transforms of an image, so that a mask, points or boxes can follow it; the pixels themselves are moved elsewhere.

Coordinates are continuous: the pixel in column 0 spans x from 0 to 1, and its middle is at 0.5. A mask goes where its pixels
went: mirrored where the image was continued by its mirror image, filled where the image was filled. Each of its values is the
original value at that very place, because steps are composed before the mask is read, so nothing is rounded twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Float64, Int64, Shaped

Size = tuple[int, int]  # height, width
Border = Literal["fill", "edge"]
Mask = Shaped[np.ndarray, "height width"]
Points = Float64[np.ndarray, "points 2"]  # x, y
Boxes = Float64[np.ndarray, "boxes 4"]  # left, top, right, bottom
Matrix = tuple[float, float, float, float, float, float]
Places = tuple[Int64[np.ndarray, "height #width"], Int64[np.ndarray, "#height width"]]  # rows and columns of an image

# The matrix of an operation that shears by a slope, or moves by pixels.
MATRICES: Mapping[str, Callable[[float], Matrix]] = {
    "ShearX": lambda slope: (1, slope, 0, 0, 1, 0),
    "ShearY": lambda slope: (1, 0, 0, slope, 1, 0),
    "TranslateX": lambda pixels: (1, 0, pixels, 0, 1, 0),
    "TranslateY": lambda pixels: (1, 0, 0, 0, 1, pixels),
}


class Transform(Protocol):
    """A step that moved an image's pixels."""

    def after(self, size: Size) -> Size:
        """Return the size of the image afterwards."""
        ...

    def forth(self, points: Points, size: Size) -> Points:
        """Return where points of the image are afterwards."""
        ...

    def back(self, points: Points, size: Size) -> Points:
        """Return which points of the image are seen at points of the image afterwards."""
        ...

    def undone(self, size: Size) -> "Transform":
        """Return the step that moves the pixels back; what the step lost or mirrored does not come back."""
        ...


Steps = tuple[Transform, ...]


@dataclass(frozen=True)
class Crop:
    """A box was cut out; it may reach beyond the image, where there is nothing.

    Attributes:
        top: The box's first row; negative above the image.
        left: The box's first column; negative to the left of it.
        height: The number of rows.
        width: The number of columns.
    """

    top: int
    left: int
    height: int
    width: int

    def after(self, size: Size) -> Size:
        """Return the box's size."""
        return self.height, self.width

    def forth(self, points: Points, size: Size) -> Points:
        """Return the points as the box counts them."""
        return points - np.array([self.left, self.top])

    def back(self, points: Points, size: Size) -> Points:
        """Return the points as the image counts them."""
        return points + np.array([self.left, self.top])

    def undone(self, size: Size) -> "Crop":
        """Return the box that the image is in the box."""
        return Crop(-self.top, -self.left, *size)


@dataclass(frozen=True)
class Resize:
    """The whole image was resized to another height and width."""

    height: int
    width: int

    def after(self, size: Size) -> Size:
        """Return the new size."""
        return self.height, self.width

    def forth(self, points: Points, size: Size) -> Points:
        """Return the points, stretched."""
        return points * self._factors(size)

    def back(self, points: Points, size: Size) -> Points:
        """Return the points, not stretched."""
        return points / self._factors(size)

    def undone(self, size: Size) -> "Resize":
        """Return the step to the size before."""
        return Resize(*size)

    def _factors(self, size: Size) -> Float64[np.ndarray, "2"]:
        return np.array([self.width / size[1], self.height / size[0]])


@dataclass(frozen=True)
class Pad:
    """Rows were added above and below, columns left and right.

    Attributes:
        vertical: The number of rows on each side.
        horizontal: The number of columns on each side.
        mirror: Whether they show the image mirrored at its outermost pixels, instead of nothing.
    """

    vertical: int
    horizontal: int
    mirror: bool

    def after(self, size: Size) -> Size:
        """Return the size with the border."""
        return size[0] + 2 * self.vertical, size[1] + 2 * self.horizontal

    def forth(self, points: Points, size: Size) -> Points:
        """Return the points, moved by the border."""
        return points + np.array([self.horizontal, self.vertical])

    def back(self, points: Points, size: Size) -> Points:
        """Return the points without the border, or what the border mirrors."""
        points = points - np.array([self.horizontal, self.vertical])
        if not self.mirror:
            return points
        ends = np.array([size[1], size[0]])
        points = np.where(points < 0, 1 - points, points)
        return np.where(points >= ends, 2 * ends - 1 - points, points)

    def undone(self, size: Size) -> Crop:
        """Return the box without the border."""
        return Crop(self.vertical, self.horizontal, *size)


@dataclass(frozen=True)
class Flip:
    """Left and right changed places.

    Attributes:
        vertical: Whether it was top and bottom instead.
    """

    vertical: bool = False

    def after(self, size: Size) -> Size:
        """Return the size, which is the same."""
        return size

    def forth(self, points: Points, size: Size) -> Points:
        """Return the points, mirrored."""
        x, y = points.T
        return np.stack([x, size[0] - y] if self.vertical else [size[1] - x, y], axis=1)

    def back(self, points: Points, size: Size) -> Points:
        """Return the points, mirrored."""
        return self.forth(points, size)

    def undone(self, size: Size) -> "Flip":
        """Return the same step."""
        return self


@dataclass(frozen=True)
class Affine:
    """The image was turned, sheared, moved or zoomed, its size kept.

    Attributes:
        matrix: The numbers a, b, c, d, e, f: what is now at (x, y) was at (a x + b y + c, d x + e y + f).
        border: The content beyond the edge: "fill", which is nothing, or "edge", the outermost pixels repeated.
    """

    matrix: Matrix
    border: Border = "fill"

    @property
    def mixes(self) -> bool:
        """Whether a row does not stay a row, or a column a column."""
        return bool(self.matrix[1] or self.matrix[3])

    @classmethod
    def of_indices(cls, matrix: Sequence[float], border: Border = "fill") -> "Affine":
        """Return the step of a matrix that counts from the middles of pixels: the middle of column 0 is at x = 0."""
        a, b, c, d, e, f = map(float, matrix)
        return cls((a, b, c + (1 - a - b) / 2, d, e, f + (1 - d - e) / 2), border)

    def after(self, size: Size) -> Size:
        """Return the size, which is the same."""
        return size

    def forth(self, points: Points, size: Size) -> Points:
        """Return the points, by the inverse of the matrix."""
        a, b, c, d, e, f = self.matrix
        return (points - np.array([c, f])) @ np.linalg.inv(np.array([[a, b], [d, e]])).T

    def back(self, points: Points, size: Size) -> Points:
        """Return the points by the matrix; where the edge is repeated, points outside move to the edge."""
        a, b, c, d, e, f = self.matrix
        points = points @ np.array([[a, b], [d, e]]).T + np.array([c, f])
        return points.clip(0.5, np.array([size[1], size[0]]) - 0.5) if self.border == "edge" else points

    def undone(self, size: Size) -> "Affine":
        """Return the step of the inverse matrix; a repeated edge does not come back."""
        a, b, c, d, e, f = self.matrix
        a, b, d, e = np.linalg.inv(np.array([[a, b], [d, e]])).flatten().tolist()
        return Affine((a, b, -a * c - b * f, d, e, -d * c - e * f))


@dataclass(frozen=True)
class Geometry:
    """All steps that moved the pixels of an image of some height and width, in order."""

    original: Size
    steps: Steps = ()

    @property
    def size(self) -> Size:
        """Height and width afterwards, pixels."""
        return self._sizes()[-1]

    def _sizes(self) -> list[Size]:
        """Return the size before each step, and last the size after all steps."""
        sizes = [self.original]
        for step in self.steps:
            sizes.append(step.after(sizes[-1]))
        return sizes

    def mask(self, mask: Mask, *, fill: int = 0) -> Mask:
        """Return the view's mask from the image's.

        Args:
            mask: A value for each pixel of the image.
            fill: The value where the view shows nothing of the image.
        """
        assert mask.shape == self.original, f"a mask of {mask.shape} for an image of {self.original}"
        rows, columns = self.places()
        return np.where((rows >= 0) & (columns >= 0), mask[rows, columns], np.asarray(fill, mask.dtype))

    def places(self) -> Places:
        """Return which row and column of the image each pixel of the view shows; -1 where it shows nothing of it.

        Where no step mixes rows with columns, the rows are one column of numbers and the columns one row.
        """
        height, width = self.size
        if any(isinstance(step, Affine) and step.mixes for step in self.steps):
            x, y = self._seen(_middles(self.size)).reshape(height, width, 2).transpose(2, 0, 1)
            return y, x
        side = max(height, width)
        seen = self._seen(np.repeat(np.arange(side) + 0.5, 2).reshape(-1, 2), apart=True)
        return seen[:height, 1:], seen[None, :width, 0]

    def _seen(self, points: Points, *, apart: bool = False) -> Int64[np.ndarray, "points 2"]:
        """Return the column and row of the image's pixel at each point of the view, -1 for nothing.

        Args:
            points: The points.
            apart: Whether the view's columns and rows are two lists, each for itself.
        """
        sizes = self._sizes()
        inside = np.ones(points.shape, dtype=bool)
        for step, size in zip(reversed(self.steps), reversed(sizes[:-1]), strict=True):
            points = step.back(points, size)
            inside &= (points >= 0) & (points < np.array([size[1], size[0]]))
        seen = inside if apart else inside.all(axis=1, keepdims=True)
        last = np.array([self.original[1], self.original[0]]) - 1
        return np.where(seen, np.floor(points).clip(0, last), -1).astype(np.int64)

    def back(self) -> "Geometry":
        """Return the geometry from the view to the image: of what is found in the view, where it is in the image.

        A place of the image that the view does not show is outside of the view; what a view shows twice comes back once.
        """
        undone = (step.undone(size) for step, size in zip(self.steps, self._sizes(), strict=False))
        return Geometry(self.size, tuple(reversed(list(undone))))

    def points(self, points: Points) -> Points:
        """Return where points of the image are in the view, or outside of it."""
        for step, size in zip(self.steps, self._sizes(), strict=False):
            points = step.forth(points, size)
        return points

    def boxes(self, boxes: Boxes) -> Boxes:
        """Return boxes of the image as boxes of the view, cut off at the view's edges.

        A box that the view does not show has no width or no height.
        """
        corners = boxes[:, [[0, 1], [2, 1], [0, 3], [2, 3]]]
        moved = self.points(corners.reshape(-1, 2)).reshape(-1, 4, 2)
        height, width = self.size
        limits = np.array([width, height, width, height])
        return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1).clip(0, limits)


def _middles(size: Size) -> Points:
    rows, columns = np.indices(size).reshape(2, -1)
    return np.stack([columns, rows], axis=1) + 0.5

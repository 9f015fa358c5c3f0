"""What a classifier finds in one image: regions as arrays, by the names that supervision's `Detections` has."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from vitral import notebook
from vitral.errors import ImageError
from vitral.images.decode import Pixels
from vitral.images.drawing import encode, thumbnail
from vitral.images.run_lengths import counts_text
from vitral.tasks.drawn_regions import drawn_regions
from vitral.tasks.regions import Bitmaps, FoundRegions, Regions

SHOWN = 640  # pixels of the longer side of a notebook's image
Rows = Bool[np.ndarray, " regions"] | Int64[np.ndarray, " chosen"] | Sequence[int] | slice
Region = tuple[Any, Any, Any, Any, None, dict[str, Any]]


class Anchor(Protocol):
    """A place of a box, as supervision's `Position` names it: "TOP_LEFT", "CENTER", "CENTER_OF_MASS"."""

    value: str


def coco_regions(found: FoundRegions) -> list[dict[str, Any]]:
    """Return regions as COCO's results have them, but for image and class."""
    regions = found.regions
    boxes = np.concatenate([regions.boxes[:, :2], regions.boxes[:, 2:] - regions.boxes[:, :2]], axis=1)
    rows: list[dict[str, Any]] = [
        {"bbox": [round(value, 2) for value in box], "area": round(area, 2), "score": round(score, 6)}
        for box, area, score in zip(boxes.tolist(), regions.areas.tolist(), found.scores.tolist(), strict=True)
    ]
    for row, runs in zip(rows, regions.masks or (), strict=False):
        row["segmentation"] = {"size": list(regions.size), "counts": counts_text(runs)}
    return rows


@dataclass(frozen=True, eq=False)
class PredictedRegions:
    """What a classifier finds in one image, the likeliest region first; supervision's annotators draw it as it is.

    Attributes:
        source: The path, or "image 3" for one given in memory.
        found: The regions, how sure each is, and the class of each pixel.
        class_names: The classifier's classes, in order.
        counted: Whether regions are things that can be counted; otherwise there is one for each class.
        pixels: Reads the image again; None where nothing can.
    """

    source: str
    found: FoundRegions
    class_names: tuple[str, ...]
    counted: bool = True
    pixels: Callable[[], Pixels] | None = field(default=None, repr=False)

    tracker_id = None  # nothing is followed from image to image

    def __len__(self) -> int:
        return len(self.regions)

    @property
    def regions(self) -> Regions:
        """The regions, in the image's own pixels, the right way up."""
        return self.found.regions

    @property
    def xyxy(self) -> Float32[np.ndarray, "regions 4"]:
        """Left, top, right, bottom of each region, pixels."""
        return self.regions.boxes.astype(np.float32)

    @cached_property
    def mask(self) -> Bitmaps | None:
        """The mask of each region (regions, height, width); None of boxes."""
        return None if self.regions.masks is None else self.regions.bitmaps()

    @property
    def confidence(self) -> Float64[np.ndarray, " regions"]:
        """How sure each region is, 0 to 1."""
        return self.found.scores

    @property
    def class_id(self) -> Int64[np.ndarray, " regions"]:
        """The number of each region's class."""
        return self.regions.classes

    @property
    def labels(self) -> list[str]:
        """The name of each region's class."""
        return [self.class_names[number] for number in self.class_id.tolist()]

    @property
    def data(self) -> dict[str, Shaped[np.ndarray, " regions"]]:
        """The name of each region's class, where supervision looks for it."""
        return {"class_name": np.array(self.labels, dtype=np.str_)}

    @property
    def metadata(self) -> dict[str, Any]:
        """The image's name, where supervision looks for it."""
        return {"source": self.source}

    @property
    def area(self) -> Float64[np.ndarray, " regions"]:
        """The pixels of each region."""
        return self.regions.areas

    @property
    def size(self) -> tuple[int, int]:
        """The image's height and width, pixels."""
        return self.regions.size

    @property
    def class_map(self) -> Int64[np.ndarray, "height width"] | None:
        """The number of the class of each pixel, 255 for none; None of boxes."""
        if self.found.class_map is not None or self.regions.masks is None:
            return self.found.class_map
        return self[::-1].regions.class_map()  # the likeliest last, so that it lies on top

    def is_empty(self) -> bool:
        """Tell whether nothing was found."""
        return not len(self)

    def counts(self) -> dict[str, int]:
        """Return the number of regions of each class."""
        numbers = np.bincount(self.class_id, minlength=len(self.class_names))
        return dict(zip(self.class_names, numbers.tolist(), strict=True))

    def pixels_of_classes(self) -> dict[str, int]:
        """Return the number of pixels that regions of each class cover."""
        sums = np.bincount(self.class_id, self.area, len(self.class_names)).astype(np.int64)
        return dict(zip(self.class_names, sums.tolist(), strict=True))

    def __getitem__(self, rows: Rows) -> "PredictedRegions":
        """Return some of the regions: `found[found.confidence > 0.5]`."""
        chosen = np.arange(len(self))[rows]
        return replace(self, found=FoundRegions(self.regions.chosen(chosen), self.confidence[chosen]))

    def __iter__(self) -> Iterator[Region]:
        """Give box, mask, confidence, class, None and data of each region, as supervision's `Detections` does."""
        for index, name in enumerate(self.labels):
            mask = None if self.mask is None else self.mask[index]
            yield self.xyxy[index], mask, self.confidence[index], self.class_id[index], None, {"class_name": name}

    def get_anchors_coordinates(self, anchor: Anchor) -> Float64[np.ndarray, "regions 2"]:
        """Return x and y of a place of each region's box, or of the middle of its mask."""
        left, top, right, bottom = self.regions.boxes.T
        if anchor.value == "CENTER_OF_MASS" and self.mask is not None:
            places = [np.argwhere(mask)[:, ::-1].mean(axis=0) + 0.5 for mask in self.mask]
            return np.array(places, dtype=np.float64).reshape(-1, 2)
        x = {"LEFT": left, "RIGHT": right}.get(anchor.value.rpartition("_")[2], (left + right) / 2)
        y = {"TOP": top, "BOTTOM": bottom}.get(anchor.value.partition("_")[0], (top + bottom) / 2)
        return np.stack([x, y], axis=1)

    def overlay(self, image: Pixels | None = None) -> Pixels:
        """Return the image with its regions drawn on it; without an image it is read again.

        Raises:
            ImageError: It cannot be read again.
        """
        if image is None and self.pixels is None:
            raise ImageError(f"'{self.source}' cannot be read again; give its pixels.")
        photo = image if image is not None else self.pixels()  # type: ignore[misc]  # one of both is there
        scores = self.confidence.tolist() if self.counted else None
        return drawn_regions(photo, self.regions, self.class_names, scores=scores, counted=self.counted)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, the regions as COCO's results have them: boxes as x, y, width, height, masks as text.

        Beside them stand the number of regions of each class, or, where there is one for each class, their shares of the image.
        """
        whole = max(self.size[0] * self.size[1], 1)
        shares = {name: round(number / whole, 6) for name, number in self.pixels_of_classes().items()}
        return {
            "source": self.source,
            "height": self.size[0],
            "width": self.size[1],
            **({"counts": self.counts()} if self.counted else {"shares": shares}),
            "regions": [
                {"label": name, "category_id": number} | region
                for name, number, region in zip(
                    self.labels, self.class_id.tolist(), coco_regions(self.found), strict=True
                )
            ],
        }

    def summary(self) -> str:
        """Return what was found, in one line."""
        if self.counted:
            found = [f"{number:,} {name}" for name, number in self.counts().items() if number]
        else:
            whole = max(self.size[0] * self.size[1], 1)
            found = [f"{name} {number / whole:.1%}" for name, number in self.pixels_of_classes().items() if number]
        return ", ".join(found) or "nothing found"

    def __repr__(self) -> str:
        """Return what was found, in one line."""
        return f"{type(self).__name__}: {self.source}: {self.summary()}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the image with its regions, and what they are."""
        try:
            image = notebook.image(encode(thumbnail(self.overlay(), SHOWN), "JPEG"), self.source)
        except ImageError:
            image = ""
        return notebook.table(self.source, [("found", self.summary())], below=image)

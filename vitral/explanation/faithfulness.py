"""How faithful a map is: what becomes of the class's probability as the most relevant pixels go, or come (arXiv 1806.07421)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.ndimage import gaussian_filter1d
from torch import Tensor
from torch.nn import functional

from vitral.events import Listener, Progress, ignore
from vitral.models.model import Images
from vitral.tasks.task import Probabilities

STEPS = 16  # by which all pixels are changed; the authors take one a row of the image
BATCH = 8
UNSCORED = (
    "the map has one value throughout and ranks no pixel before another, so deletion and insertion are not measured"
)
ROUNDING = 1e-5  # of the largest value: what float32 sums of equal values differ by
KERNEL = 11  # pixels of the authors' blur
SIGMA = 5.0  # its standard deviation, pixels
SIDE = 224  # pixels of the images that it is for

Image = Float[Tensor, "3 height width"]


@dataclass(frozen=True)
class Faithfulness:
    """Deletion and insertion scores of a map.

    Attributes:
        deletion: Area under `deletion_curve`, 0 to 1: the lower, the more faithful the map.
        insertion: Area under `insertion_curve`, 0 to 1: the higher, the more faithful the map.
        deletion_curve: The class's probability as the most relevant pixels are removed: of none, of a step's, ..., of all.
        insertion_curve: The same as they are put onto the blurred image.
    """

    deletion: float
    insertion: float
    deletion_curve: tuple[float, ...]
    insertion_curve: tuple[float, ...]


def faithfulness(
    probabilities: Callable[[Images], Probabilities],
    image: Image,
    relevance: Float[np.ndarray, "rows columns"],
    index: int,
    *,
    steps: int = STEPS,
    listener: Listener = ignore,
) -> Faithfulness | None:
    """Score a map by deletion and insertion, as the authors' code does (RISE, evaluation.py).

    None of a map of one value throughout: it ranks no pixel before another, and the scores would be those of the raster order.

    Removed is what becomes 0 in the network's input, the colour in the middle of what its preprocessing gives. The blur is
    Gaussian, of 5 pixels in a window of 11, the image 0 around itself; above 224 pixels it grows with the image. The map is
    interpolated to the pixels, bilinear.
    """
    if float(np.ptp(relevance)) <= ROUNDING * float(np.abs(relevance).max()):
        return None
    changed = steps_of(relevance, (image.shape[1], image.shape[2]), steps)
    start = blurred(image)
    deletion = [torch.where(changed <= step, 0.0, image) for step in range(steps + 1)]
    insertion = [torch.where(changed <= step, image, start) for step in range(steps)]  # the last is the image itself
    images = torch.stack(deletion + insertion)
    parts = []
    for batch in torch.split(images, BATCH):
        parts.append(probabilities(batch)[:, index])
        listener(Progress("score the map", sum(map(len, parts)), len(images)))
    values = torch.cat(parts).double()
    removed, put = values[: steps + 1], torch.cat([values[steps + 1 :], values[:1]])
    return Faithfulness(area(removed), area(put), tuple(removed.tolist()), tuple(put.tolist()))


def steps_of(
    relevance: Float[np.ndarray, "rows columns"], size: tuple[int, int], steps: int
) -> Int64[Tensor, "height width"]:
    """Return the step, counted from 1, in which each pixel is changed: the most relevant first, equal ones in raster order."""
    grid = torch.as_tensor(relevance, dtype=torch.float64)[None, None]
    fine = functional.interpolate(grid, size=size, mode="bilinear", align_corners=False).flatten()
    order = torch.argsort(fine, descending=True, stable=True)
    step = torch.empty_like(order)
    step[order] = torch.arange(len(order)) * steps // len(order) + 1
    return step.view(size)


def blurred(image: Image) -> Image:
    """Return the image that insertion begins with."""
    scale = max(1.0, max(image.shape[1:]) / SIDE)
    half = round(KERNEL // 2 * scale)
    peak = np.zeros(2 * half + 1)
    peak[half] = 1.0
    weights = torch.from_numpy(gaussian_filter1d(peak, SIGMA * scale)).to(image.dtype)
    channels = image[:, None]
    down = functional.conv2d(channels, weights.view(1, 1, -1, 1), padding=(half, 0))
    return functional.conv2d(down, weights.view(1, 1, 1, -1), padding=(0, half))[:, 0]


def area(curve: Float[Tensor, " points"]) -> float:
    """Return the area under a curve of equally spaced points over 0 to 1, by the trapezoidal rule."""
    return float((curve.sum() - (curve[0] + curve[-1]) / 2) / (len(curve) - 1))

"""Objects by their insides and rims in an exported file: what `vitral.tasks.components.find_objects` finds."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vitral.exporting.growth import Numbers, grown, highest
from vitral.exporting.readings import BOX_ROWS, BOXES_USED, MASKS_USED, AnswerReading, Maps, Outputs, enlarged
from vitral.tasks.regions import FoundRegions, Regions

UPMOST = 2.0  # more than any score: what is in no object comes before all objects


class FoundParts(AnswerReading):
    """Objects that do not overlap, the surest first: their boxes, scores and classes, and which of them each pixel is of.

    Args:
        view: Height and width of the network's input, pixels.
        outlined: Whether the file gives which object each pixel is of.
    """

    def __init__(self, view: tuple[int, int], *, outlined: bool) -> None:
        super().__init__()
        self.view, self.outlined = view, outlined
        self.names = (*(("objects",) if outlined else ()), "boxes", "scores", "classes")
        row = "int32 | batch, height, width: the number of each pixel's object: 1 for the first of the rows below; 0 for none"
        self.told = (*((row,) if outlined else ()), *BOX_ROWS)
        self.used = MASKS_USED.format(mask='outputs["objects"][0] == row + 1') if outlined else BOXES_USED

    def forward(self, logits: Maps, rows: int, columns: int) -> Outputs:
        """Return which object each pixel is of, if that is given, then boxes, scores and classes."""
        shares = enlarged(enlarged(logits, *self.view), rows, columns).softmax(dim=1)
        surest, classes = shares.argmax(dim=1), shares.shape[1] - 2
        numbers = grown(surest < classes, surest <= classes)
        most = highest(numbers)
        places = numbers.flatten(1)
        sums = _summed(shares[:, :-1].flatten(2).double(), places, most)
        areas = _summed(torch.ones_like(places).unsqueeze(1), places, most).squeeze(1)
        inside, rims = sums.narrow(1, 0, classes), sums.select(1, classes)
        scores = (inside.amax(dim=1) + rims) / areas.clamp(min=1)
        scores = torch.where(torch.arange(most + 1) > 0, scores, UPMOST)
        scores, order = scores.topk(most + 1, dim=1)
        boxes = _boxes(numbers, most).gather(1, order.unsqueeze(2).expand(-1, -1, 4))
        labels = inside.argmax(dim=1).gather(1, order)
        listed = [each.narrow(1, 1, most) for each in (boxes, scores.float(), labels)]
        if not self.outlined:
            return tuple(listed)
        ranks = torch.zeros_like(order).scatter(1, order, torch.arange(most + 1).expand(order.shape))
        return ranks.gather(1, places).reshape(numbers.shape).to(torch.int32), *listed

    def found(self, outputs: Mapping[str, np.ndarray], size: tuple[int, int]) -> FoundRegions:
        """Return the objects; see `AnswerReading`."""
        scores = outputs["scores"][0].astype(np.float64)
        there, classes = np.flatnonzero(scores > 0), outputs["classes"][0]
        if self.outlined:
            masks = [outputs["objects"][0] == number + 1 for number in there]
            regions = Regions.of_masks(size, classes[there].tolist(), masks)
        else:
            regions = Regions.of_boxes(size, classes[there].tolist(), outputs["boxes"][0][there])
        return FoundRegions(regions, scores[there])


def _summed(values: Tensor, places: Int64[Tensor, "batch pixels"], most: int) -> Tensor:
    """Return the sums of pixels' values (batch, kinds, pixels) over each object, of which 0 is none."""
    nothing = torch.zeros(values.shape[0], values.shape[1], most + 1, dtype=values.dtype)
    return nothing.scatter_add(2, places.unsqueeze(1).expand(values.shape), values)


def _boxes(numbers: Numbers, most: int) -> Float[Tensor, "batch objects 4"]:
    """Return left, top, right and bottom of each object, of which 0 is none."""
    batch, height, width = numbers.shape
    at = [torch.arange(width).expand(numbers.shape), torch.arange(height).unsqueeze(1).expand(numbers.shape)]
    places, sides = numbers.flatten(1), []
    for start, reduce in ((max(height, width), "amin"), (0, "amax")):
        for line in at:
            first = torch.full((batch, most + 1), start, dtype=torch.int64)
            sides.append(first.scatter_reduce(1, places, line.flatten(1) + (reduce == "amax"), reduce))
    return torch.stack(sides, dim=2).float()

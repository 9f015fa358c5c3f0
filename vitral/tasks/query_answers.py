"""What the answers of queries mean: classes of pixels, objects, or both, in the photo's own pixels; the last class is none.

Held against the image processor of EoMT in transformers (models/eomt/image_processing_eomt.py) and, where that takes one class
a query, against its authors' code (tue-mps/eomt, training/mask_classification_instance.py).
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from vitral.images.geometry import Geometry
from vitral.images.run_lengths import encode_mask
from vitral.images.to_photo import at_size, bands_in_photo, parts_in_photo
from vitral.models.dense.answers import QueryAnswers
from vitral.tasks.regions import VOID, FoundRegions, Regions

MOST_OBJECTS = 100  # of a photo: as many as COCO counts
SURE = 0.8  # the probability above which a query counts in a panoptic map, where no photos tell
OWN_SHARE = 0.8  # of its own mask that a query must keep there
UNSEEN = -1e4  # the logit of a mask where the view shows nothing of the photo

ClassLogits = Float[Tensor, "queries classes"]
MaskLogits = Float[Tensor, "queries rows columns"]
Owners = Int64[np.ndarray, "height width"]
Valid = Bool[np.ndarray, " queries"]


def find_classes_of_queries(answers: QueryAnswers, views: Sequence[Geometry]) -> list[FoundRegions]:
    """Return the class of each pixel of some photos, by the answers to their views."""
    return [_classes(*row) for row in _rows(answers, views)]


def class_scores(
    classes: ClassLogits, masks: MaskLogits, size: tuple[int, int]
) -> Float[Tensor, "classes height width"]:
    """Return the score of each class at each pixel of a view of that size: over the queries, class times mask."""
    shares = at_size(masks, size).sigmoid()
    return torch.einsum("qc,qhw->chw", classes.softmax(dim=-1)[:, :-1], shares)


def _classes(classes: ClassLogits, masks: MaskLogits, view: Geometry) -> FoundRegions:
    labels, sure = [], []
    for band in bands_in_photo(class_scores(classes, masks, view.size), view):
        best, label = band.max(dim=0)
        labels.append(label.cpu().numpy())
        sure.append((best / band.sum(dim=0).clamp(min=1e-6)).cpu().numpy())
    return FoundRegions.of_map(np.concatenate(labels), np.concatenate(sure).astype(np.float64))


def find_objects_of_queries(
    answers: QueryAnswers, views: Sequence[Geometry], *, most: int = MOST_OBJECTS
) -> list[FoundRegions]:
    """Return the objects in some photos, the likeliest first; those without a pixel are left out.

    Each of the likeliest pairs of query and class is one, so that a query may stand for several classes. Its score is the
    probability of the class times the mean probability inside the mask. At most so many pairs of a photo are looked at.
    """
    return [_objects(*row, most) for row in _rows(answers, views)]


def _objects(classes: ClassLogits, masks: MaskLogits, view: Geometry, most: int) -> FoundRegions:
    shares = classes.softmax(dim=-1)[:, :-1]
    scores, pairs = shares.flatten().topk(min(most, shares.numel()))
    queries, numbers = torch.unique(pairs // shares.shape[1], return_inverse=True)
    runs, sure = [], []
    for part, encoded in parts_in_photo(masks[queries], view):
        inside = part > 0
        runs.append(encoded)
        sure.append((part.sigmoid() * inside).sum() / (inside.sum() + 1e-6))
    final = (scores * torch.stack(sure)[numbers]).double().cpu().numpy()
    order = np.argsort(-final, kind="stable")
    labels, rows = (pairs % shares.shape[1]).tolist(), numbers.tolist()
    regions = Regions.of_runs(view.original, [labels[place] for place in order], [runs[rows[place]] for place in order])
    seen = regions.areas > 0
    return FoundRegions(regions.chosen(seen), final[order][seen])


def segments_by_sureness(
    answers: QueryAnswers, views: Sequence[Geometry], *, stuff: Collection[int], sures: Sequence[float]
) -> list[list[FoundRegions]]:
    """Return panoptic maps of some photos: regions that do not overlap, of which those of one class of stuff are one.

    Queries that are sure of a class share out the pixels by probability times mask; one that keeps too little of its own mask
    is left out, and so is what it kept. Of each photo there is a map for each of `sures`, one object where maps are the same.

    Args:
        answers: The answers to views of the photos; the last class is "no object".
        views: The steps from each photo to its view.
        stuff: The classes that are not counted, such as sky.
        sures: Probabilities of its class above which a query counts, 0 to 1.
    """
    return [_segments(*row, stuff, sures) for row in _rows(answers, views)]


def _segments(
    classes: ClassLogits, masks: MaskLogits, view: Geometry, stuff: Collection[int], sures: Sequence[float]
) -> list[FoundRegions]:
    scores, labels = classes.softmax(dim=-1).max(dim=-1)
    some = (labels != classes.shape[1] - 1) & (scores > min(sures))
    scores, labels = scores[some], labels[some]
    kept = [scores > sure for sure in sures]
    numbers = [int(each.sum()) for each in kept]  # which tell these sets apart, as each is within the others
    sets = {number: each for number, each in zip(numbers, kept, strict=True) if number}
    found = {0: FoundRegions(Regions.of_masks(view.original, [], []), np.zeros(0), np.full(view.original, VOID))}
    for (number, each), owned in zip(
        sets.items(), _owners(scores, masks[some], view, list(sets.values())), strict=True
    ):
        found[number] = _joined(scores[each], labels[each], *owned, stuff)
    return [found[number] for number in numbers]


def _joined(
    scores: Float[Tensor, " queries"],
    labels: Int64[Tensor, " queries"],
    owners: Owners,
    valid: Valid,
    stuff: Collection[int],
) -> FoundRegions:
    """Return the segments of queries that own pixels, those of one class of stuff as one."""
    segments: dict[int, int] = {}  # by query, or by class of stuff
    numbers = np.full(len(scores) + 1, -1)
    first = []
    for query in np.flatnonzero(valid).tolist():
        label = int(labels[query])
        key = -1 - label if label in stuff else query
        if key not in segments:
            segments[key] = len(segments)
            first.append(query)
        numbers[query] = segments[key]
    owners = numbers[owners]
    masks = [encode_mask(owners == number) for number in range(len(first))]
    regions = Regions.of_runs(owners.shape, labels[first].tolist(), masks)
    class_map = np.full(owners.shape, VOID, dtype=np.int64)
    class_map[owners >= 0] = regions.classes[owners[owners >= 0]]
    return FoundRegions(regions, scores[first].double().cpu().numpy(), class_map)


def _owners(
    scores: Float[Tensor, " queries"], masks: MaskLogits, view: Geometry, sets: Sequence[Bool[Tensor, " queries"]]
) -> list[tuple[Owners, Valid]]:
    """Return for each set of queries which of them owns each pixel, -1 for none, and which keep enough of their own masks."""
    if not sets:
        return []
    owners: list[list[Owners]] = [[] for _ in sets]
    counts = [torch.zeros(3, int(kept.sum()), dtype=torch.int64, device=masks.device) for kept in sets]
    for band in bands_in_photo(masks, view, fill=UNSEEN):
        every = band.sigmoid()
        for kept, bands, count in zip(sets, owners, counts, strict=True):
            shares = every if count.shape[1] == len(every) else every[kept]
            owner = (scores[kept][:, None, None] * shares).argmax(dim=0)
            inside = shares.gather(0, owner[None])[0] >= 0.5
            count[0] += (shares >= 0.5).flatten(1).sum(dim=1)
            count[1] += owner.flatten().bincount(minlength=len(shares))
            count[2] += owner[inside].bincount(minlength=len(shares))
            bands.append(owner.where(inside, -1).cpu().numpy())
    return [(np.concatenate(bands), _keeping(*count)) for bands, count in zip(owners, counts, strict=True)]


def _keeping(
    whole: Int64[Tensor, " queries"], own: Int64[Tensor, " queries"], final: Int64[Tensor, " queries"]
) -> Valid:
    """Return which queries keep enough: by the pixels of their masks, those that they own, and those that are both."""
    valid = (whole > 0) & (own > 0) & (final > 0) & (own / whole > OWN_SHARE)
    return valid.cpu().numpy()


def _rows(answers: QueryAnswers, views: Sequence[Geometry]) -> Iterable[tuple[ClassLogits, MaskLogits, Geometry]]:
    assert answers.masks is not None, "a detector's answers have no masks"
    return zip(answers.classes.float(), answers.masks.float(), views, strict=True)

"""Random scenes: what is in some photos, and what an imagined network finds there."""

import numpy as np
from jaxtyping import Bool, Int64

from vitral.tasks.regions import VOID, FoundRegions, Regions

Scene = list[tuple[Regions, FoundRegions]]  # what is there, and what is found, photo by photo
Random = np.random.RandomState  # whose numbers are the same in every version of NumPy


def blob(random: Random, size: tuple[int, int], reach: int) -> Bool[np.ndarray, "height width"]:
    """Return a mask of an ellipse, now and then with a hole."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    centre, radii = random.uniform(0, size), random.uniform(1.5, reach, 2)
    distance = ((rows - centre[0]) / radii[0]) ** 2 + ((columns - centre[1]) / radii[1]) ** 2
    return (distance <= 1) & ((distance > 0.2) | (random.random() > 0.3))


def class_map(random: Random, size: tuple[int, int], classes: int, *, void: bool) -> Int64[np.ndarray, "height width"]:
    """Return a map of blobs on a ground of class 0, with pixels that count for nothing where `void`."""
    labels = np.zeros(size, dtype=np.int64)
    for _ in range(int(random.randint(0, 9))):
        labels[blob(random, size, 14)] = random.randint(0, classes)
    if void:
        labels[blob(random, size, 9)] = VOID
    return labels


def found_map(labels: Int64[np.ndarray, "height width"], score: float = 0.8) -> FoundRegions:
    """Return a map of classes as a network finds it."""
    regions = Regions.of_map(labels)
    return FoundRegions(regions, np.full(len(regions), score), labels)


def objects(
    random: Random,
    *,
    masks: bool,
    ties: bool = True,
    classes: int = 3,
    size: tuple[int, int] = (150, 130),
    most: int = 12,
    more: int = 0,
) -> tuple[Regions, FoundRegions]:
    """Return the objects of a photo, crowds among them, and answers: close, shifted, of other classes, invented, equally sure.

    All coordinates are whole pixels, so that boxes have exact areas however they are written.

    Args:
        random: What draws.
        masks: Whether regions have masks.
        ties: Whether several answers may be equally sure.
        classes: The number of classes.
        size: The photo's height and width.
        most: The most objects.
        more: How many further answers there are.
    """
    shapes = [blob(random, size, 60 if random.random() < 0.3 else 20) for _ in range(int(random.randint(0, most)))]
    shapes = [shape for shape in shapes if shape.any()]
    numbers = random.randint(0, classes, len(shapes)).tolist()
    crowd = (random.random(len(shapes)) < 0.15).tolist()
    areas = [float(shape.sum()) * (0.8 if random.random() < 0.2 else 1.0) for shape in shapes]
    found, labels = [], []
    for shape, number in zip(shapes, numbers, strict=True):
        for _ in range(int(random.randint(0, 4))):
            found.append(np.roll(shape, random.randint(-4, 5, 2), axis=(0, 1)) if random.random() < 0.8 else shape)
            labels.append(number if random.random() < 0.85 else int(random.randint(0, classes)))
    for _ in range(int(random.randint(0, 4)) + more):
        found.append(blob(random, size, 25))
        labels.append(int(random.randint(0, classes)))
    scores = np.round(random.random(len(found)), 1 if random.random() < 0.5 and ties else 6)
    truth = Regions.of_masks(size, numbers, shapes, crowd=crowd, areas=areas)
    answer = Regions.of_masks(size, labels, found)
    if not masks:
        truth = Regions.of_boxes(size, numbers, truth.boxes, crowd=crowd, areas=areas)
        answer = Regions.of_boxes(size, labels, answer.boxes)
    return truth, FoundRegions(answer, scores)


def object_photos(seed: int, *, masks: bool, ties: bool = True) -> Scene:
    """Return some photos: one in three without objects, one with more than 100 answers of a class now and then."""
    random = np.random.RandomState(seed)
    photos = []
    for index in range(int(random.randint(1, 7))):
        more = 330 if seed % 25 == 0 and index == 0 else 0
        most = 1 if random.random() < 0.3 else 12
        photos.append(objects(random, masks=masks, ties=ties, most=most, more=more))
    return photos

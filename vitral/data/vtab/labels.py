"""From a TFDS example to the label of a VTAB task (google-research/task_adaptation, data/*.py)."""

import bisect
from collections.abc import Callable
from functools import partial

from vitral.data.vtab.records import Example
from vitral.errors import DataError

Label = Callable[[Example], int]

# The label is the index of the last threshold below the distance.
CLEVR_DISTANCES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_DISTANCES = (-100.0, 8.0, 20.0, 999.0)
NO_VEHICLE = 1000.0  # metres: the distance of an image without a vehicle
VEHICLES = 3  # KITTI's types below this number are car, van and truck
FEWEST_OBJECTS = 3  # in an image of CLEVR


def _stored(name: str, example: Example) -> int:
    return int(_of(example, name)[0])


def _binned(name: str, width: float, example: Example) -> int:
    return int(_stored(name, example) // width)


def clevr_count(example: Example) -> int:
    """Return the number of objects, above the fewest that there are."""
    return len(_of(example, "objects/pixel_coords")) // 3 - FEWEST_OBJECTS


def clevr_distance(example: Example) -> int:
    """Return how far away the nearest object is, in CLEVR's units: one of 6 bins."""
    return _bin(min(_of(example, "objects/pixel_coords")[2::3]), CLEVR_DISTANCES)


def kitti_distance(example: Example) -> int:
    """Return how far away the nearest car, van or truck is: up to 8 m, up to 20, further, or there is none."""
    depths = example.get("objects/location", ())[2::3]
    kinds = example.get("objects/type", ())
    near = [depth for depth, kind in zip(depths, kinds, strict=True) if kind < VEHICLES]
    return _bin(min([*near, NO_VEHICLE]), KITTI_DISTANCES)


def _bin(value: float, thresholds: tuple[float, ...]) -> int:
    return bisect.bisect_left(thresholds, value) - 1


OF_OBJECTS: dict[str, Label] = {
    "clevr_count": clevr_count,
    "clevr_distance": clevr_distance,
    "kitti_distance": kitti_distance,
}


def label_named(name: str, width: float | None = None) -> Label:
    """Return a label by its name: one that is made of objects, or else a stored feature.

    Args:
        name: The label or the feature.
        width: The number of stored values, counted from 0, that are one class; None where each is one.
    """
    if name in OF_OBJECTS:
        return OF_OBJECTS[name]
    return partial(_stored, name) if width is None else partial(_binned, name, width)


def _of(example: Example, name: str) -> list[float]:
    values = example.get(name)
    if values is not None and not values:
        raise DataError(f"its feature '{name}' is empty")
    if values is None:
        raise DataError(f"a record has no feature '{name}', but {', '.join(sorted(example)) or 'none'}")
    return list(values)

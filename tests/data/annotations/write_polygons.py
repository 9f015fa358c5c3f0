"""Writes polygons.json: random polygons, and the run lengths that pycocotools 2.0.11 gives of them.

Run it where pycocotools is installed: python -m tests.data.annotations.write_polygons
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("polygons.json")
COUNT = 90


def drawn(number: int) -> tuple[list[list[float]], int, int]:
    """Return polygons of a mask, and its height and width: random points, whole or half ones, ovals, and several parts."""
    rng = np.random.default_rng(number)
    height, width = (int(side) for side in rng.integers(1, 70, 2))
    polygons = []
    for _ in range(1 + (number % 5 == 0) + (number % 10 == 0)):
        points = int(rng.integers(3, 12))
        kind = number % 4
        if kind == 3:
            angles = np.sort(rng.uniform(0, 2 * np.pi, points))
            radius = rng.uniform(2, 40)
            around = np.stack([np.cos(angles), np.sin(angles)], axis=1) * radius + [width / 2, height / 2]
            polygons.append(around.round(2).reshape(-1).tolist())
            continue
        values = rng.uniform(-0.3, 1.3, (points, 2)) * [width, height]
        rounded = {0: values.round(3), 1: values.round(), 2: (2 * values).round() / 2}[kind]
        if number % 7 == 0:
            rounded[1] = rounded[0]
        polygons.append(rounded.reshape(-1).tolist())
    return polygons, height, width


def main() -> None:
    """Write the file."""
    from pycocotools import mask

    rows = []
    for number in range(COUNT):
        polygons, height, width = drawn(number)
        merged = mask.merge(mask.frPyObjects(polygons, height, width))
        rows.append([polygons, height, width, merged["counts"].decode(), mask.toBbox(merged).tolist()])
    FILE.write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()

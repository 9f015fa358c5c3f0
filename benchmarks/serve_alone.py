"""The engine that `vitral serve` takes, without a server: images/s in memory and from bytes, and the milliseconds of one photo.

    python benchmarks/serve_alone.py CLASSIFIER FOLDER --seconds 5

From bytes is as `vitral predict` takes a folder: threads decode ahead while the network computes. Prints a line of JSON.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from vitral.classifier.bulk.ahead import prepare_ahead
from vitral.classifier.classifier import Classifier
from vitral.classifier.inputs import list_images, to_pixels
from vitral.data.image_files import LazyImage
from vitral.events import ignore
from vitral.serving.server import NamedClassifier

SIZES = (1, 2, 4, 8, 16)
ONE_BY_ONE = 20  # photos


def prepared(classifier: Classifier, size: int, seconds: float) -> float:
    """Return the images/s of batches in memory."""
    batch, count = torch.rand(size, 3, *classifier.preprocessing.image_size), 0
    classifier.answers(batch)
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        classifier.answers(batch)
        count += size
    return count / (time.perf_counter() - start)


def from_bytes(classifier: Classifier, contents: list[bytes], size: int, seconds: float) -> tuple[float, float]:
    """Return the images/s from encoded bytes, and the milliseconds of processor time of each."""
    start, used, count, ready = time.perf_counter(), time.process_time(), 0, []

    def images() -> Iterator[tuple[int, LazyImage]]:
        index = 0
        while time.perf_counter() < start + seconds:
            yield index, list_images(contents[index % len(contents)], ignore)[0]
            index += 1

    workers = torch.get_num_threads()
    for one in prepare_ahead(images(), classifier.preprocessing, workers=workers, batch_size=size):
        if one.pixels is None:
            raise SystemExit(one.error)
        ready.append(one.pixels)
        if len(ready) == size:
            classifier.answers(torch.stack(ready))
            count, ready = count + size, []
    return count / (time.perf_counter() - start), 1000 * (time.process_time() - used) / count


def alone(classifier: Classifier, content: bytes) -> float:
    """Return the seconds of one photo, from its bytes to its answer."""
    start = time.perf_counter()
    classifier.answers(classifier.preprocessing(to_pixels(content))[None])
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classifier")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0, help="in all")
    wanted = parser.parse_args()
    classifier = NamedClassifier(wanted.classifier).load(ignore)
    contents = [path.read_bytes() for path in sorted(wanted.folder.rglob("*.jpg"))]
    paces = {size: prepared(classifier, size, wanted.seconds / 2 / len(SIZES)) for size in SIZES}
    size = max(paces, key=paces.__getitem__)
    pace, used = from_bytes(classifier, contents, size, wanted.seconds / 2)
    found = {
        "computed_by": classifier.predictor.computed_by,
        "prepared": paces,
        "from_bytes": pace,
        "ms_per_image": used,
        "one_ms": 1000 * statistics.median(alone(classifier, each) for each in contents[:ONE_BY_ONE]),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

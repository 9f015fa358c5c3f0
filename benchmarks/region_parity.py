"""The ONNX file of a classifier of regions on photos, as a whole and as Vitral computes it, beside the classifier.

    python benchmarks/region_parity.py CLASSIFIER DATA [--photos 210]

DATA is what `open_data` takes, such as instances:nuclei/; photos are drawn evenly from all of its splits. A line for each way
to compute the file: the share of pixels with the same class, the mean and the least overlap of what is found, photos with
another number of regions, the largest difference of a score in the others, and the seconds of all photos.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import vitral
from vitral.classifier.exported import described
from vitral.classifier.find_regions import find_in, is_long
from vitral.data.open import open_data
from vitral.data.scorable import marked_photo
from vitral.data.subset import Joined, spread_over
from vitral.errors import VitralError
from vitral.exporting.export_regions import likeness, write_regions_file
from vitral.images.photo import Photo
from vitral.inference.engines import onnxruntime_session, run_onnxruntime, thread_count
from vitral.inference.exported.format import IMAGES
from vitral.tasks.dense import dense_task
from vitral.tasks.regions import FoundRegions

Find = Callable[[Photo], FoundRegions]


def ways(classifier: vitral.Classifier, folder: Path) -> dict[str, Find]:
    """Write the file, and return what computes it, the classifier first."""
    file = folder / "model.onnx"
    reading = write_regions_file(classifier, described(classifier), file)
    session, opened = onnxruntime_session(file, thread_count()), vitral.load(file)

    def whole(photo: Photo) -> FoundRegions:
        outputs = run_onnxruntime(session, list(reading.names), {IMAGES: photo.pixels[None]})
        return reading.found(dict(zip(reading.names, outputs, strict=True)), photo.size)

    return {
        "the classifier": lambda photo: find_in(classifier, photo),
        "the file in Vitral": lambda photo: find_in(opened, photo),
        "the file as a whole": whole,
    }


class Beside:
    """What one way to compute a file gives beside what its classifier gives."""

    def __init__(self, *, counted: bool) -> None:
        self.counted, self.seconds, self.others, self.apart = counted, 0.0, 0, 0.0
        self.same: list[int] = []
        self.pixels: list[int] = []
        self.alike: list[float] = []

    def add(self, own: FoundRegions, found: FoundRegions) -> None:
        """Add a photo."""
        self.alike.append(likeness(own, found, counted=self.counted))
        if own.regions.masks is not None:
            same = own.regions.class_map() == found.regions.class_map()
            self.same.append(int(same.sum()))
            self.pixels.append(same.size)
        if len(own.scores) == len(found.scores):
            self.apart = max(self.apart, float(np.abs(own.scores - found.scores).max(initial=0)))
        else:
            self.others += 1

    def line(self) -> str:
        """Return it for people."""
        same = f"{sum(self.same) / sum(self.pixels):.6%} of pixels alike, " if self.pixels else ""
        return (
            f"{same}overlap {np.mean(self.alike):.6f}, at least {min(self.alike):.6f}; {self.others} photos with another "
            f"number of regions; scores differ by at most {self.apart:.2g}; {self.seconds:.0f} s"
        )


def main() -> None:
    """Compare on photos, and print a line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("classifier")
    parser.add_argument("data")
    parser.add_argument("--photos", type=int, default=210)
    options = parser.parse_args()
    try:
        classifier = vitral.load(options.classifier)
        source = spread_over(Joined(list(open_data(options.data, verify=False).splits.values())), options.photos)
        with tempfile.TemporaryDirectory() as folder:
            own, *others = ways(classifier, Path(folder)).items()
            beside = {name: Beside(counted=dense_task(classifier.task).counted) for name, _ in others}
            regions, seconds = 0, 0.0
            for index in range(len(source)):
                photo, _ = marked_photo(source, index)
                if is_long(*photo.size):
                    continue  # which the file as a whole does not see through windows
                began = time.monotonic()
                answer = own[1](photo)
                seconds += time.monotonic() - began
                regions += len(answer.scores)
                for name, find in others:
                    began = time.monotonic()
                    found = find(photo)
                    beside[name].seconds += time.monotonic() - began
                    beside[name].add(answer, found)
    except VitralError as error:
        parser.error(str(error))
    print(f"{len(beside[others[0][0]].alike)} photos, {regions:,} regions; {own[0]}: {seconds:.0f} s")
    for name, each in beside.items():
        print(f"  {name:22}{each.line()}")


if __name__ == "__main__":
    main()

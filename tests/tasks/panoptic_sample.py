"""The two photos of panopticapi's sample_data with imagined answers, and what its code makes of them.

Run with a copy of github.com/cocodataset/panopticapi to write the files anew:
python -m tests.tasks.panoptic_sample PANOPTICAPI
"""

import contextlib
import importlib
import io
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from PIL import Image

from vitral.tasks.regions import FoundRegions, Regions

HERE = Path(__file__).parent
MAPS, FIGURES = HERE / "panoptic_sample.npz", HERE / "panoptic_sample.json"
SMALL = 4  # every fourth pixel of a row and of a column: all that the rules need


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments of a photo: of each pixel which one it is of, 0 for none; of each its class and whether it is a crowd."""

    places: Int64[np.ndarray, "height width"]
    classes: Int64[np.ndarray, " segments"]
    crowd: Bool[np.ndarray, " segments"]

    def seen(self) -> list[int]:
        return [number for number in range(1, len(self.classes) + 1) if (self.places == number).any()]

    def regions(self) -> Regions:
        seen = self.seen()
        masks = [self.places == number for number in seen]
        rows = np.array(seen, dtype=np.int64) - 1
        return Regions.of_masks(self.places.shape, self.classes[rows].tolist(), masks, crowd=self.crowd[rows].tolist())


@dataclass(frozen=True)
class Variant:
    """How the answers differ from the truth."""

    shift: int = 0  # pixels
    merge: float = 0.0  # the share of segments that are found as one with the one before
    rename: float = 0.0  # the share that is found as another class
    forget: float = 0.0  # the share that is not found
    unmark: float = 0.0  # the share of the truth that counts for nothing


VARIANTS = {
    "as it is": Variant(),
    "shifted": Variant(shift=2),
    "far": Variant(shift=7, forget=0.2),
    "merged": Variant(merge=0.4),
    "renamed": Variant(rename=0.4, shift=1),
    "unmarked": Variant(unmark=0.5, shift=1, rename=0.2),
    "all": Variant(shift=3, merge=0.2, rename=0.2, forget=0.2, unmark=0.3),
}


def sample() -> tuple[tuple[str, ...], set[int], list[Segments]]:
    """Return the names of the classes, which are things, and the photos."""
    with np.load(MAPS) as file:
        photos = [
            Segments(
                *(
                    file[f"{name}{photo}"].astype(kind)
                    for name, kind in (("places", int), ("classes", int), ("crowd", bool))
                )
            )
            for photo in range(2)
        ]
        return tuple(file["names"].tolist()), set(file["things"].tolist()), photos


def changed(photos: list[Segments], variant: Variant) -> list[tuple[Segments, Segments]]:
    """Return the truth and the answers of each photo."""
    random, pairs = np.random.RandomState(5), []
    for photo in photos:
        count = len(photo.classes)
        merged, renamed, forgotten, unmarked = (
            np.flatnonzero(random.random_sample(count) < share) + 1
            for share in (variant.merge, variant.rename, variant.forget, variant.unmark)
        )
        places, classes = photo.places.copy(), photo.classes.copy()
        for number in merged[merged > 1]:
            places[places == number] = number - 1
        classes[renamed - 1] = random.choice(photo.classes, len(renamed))
        places[np.isin(places, forgotten)] = 0
        places = np.roll(places, variant.shift, axis=(0, 1))
        truth = np.where(np.isin(photo.places, unmarked), 0, photo.places)
        pairs.append(
            (Segments(truth, photo.classes, photo.crowd), Segments(places, classes, np.zeros(count, dtype=bool)))
        )
    return pairs


def found(segments: Segments) -> FoundRegions:
    """Return segments as a network finds them."""
    regions = segments.regions()
    return FoundRegions(regions, np.linspace(0.9, 0.5, len(regions)))


def main(panopticapi: Path) -> None:
    """Write the maps, and what panopticapi makes of them."""
    sys.path.insert(0, str(panopticapi))
    write_maps(panopticapi / "sample_data")
    names, things, photos = sample()
    figures = {name: theirs(changed(photos, variant), len(names), things) for name, variant in VARIANTS.items()}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


def write_maps(folder: Path) -> None:
    described = json.loads((folder / "panoptic_examples.json").read_text())
    ids = {each["category_id"] for photo in described["annotations"] for each in photo["segments_info"]}
    known = [each for each in described["categories"] if each["id"] in ids]
    number = {each["id"]: index for index, each in enumerate(known)}
    arrays: dict[str, Any] = {
        "names": np.array([each["name"] for each in known]),
        "things": np.array([number[each["id"]] for each in known if each["isthing"]]),
    }
    for index, photo in enumerate(described["annotations"]):
        colours = np.asarray(Image.open(folder / "panoptic_examples" / photo["file_name"]), dtype=np.int64)
        marks = (colours * [1, 256, 256**2]).sum(axis=2)[::SMALL, ::SMALL]
        places = np.zeros(marks.shape, dtype=np.uint8)
        for place, segment in enumerate(photo["segments_info"], start=1):
            places[marks == segment["id"]] = place
        arrays[f"places{index}"] = places
        arrays[f"classes{index}"] = np.array([number[each["category_id"]] for each in photo["segments_info"]])
        arrays[f"crowd{index}"] = np.array([each["iscrowd"] for each in photo["segments_info"]])
    np.savez_compressed(MAPS, **arrays)


def theirs(pairs: list[tuple[Segments, Segments]], num_classes: int, things: set[int]) -> dict[str, Any]:
    """Return what panopticapi's evaluation.py says: all, things and stuff, and each class that is anywhere."""
    pq_compute_single_core = importlib.import_module("panopticapi.evaluation").pq_compute_single_core
    id2rgb = importlib.import_module("panopticapi.utils").id2rgb
    categories = {index + 1: {"isthing": int(index in things)} for index in range(num_classes)}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        matched = []
        for index, pair in enumerate(pairs):
            sides = []
            for side, segments in zip("tf", pair, strict=True):
                name = f"{side}{index}.png"
                Image.fromarray(id2rgb(segments.places)).save(Path(folder) / name)
                infos = [
                    {
                        "id": number,
                        "category_id": int(segments.classes[number - 1]) + 1,
                        "iscrowd": int(segments.crowd[number - 1]),
                        "area": int((segments.places == number).sum()),
                    }
                    for number in segments.seen()
                ]
                sides.append({"image_id": index, "file_name": name, "segments_info": infos})
            matched.append(tuple(sides))
        totals = pq_compute_single_core(0, matched, folder, folder, categories)
    figures: dict[str, Any] = {}
    for name, which in (("all", None), ("things", True), ("stuff", False)):
        figures[name], classes = totals.pq_average(categories, isthing=which)
        if name == "all":
            counts = {label: (stat.tp, stat.fp, stat.fn) for label, stat in totals.pq_per_cat.items()}
            known = {label: each for label, each in classes.items() if any(counts[label])}
            figures["classes"] = {label - 1: {**each, "counts": counts[label]} for label, each in known.items()}
    return figures


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The facts that a plan rests on, as they are read off real images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.cases import every_case
from vitral.data.open import open_data
from vitral.data.source import PixelSource
from vitral.images.decode import Pixels, Shrink
from vitral.models.catalog import variant
from vitral.models.families import count_macs, replace
from vitral.models.model import ModelConfig
from vitral.tasks.instances import INSTANCES
from vitral.tasks.regions import Regions
from vitral.tasks.semantic import SEMANTIC
from vitral.training import facts
from vitral.training.choose.draft import draft_of
from vitral.training.facts import look, macs_of, small_regions
from vitral.training.request import Request


def write(folder: Path, shown: list[int], side: int, *, first: int = 0) -> Path:
    """Write square parts of photographs, each shrunk to what it is to show and then brought to a side."""
    rng = np.random.default_rng(0)
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    for number, detail in enumerate(shown, first):
        left, top = (int(rng.integers(0, most)) for most in (240, 27))
        part = photos[number % 2].crop((left, top, left + 400, top + 400))
        target = folder / "train" / ("china", "flower")[number % 2]
        target.mkdir(parents=True, exist_ok=True)
        part.resize((detail, detail)).resize((side, side)).save(target / f"{number:02}.jpg")
    return folder


def looked(folder: Path, *, sized: bool = True, timed: bool = True) -> tuple[float | None, float | None]:
    """Return the images' shorter side, and that of which they have the detail, pixels."""
    found = look(open_data(str(folder)), sized=sized, timed=timed).data
    return found.side, found.detail


@every_case(("shown", "detail"), [([32] * 20, 32.0), ([300] * 20, None), ([300] * 11 + [32] * 9, None)])
def test_what_images_show_is_that_of_the_middle_one(tmp_path: Path, shown: list[int], detail: float | None) -> None:
    assert looked(write(tmp_path, shown, 300)) == (300.0, detail)


def test_images_of_several_sizes_do_not_count_as_enlarged_for_a_few_that_were(tmp_path: Path) -> None:
    write(tmp_path, [250] * 10, 250)
    write(tmp_path, [400] * 8 + [32] * 6, 400, first=10)
    assert looked(tmp_path) == (325.0, None)


def test_nothing_is_looked_at_where_nothing_depends_on_it(tmp_path: Path) -> None:
    draft = draft_of(Request("pre-train", str(tmp_path), recipe="deit-ti16"))
    found = looked(write(tmp_path, [32] * 20, 300), sized=draft.automatic, timed=draft.needs_network)
    assert found == (None, None)
    assert looked(tmp_path, timed=False) == (300.0, None), "the detail is of use for a network's choice alone"


class Marked(PixelSource):
    """Photos of 100 x 200 pixels with squares of two sizes and a stray pixel, on a ground of its own class."""

    def __init__(self, *, counted: bool) -> None:
        canvas = np.zeros((100, 200), bool)
        squares = [(5, 5, 10)] * 1 + [(30, 5 + 30 * place, 20) for place in range(5)] + [(90, 190, 1)]
        masks = [canvas.copy() for _ in squares]
        for mask, (top, left, side) in zip(masks, squares, strict=True):
            mask[top : top + side, left : left + side] = True
        together = np.any(masks, axis=0)
        objects = Regions.of_masks((100, 200), [0] * len(masks), masks)
        self.label_of = objects if counted else Regions.of_masks((100, 200), [0, 1], [~together, together])

    def __len__(self) -> int:
        return 40

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        return np.zeros((100, 200, 3), np.uint8)

    def label(self, index: int) -> Regions:
        return self.label_of

    def labels(self) -> np.ndarray:
        return np.full(len(self), -1)

    def describe(self, index: int) -> str:
        return f"marked photo {index}"


def test_small_regions_are_those_of_a_tenth() -> None:
    assert small_regions(Marked(counted=True), INSTANCES) == 0.01, "each object counts"
    assert small_regions(Marked(counted=False), SEMANTIC) == 0.2, (
        "each pixel of a connected part counts, the ground's do not"
    )


def test_a_listed_network_is_not_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = replace(variant("efficientnet-lite0"), num_classes=1000)
    other = replace(listed, image_size=(192, 192))
    right = {config: count_macs(config) for config in (listed, other)}
    counted: list[ModelConfig] = []

    def counting(config: ModelConfig) -> int:
        counted.append(config)
        return right[config]

    monkeypatch.setattr(facts, "count_macs", counting)
    assert {config: macs_of(config) for config in (listed, other)} == right
    assert counted == [other]

"""The facts that a plan rests on, as they are read off real images."""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.cases import every_case
from vitral.data.open import open_data
from vitral.training.choose.draft import draft_of
from vitral.training.facts import look
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

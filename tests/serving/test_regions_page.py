"""The page of `vitral serve` in a real Chromium, for classifiers of regions: drawn, counted, from a threshold on."""

import base64
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.chromium import Chromium
from tests.regions import DRAWN
from tests.serving.conftest import Running
from tests.serving.test_page import HEIC, LINES, answered, needs_browser, select
from tests.serving.test_regions import found, photo
from vitral.tasks.drawn_regions import class_colours

pytestmark = needs_browser
BARS = (
    "Object.fromEntries([...document.querySelectorAll('.result:first-child .bars bdi')].map((it, index) => "
    "[it.textContent, document.querySelectorAll('.result:first-child .bars .value')[index].textContent]))"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A photo that a phone has turned."""
    path = tmp_path / "a photo's.png"
    path.write_bytes(photo(0, 180, 240, 6))
    return path


def show(browser: Chromium, server: Running, name: str, *files: Path) -> None:
    """Open the page, and choose a classifier and photos."""
    browser.open(f"http://127.0.0.1:{server.port}/")
    select(browser, "#classifier", name)
    browser.choose("#file", files)
    browser.wait(f"document.querySelectorAll('.facts-line').length === {len(files)}")
    browser.wait("[...document.querySelectorAll('.facts-line')].every((it) => it.textContent)")


def canvas(browser: Chromium) -> np.ndarray:
    """Return the canvas over the first photo, (rows, columns, 4)."""
    text: str = browser.run("document.querySelector('canvas').toDataURL().split(',')[1]")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA"))


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_found_is_counted_as_by_find_regions(
    regions_server: Running, regions_home: Path, browser: Chromium, file: Path, name: str
) -> None:
    own = found(regions_home, name, file.read_bytes())
    show(browser, regions_server, name, file)
    if own.counted:
        expected = {label: str(count) for label, count in own.counts().items() if count}
    else:
        whole = own.size[0] * own.size[1]
        expected = {label: f"{pixels / whole:.1%}" for label, pixels in own.pixels_of_classes().items() if pixels}
    assert browser.run(BARS) == expected
    assert browser.run("document.querySelector('.surer').hidden") is not own.counted
    assert browser.run("document.querySelector('.facts-line').textContent").startswith("180×240 pixels")


def test_masks_lie_where_they_are_found(
    regions_server: Running, regions_home: Path, browser: Chromium, file: Path
) -> None:
    own = found(regions_home, "digit-scenes-semantic", file.read_bytes())
    browser.be(1280, 900)
    show(browser, regions_server, "digit-scenes-semantic", file)
    drawn, labels = canvas(browser), own.class_map
    assert labels is not None
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(int) for new, old in zip(drawn.shape[:2], labels.shape, strict=True)
    )
    there = labels[rows][:, columns]
    inside = drawn[..., 3] == 102  # four tenths of the colour; edges have all of it
    assert inside.mean() > 0.5
    assert np.abs(drawn[inside][:, :3].astype(int) - class_colours(11)[there[inside]]).max() <= 2  # alpha rounds
    assert not inside[there == 0].any()  # the ground is left as it is


def test_boxes_are_drawn_around_what_is_found(
    regions_server: Running, regions_home: Path, browser: Chromium, file: Path
) -> None:
    own = found(regions_home, "digit-scenes-boxes", file.read_bytes())
    show(browser, regions_server, "digit-scenes-boxes", file)
    drawn = canvas(browser)[..., 3] > 0
    scale = drawn.shape[1] / own.size[1]
    for left, top, right, bottom in (own.xyxy * scale).tolist():
        line = drawn[round((top + bottom) / 2), max(0, round(left) - 3) : round(left) + 4]
        assert line.any()
        assert drawn[max(0, round(top) - 3) : round(top) + 4, round((left + right) / 2)].any()


@pytest.mark.parametrize("name", ["digit-scenes", "digit-scenes-boxes"])
def test_the_slider_shows_less_sure_ones(
    regions_server: Running, regions_home: Path, browser: Chromium, file: Path, name: str
) -> None:
    show(browser, regions_server, name, file)
    before = browser.run(f"{LINES}[0]")
    browser.run("document.querySelector('.threshold').focus()")
    browser.press("ArrowLeft")
    assert browser.run("document.querySelector('.surer output').textContent") != f"{DRAWN[name][3]:.1%}"
    browser.run(
        "(() => { const it = document.querySelector('.threshold'); it.value = 10; it.dispatchEvent(new Event('input'));"
        "it.dispatchEvent(new Event('change')); })()"
    )
    more = browser.run(f"{LINES}[0]")
    assert int(more.split()[0]) > int(before.split()[0])
    curl, python = browser.run("[...document.querySelectorAll('.result pre')].map((it) => it.textContent)")
    for command in (["sh", "-c", curl], [sys.executable, "-c", python]):
        said = json.loads(subprocess.run(command, cwd=file.parent, capture_output=True, check=True).stdout)
        assert len(said["predictions"][0]["regions"]) == int(more.split()[0])
    assert (file.parent / "drawn.jpg").read_bytes()[:2] == b"\xff\xd8"


@pytest.mark.long
def test_several_photos_of_every_kind_are_accessible(
    regions_server: Running, browser: Chromium, file: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.jpg"
    text.write_text("hello")
    wait = partial(answered, browser)
    for name in DRAWN:
        browser.open(f"http://127.0.0.1:{regions_server.port}/")
        select(browser, "#classifier", name)
        browser.give("drop", [file, text])
        browser.give("paste", [HEIC])
        heic, first, second = wait(3)
        assert "not a readable image" in second
        assert not any(line.endswith("…") for line in (heic, first))
        # What the browser cannot show the server draws.
        browser.wait("document.querySelector('.result img').naturalWidth > 0")
        for dark in (False, True):
            for width in (390, 1280):
                browser.be(width, 900, dark=dark)
                assert (browser.violations(), browser.overhang()) == ([], 0)

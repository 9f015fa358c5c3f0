"""The page of a classifier of regions in a real browser, without a server: what it finds is what the classifier finds."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.chromium import BROWSER, Chromium
from tests.regions import finding, scene
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.report.browser_page import write_browser_page

pytestmark = pytest.mark.long  # onnxruntime-web may have to be fetched
CARD = """(() => { const card = document.querySelector(".result"); return {
  bars: Object.fromEntries([...card.querySelectorAll(".bars bdi")].map(
    (it, index) => [it.textContent, card.querySelectorAll(".bars .value")[index].textContent])),
  facts: card.querySelector(".facts-line").textContent,
}; })()"""
PIXELS = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 9999, 9999).data.filter(Boolean).length"


@pytest.mark.parametrize(
    "name", ["digit-scenes", "digit-scenes-semantic", "digit-scenes-boxes", "digit-scenes-panoptic"]
)
def test_the_page_finds_what_the_classifier_finds(name: str, tmp_path: Path) -> None:
    if BROWSER is None or shutil.which("npm") is None:
        pytest.skip("needs Chromium and npm")
    own = finding(name)
    try:
        write_browser_page(own, tmp_path / "site", title="scenes", listener=ignore)
    except ModelError as error:
        if "npm" not in str(error) and "cannot be written" not in str(error):
            raise
        pytest.skip(str(error))  # such as a head that no file holds yet
    photo, exif = tmp_path / "photo.png", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene(0, 180, 240)).save(photo, exif=exif)
    with Chromium(tmp_path / "profile") as browser:
        browser.open((tmp_path / "site" / "index.html").as_uri())
        browser.choose("#file", [photo])
        browser.wait("document.querySelector('.facts-line')?.textContent")
        card: dict[str, Any] = browser.run(CARD)
        assert browser.run(PIXELS) > 0
        assert (browser.violations(), browser.overhang()) == ([], 0)
    (found,) = own.find_regions(photo, listener=ignore)
    assert card["facts"].startswith("180×240 pixels")
    if found.counted:
        assert card["bars"] == {label: str(count) for label, count in found.counts().items() if count}
        return
    shares = {label: float(text.removesuffix("%")) / 100 for label, text in card["bars"].items()}
    whole = found.size[0] * found.size[1]
    expected = {label: pixels / whole for label, pixels in found.pixels_of_classes().items()}
    assert all(abs(shares.get(label, 0.0) - share) < 0.002 for label, share in expected.items()), (shares, expected)

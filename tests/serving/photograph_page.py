"""Photograph the page of `vitral serve`, desk and phone side by side: python -m tests.serving.photograph_page RUN PHOTO.

RUN is a run or a classifier on real weights, PHOTO a photo that may be shown to everybody. Writes docs/images/page.jpg.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.chromium import Chromium
from tests.serving.conftest import serving

PHOTOGRAPH = Path(__file__).parents[2] / "docs" / "images" / "page.jpg"
WIDTHS = (960, 390)  # of a desk's and a phone's window, pixels
HEIGHT = 848
SCALE = 1.25  # pixels of the photograph to one of a window
GAP = 30
BETWEEN = (222, 219, 210)
MAP = "document.querySelector('.what').textContent"


def photographed(browser: Chromium, address: str, photo: str, width: int) -> Image.Image:
    """Return the page with a photo, its answer and its map."""
    browser.be(width, HEIGHT, scale=SCALE)
    browser.open(address)
    browser.choose("#file", [Path(photo)])
    browser.wait("document.querySelector('.look')?.hidden === false")
    browser.run("document.querySelector('.look button').click()")
    browser.wait(f"{MAP} && !{MAP}.endsWith('…')")
    browser.run("scrollTo(0, 0)")
    return Image.open(io.BytesIO(browser.screenshot(whole=False))).convert("RGB")


def main(run: str, photo: str) -> None:
    """Start a server, ask its page, and write the photograph."""
    with (
        tempfile.TemporaryDirectory() as profile,
        serving(Path.cwd(), run) as running,
        Chromium(Path(profile)) as browser,
    ):
        parts = [photographed(browser, f"http://127.0.0.1:{running.port}/", photo, width) for width in WIDTHS]
    gap = round(GAP * SCALE)
    sheet = Image.new("RGB", (sum(part.width for part in parts) + gap, parts[0].height), BETWEEN)
    sheet.paste(parts[0], (0, 0))
    sheet.paste(parts[1], (parts[0].width + gap, 0))
    sheet.save(PHOTOGRAPH, quality=80, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

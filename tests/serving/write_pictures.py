"""Photograph the page of `vitral serve` for the README: python -m tests.serving.write_pictures RUN PHOTO.

RUN is a run or a classifier on real weights, PHOTO a photo that may be shown to everybody. The pictures go to docs/images/.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.chromium import Chromium
from tests.serving.conftest import serving

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WINDOWS = {"page-desk.jpg": (1040, 640, 1.25), "page-phone.jpg": (390, 860, 1.5)}  # width, height and pixels to a pixel
MAP = "document.querySelector('.what').textContent"


def main(run: str, photo: str) -> None:
    """Start a server, ask its page for the answer and the map, and take the pictures."""
    with (
        tempfile.TemporaryDirectory() as profile,
        serving(Path.cwd(), run) as running,
        Chromium(Path(profile)) as browser,
    ):
        for name, (width, height, scale) in WINDOWS.items():
            browser.be(width, height, scale=scale)
            browser.open(f"http://127.0.0.1:{running.port}/")
            browser.choose("#file", [Path(photo)])
            browser.wait("document.querySelector('.look')?.hidden === false")
            browser.run("document.querySelector('.look button').click()")
            browser.wait(f"{MAP} && !{MAP}.endsWith('…')")
            browser.run("document.activeElement.blur(); document.querySelector('.look').scrollIntoView({ block: 'end' })")
            browser.run("scrollTo(0, 0)" if width > 600 else "document.querySelector('.result').scrollIntoView(); 0")
            picture = Image.open(io.BytesIO(browser.picture(whole=False))).convert("RGB")
            picture.save(IMAGES / name, quality=82, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Photograph a report's beginning for the README: python docs/report_picture.py PHOTOS writes docs/images/photo-report.jpg.

PHOTOS is a folder of class folders, of which a classifier is made without training. Chromium must be installed, and weights to
start from be on this machine or within reach.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PHOTOGRAPH = Path(__file__).parent / "images" / "photo-report.jpg"
WIDTH, HEIGHT = 900, 956  # pixels, down to the first row of mistakes
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main(photos: str) -> None:
    """Make the classifier, and photograph its page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    with tempfile.TemporaryDirectory() as temporary:
        run, shot = Path(temporary) / "run", Path(temporary) / "report.png"
        subprocess.run([sys.executable, "-m", "vitral", "finetune", photos, "--quick", "--out", run], check=True)
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={temporary}/profile",
        ]
        shown = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", (run / "report.html").as_uri()]
        subprocess.run([browser, *flags, *shown], check=True)
        Image.open(shot).convert("RGB").save(PHOTOGRAPH, quality=85, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])

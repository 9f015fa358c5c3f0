"""What the comparisons share: a photo of odd proportions."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SIZE = (331, 243)  # width and height of the photo, odd on purpose


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with edges, gradients and noise, as a JPEG."""
    width, height = SIZE
    rows, columns = np.mgrid[:height, :width]
    channels = [rows * 255 / height, columns * 255 / width, 127 + 127 * np.sin(rows / 7) * np.cos(columns / 5)]
    noise = np.random.default_rng(0).normal(0, 12, (height, width, 3))
    path = tmp_path_factory.mktemp("photo") / "photo.jpg"
    Image.fromarray(np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8)).save(path, quality=90)
    return path

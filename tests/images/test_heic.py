"""Photos as phones leave them: HEIC and AVIF, upright, within the limit of pixels, and one line without what reads HEIC."""

from pathlib import Path

import numpy as np
import pytest

from vitral.errors import ImageError
from vitral.images import decode
from vitral.images.decode import Pixels, read_image

HERE = Path(__file__).parent
CORNERS = {"top left": (30, 200, 30), "bottom left": (30, 30, 230), "bottom right": (230, 30, 30)}  # of both, upright
LOSSY = 6  # levels


def corners(pixels: Pixels) -> dict[str, tuple[int, ...]]:
    places = {"top left": (4, 4), "bottom left": (-5, 4), "bottom right": (-5, -5)}
    return {name: tuple(map(int, pixels[place])) for name, place in places.items()}


@pytest.fixture(params=["turned.heic", "turned.avif"])
def photo(request: pytest.FixtureRequest) -> Path:
    """A photo that was stored turned by 90 degrees, written by pillow-heif, and by Pillow."""
    if request.param.endswith("heic"):
        pytest.importorskip("pi_heif")
    return HERE / str(request.param)


def test_a_phones_photo_is_read_upright(photo: Path, tmp_path: Path) -> None:
    pixels = read_image(photo)
    assert pixels.shape == (96, 64, 3)
    for name, colour in corners(pixels).items():
        assert np.abs(np.subtract(colour, CORNERS[name])).max() <= LOSSY, name
    renamed = tmp_path / "photo.jpg"
    renamed.write_bytes(photo.read_bytes())
    assert np.array_equal(read_image(renamed), pixels)


def test_the_limit_of_pixels_holds_and_damage_is_one_line(photo: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="more than the limit of 6,000"):
        read_image(photo, max_pixels=6000)
    cut = tmp_path / photo.name
    cut.write_bytes(photo.read_bytes()[: photo.stat().st_size * 3 // 5])
    with pytest.raises(ImageError, match=cut.name):
        read_image(cut)


def test_without_its_reader_a_heic_photo_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "formats", lambda: decode.FORMATS)
    with pytest.raises(ImageError, match=r"turned\.heic.*pip install pi-heif"):
        read_image(HERE / "turned.heic")

"""Images inside a page: encoded compactly, as `data:` addresses."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from vitral.images.decode import Pixels

LOSSLESS_BYTES = 60_000  # drawings and tiny images stay exact; photos would bloat the page
QUALITY = 82
PIXELATED = 64  # pixels of the longer side up to which an image is shown with its pixels as squares


@dataclass(frozen=True)
class Inlined:
    """An image ready for a page: a `data:` address, its size, and whether its pixels are shown as squares."""

    uri: str
    width: int
    height: int
    pixelated: bool


def inline(content: Pixels | bytes, *, largest: int) -> Inlined:
    """Encode pixels or an encoded image for a page, its longer side at most `largest` pixels.

    PNG if that is small, otherwise JPEG.
    """
    image = Image.open(io.BytesIO(content)) if isinstance(content, bytes) else Image.fromarray(content)
    image = image.convert("RGB")
    image.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    return Inlined(_uri(image), image.width, image.height, max(image.size) <= PIXELATED)


def _uri(image: Image.Image) -> str:
    content, kind = _encoded(image, "PNG"), "png"
    if len(content) > LOSSLESS_BYTES:
        content, kind = _encoded(image, "JPEG"), "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    # A PNG that is optimised is 2 to 6 % smaller, but takes five times as long: seconds of a report with 60 images.
    image.save(buffer, kind, **({"quality": QUALITY, "optimize": True} if kind == "JPEG" else {}))
    return buffer.getvalue()


def filter_sheet(
    filters: Float32[np.ndarray, "filters patch_height patch_width 3"], *, columns: int = 7, side: int = 64
) -> UInt8[np.ndarray, "height width 3"]:
    """Lay images of values 0 to 1 out in rows on mid-grey, each enlarged to about `side` pixels (figure 7, left)."""
    factor = max(1, side // max(filters.shape[1:3]))
    cells = np.rint(filters * 255).astype(np.uint8).repeat(factor, axis=1).repeat(factor, axis=2)
    height, width, gap = cells.shape[1], cells.shape[2], max(2, side // 8)
    columns = min(columns, len(cells))
    rows = -(-len(cells) // columns)
    cells = np.pad(cells, ((0, rows * columns - len(cells)), (gap, 0), (gap, 0), (0, 0)), constant_values=128)
    laid = cells.reshape(rows, columns, height + gap, width + gap, 3).swapaxes(1, 2)
    return np.pad(laid.reshape(rows * (height + gap), -1, 3), ((0, gap), (0, gap), (0, 0)), constant_values=128)

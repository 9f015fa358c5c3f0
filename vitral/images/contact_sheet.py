"""Many small images on one sheet, each with its name: what the model saw, at a glance."""

import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from vitral.images.decode import Pixels
from vitral.images.lettering import lettering, shorten

CELL = 112  # pixels of an image's longer side
LABEL_HEIGHT, LETTERS = 18, 12
GAP = 8
BACKGROUND, INK = (250, 249, 246), (60, 58, 54)


def contact_sheet(images: Sequence[Pixels], labels: Sequence[str], *, columns: int = 8) -> bytes:
    """Return a PNG of the images in rows, each over its label; small images are enlarged without smoothing."""
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    width, height = columns * (CELL + GAP) + GAP, rows * (CELL + LABEL_HEIGHT + GAP) + GAP
    sheet = Image.new("RGB", (width, height), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        left = GAP + index % columns * (CELL + GAP)
        top = GAP + index // columns * (CELL + LABEL_HEIGHT + GAP)
        cell = _fit(Image.fromarray(image))
        sheet.paste(cell, (left + (CELL - cell.width) // 2, top + (CELL - cell.height) // 2))
        line, font = lettering(label, LETTERS)
        text = shorten(line, font, width=CELL)
        draw.text((left + CELL // 2, top + CELL + 2), text, fill=INK, font=font, anchor="ma")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _fit(image: Image.Image) -> Image.Image:
    factor = CELL / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.NEAREST if factor >= 2 else Image.Resampling.LANCZOS)

"""Regions drawn on their photo: coloured, outlined and named, above a legend of the classes that are there."""

import colorsys
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64, UInt8
from PIL import Image, ImageDraw

from vitral.images.decode import Pixels
from vitral.images.drawing import BACKGROUND, INK, lettering, shorten
from vitral.tasks.regions import Regions

# Sasha Trubetskoy's list of simple, distinct colours, without black, white and greys; further ones turn around the circle.
DISTINCT = (
    *((230, 25, 75), (60, 180, 75), (255, 225, 25), (0, 130, 200), (245, 130, 48), (145, 30, 180), (70, 240, 240)),
    *((240, 50, 230), (210, 245, 60), (250, 190, 212), (0, 128, 128), (170, 110, 40), (128, 0, 0), (170, 255, 195)),
    *((128, 128, 0), (255, 215, 180), (0, 0, 128)),
)
GOLDEN = 0.618033988749895  # of a turn: no two of its multiples come near
LARGEST = 1600  # pixels of a drawing's longer side
SMALLEST = 640
FILLED = 0.4  # the share of the colour within a mask
GROUND = "background"  # a class of this name is left as the photo is
MOST_NAMED = 100
ROOM = 2.5  # times the area of its name: a smaller region has none
LEGEND_LINES = 6
Numbers = Int64[np.ndarray, "height width"]


def class_colours(count: int) -> UInt8[np.ndarray, "classes 3"]:
    """Return a colour for each class, distinct from one another as far as that can be."""
    further = range(len(DISTINCT), count)
    turned = [colorsys.hsv_to_rgb(at * GOLDEN % 1, 0.9 - 0.3 * (at % 3), 1 - 0.25 * (at % 2)) for at in further]
    levels = [tuple(round(255 * value) for value in colour) for colour in turned]
    return np.array([*DISTINCT[:count], *levels], dtype=np.uint8).reshape(-1, 3)


def is_ground(name: str) -> bool:
    """Tell whether a class is what there is around everything else."""
    return name.casefold() == GROUND


def region_numbers(regions: Regions) -> Numbers:
    """Return which region each pixel is of, counted from 1, 0 for none; where regions overlap the first lies on top."""
    height, width = regions.size
    flat = np.zeros(height * width, dtype=np.int64)
    for index in reversed(range(len(regions))):
        ends = np.cumsum(regions.masks[index]).tolist() if regions.masks is not None else []
        for start, stop in zip(ends[0::2], ends[1::2], strict=False):
            flat[start:stop] = index + 1
    return flat.reshape(width, height).T


def drawn_regions(
    pixels: Pixels,
    regions: Regions,
    class_names: Sequence[str],
    *,
    scores: Sequence[float] | None = None,
    counted: bool = True,
    legend: bool = True,
) -> Pixels:
    """Return a photo with its regions, at most 1,600 pixels wide and high without the legend; small photos are enlarged.

    Args:
        pixels: The photo, of the regions' size, or decoded smaller.
        regions: The regions, the likeliest first.
        class_names: The names of the classes.
        scores: How sure each region is, 0 to 1, written beside its name; None for none.
        counted: Whether each region is a thing with a name of its own and the legend says how many there are; otherwise the
            legend says which share of the photo a class has.
        legend: Whether there is a legend.
    """
    photo = _scaled(pixels)
    colours = class_colours(max(len(class_names), 1))
    grounds = [number for number, name in enumerate(class_names) if is_ground(name)]
    if regions.masks is not None:
        photo = _filled(photo, regions, colours, grounds)
    image, scale = Image.fromarray(photo), photo.shape[1] / regions.size[1]
    boxes = regions.boxes * scale
    if regions.masks is None:
        _outline(image, boxes, colours[regions.classes])
    if counted:
        texts = [
            class_names[number] + ("" if scores is None else f" {scores[index]:.0%}")
            for index, number in enumerate(regions.classes.tolist())
        ]
        _name(image, boxes, texts, colours[regions.classes])
    colours[grounds] = BACKGROUND
    return (
        _with_legend(image, _entries(regions, class_names, counted=counted), colours) if legend else np.asarray(image)
    )


def _scaled(pixels: Pixels) -> Pixels:
    """Return a photo at the size of its drawing; a small one grows by a whole number, its pixels as squares."""
    longest = max(pixels.shape[:2])
    if longest <= LARGEST and longest >= SMALLEST:
        return pixels
    factor = LARGEST / longest if longest > LARGEST else math.ceil(SMALLEST / longest)
    size = max(1, round(pixels.shape[1] * factor)), max(1, round(pixels.shape[0] * factor))
    return np.asarray(
        Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS if factor < 1 else Image.Resampling.NEAREST)
    )


def _nearest(values: Numbers, size: tuple[int, int]) -> Numbers:
    rows, columns = (
        np.minimum((np.arange(new) + 0.5) * old // new, old - 1).astype(np.int64)
        for new, old in zip(size, values.shape, strict=True)
    )
    return values[rows[:, None], columns]


def _filled(
    photo: Pixels, regions: Regions, colours: UInt8[np.ndarray, "classes 3"], grounds: Sequence[int]
) -> UInt8[np.ndarray, "height width 3"]:
    """Return a photo with its masks coloured and outlined; a mask too small for the drawing has a dot."""
    whole = region_numbers(regions)
    numbers, count = _nearest(whole, photo.shape[:2]), len(regions) + 1
    lost = (np.bincount(whole.ravel(), minlength=count) > 0) & (np.bincount(numbers.ravel(), minlength=count) == 0)
    for index in np.flatnonzero(lost).tolist():
        left, top, right, bottom = regions.boxes[index - 1] * photo.shape[1] / regions.size[1]
        row, column = int((top + bottom) / 2), int((left + right) / 2)
        numbers[min(row, len(numbers) - 1), min(column, numbers.shape[1] - 1)] = index
    drawn = np.concatenate([[False], ~np.isin(regions.classes, grounds)])[numbers]
    own = np.concatenate([np.zeros((1, 3)), colours[regions.classes]])[numbers]
    edge = _edges(numbers, max(1, round(max(photo.shape[:2]) / 800)))
    share = np.where(drawn, np.where(edge, 1.0, FILLED), 0.0)[..., None]
    # A dark line around each region stands out where the photo has the region's own colour.
    around = np.where(~drawn & edge, 0.5, 1.0)[..., None]
    return np.rint(photo * (1 - share) * around + own * share).astype(np.uint8)


def _edges(numbers: Numbers, thickness: int) -> Bool[np.ndarray, "height width"]:
    """Return the pixels that have another number within so many pixels to a side."""
    edge = np.zeros(numbers.shape, dtype=bool)
    for step in range(1, thickness + 1):
        down, across = numbers[step:] != numbers[:-step], numbers[:, step:] != numbers[:, :-step]
        edge[step:] |= down
        edge[:-step] |= down
        edge[:, step:] |= across
        edge[:, :-step] |= across
    return edge


def _outline(image: Image.Image, boxes: np.ndarray, colours: np.ndarray) -> None:
    draw, width = ImageDraw.Draw(image), max(2, round(max(image.size) / 500))
    for (left, top, right, bottom), colour in reversed(list(zip(boxes.tolist(), colours.tolist(), strict=True))):
        corners = (left, top, max(left, right - 1), max(top, bottom - 1))
        draw.rectangle(corners, outline=(0, 0, 0), width=width + 2)
        inner = corners[0] + 1, corners[1] + 1, max(corners[0] + 1, corners[2] - 1), max(corners[1] + 1, corners[3] - 1)
        draw.rectangle(inner, outline=tuple(colour), width=width)


def _name(image: Image.Image, boxes: np.ndarray, texts: Sequence[str], colours: np.ndarray) -> None:
    """Write names above the regions, the likeliest first, where they neither meet nor hide more than they name."""
    draw, size = ImageDraw.Draw(image), max(12, round(max(image.size) / 70))
    taken: list[tuple[float, float, float, float]] = []
    for box, text, colour in zip(boxes.tolist(), texts, colours.tolist(), strict=True):
        line, font = lettering(text, size)
        line = shorten(line, font, width=image.width / 3)
        width, height = font.getlength(line) + 8, size + 6
        left = min(max(0, box[0]), max(0, image.width - width))
        top = box[1] - height if box[1] >= height else min(box[1], image.height - height)
        place = (left, top, left + width, top + height)
        small = (box[2] - box[0]) * (box[3] - box[1]) < ROOM * width * height
        if small or len(taken) == MOST_NAMED or any(_meet(place, other) for other in taken):
            continue
        taken.append(place)
        draw.rectangle(place, fill=tuple(colour))
        draw.text((left + 4, top + height / 2), line, fill=_readable(colour), font=font, anchor="lm")


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _readable(colour: Sequence[int]) -> tuple[int, int, int]:
    """Return black or white, whichever is read better on a colour (its luma by ITU-R BT.601)."""
    red, green, blue = colour
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else (255, 255, 255)


def _entries(regions: Regions, class_names: Sequence[str], *, counted: bool) -> list[tuple[int, str]]:
    """Return each class that is there with its text in the legend, the commonest first."""
    if counted:
        values = np.bincount(regions.classes, minlength=len(class_names)).astype(np.float64)
    else:
        values = np.bincount(regions.classes, regions.areas, len(class_names)) / max(math.prod(regions.size), 1)
    order = [index for index in np.argsort(-values, kind="stable").tolist() if values[index] > 0]
    form = ",.0f" if counted else ".1%"
    return [(index, f"{class_names[index]}: {values[index]:{form}}") for index in order]


def _with_legend(image: Image.Image, entries: Sequence[tuple[int, str]], colours: np.ndarray) -> Pixels:
    size = max(13, round(max(image.size) / 60))
    step, x, y = size + 10, 8, 8
    placed: list[tuple[int, int, int, str]] = []
    for number, text in entries or [(-1, "nothing is marked")]:
        line, font = lettering(text, size)
        line = shorten(line, font, width=max(40, image.width - size - 30))
        width = size + 8 + int(font.getlength(line)) + 20
        if x > 8 and x + width > image.width:
            x, y = 8, y + step
        if y >= LEGEND_LINES * step:
            placed[-1] = (placed[-1][0], placed[-1][1], -1, f"and {len(entries) - len(placed) + 1:,} more classes")
            break
        placed.append((x, y, number, line))
        x += width
    sheet = Image.new("RGB", (image.width, image.height + placed[-1][1] + step), BACKGROUND)
    sheet.paste(image, (0, 0))
    draw = ImageDraw.Draw(sheet)
    for left, top, number, line in placed:
        above = image.height + top
        if number >= 0:
            draw.rectangle((left, above, left + size, above + size), fill=tuple(colours[number].tolist()), outline=INK)
            left += size + 8
        draw.text((left, above + size / 2), line, fill=INK, font=lettering(line, size)[1], anchor="lm")
    return np.asarray(sheet)

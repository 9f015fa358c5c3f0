"""How well near duplicates are told from images that merely share an outline, on folders of your own.

    python benchmarks/look_alikes.py FOLDER... [--copies 150]

Of each folder's images (in any sub-folders) it counts the pairs that a 64-bit grey hash takes for near duplicates (4 bits, and
the 8 bits that are candidates here), and how many of them the second look confirms: where all images are of different things,
those are its mistakes. Then some images are changed as people change them (rescaled, recompressed, brighter, darker, cropped),
and it counts how many of the copies each of the two finds. One line a folder.
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from vitral.images.decode import EXTENSIONS, read_image
from vitral.images.look_alikes import NEAR, Look, look_alikes, look_at_image, near_pairs, small

FORMER = 4  # bits of the hash alone

Random = np.random.Generator


def rescaled(image: Image.Image, random: Random) -> Image.Image:
    """Return an image at 30 to 80 % of its size."""
    factor = max(random.uniform(0.3, 0.8), 40 / min(image.size))
    return image.resize((round(factor * image.width), round(factor * image.height)), Image.Resampling.BICUBIC)


def recompressed(image: Image.Image, random: Random) -> Image.Image:
    """Return an image as a JPEG of quality 30 to 70."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=int(random.integers(30, 70)))
    return Image.open(file)


def exposed(image: Image.Image, random: Random) -> Image.Image:
    """Return an image up to a quarter darker or 30 % brighter."""
    return ImageEnhance.Brightness(image).enhance(random.uniform(0.75, 1.3))


def cropped(least: float, most: float) -> Callable[[Image.Image, Random], Image.Image]:
    """Return what cuts off such shares of each side."""

    def crop(image: Image.Image, random: Random) -> Image.Image:
        left, top, right, bottom = random.uniform(least, most, 4)
        width, height = image.size
        return image.crop((int(left * width), int(top * height), int((1 - right) * width), int((1 - bottom) * height)))

    return crop


CHANGES = {
    "rescaled": rescaled,
    "recompressed": recompressed,
    "exposed": exposed,
    "cropped by 0-2 %": cropped(0, 0.02),
    "by 2-5 %": cropped(0.02, 0.05),
}


def far(one: Look, other: Look) -> int:
    """Return in how many bits the hashes of two images differ."""
    return (one.code ^ other.code).bit_count()


def found(pairs: list[tuple[Look, Look]]) -> str:
    """Return the shares of pairs that the hash alone and the second look find."""
    former = sum(far(*pair) <= FORMER for pair in pairs) / len(pairs)
    now = sum(len(set(look_alikes(pair))) == 1 for pair in pairs) / len(pairs)
    return f"{former:.0%} > {now:.0%}"


def measure(folder: Path, copies: int) -> str:
    """Return the line of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS)
    looks = [look for path in files if (look := look_at_image(read_image(path, shrink=small))) is not None]
    found_near = near_pairs(np.array([look.code for look in looks], dtype=np.uint64), NEAR)
    pairs = [pair for some in found_near for pair in some.tolist()]
    confirmed = [pair for pair in pairs if len(set(look_alikes([looks[index] for index in pair]))) == 1]
    former = sum(far(looks[one], looks[other]) <= FORMER for one, other in pairs)
    random = np.random.default_rng(0)
    chosen = [read_image(files[index]) for index in random.permutation(len(files))[:copies].tolist()]
    recall = []
    for name, change in CHANGES.items():
        both = [
            (look_at_image(pixels), look_at_image(np.asarray(change(Image.fromarray(pixels), random))))
            for pixels in chosen
        ]
        recall.append(f"{name} {found([(one, other) for one, other in both if one and other])}")
    counts = (
        f"{len(files):,} images; pairs by hash {former:,} (candidates {len(pairs):,}), confirmed {len(confirmed):,}"
    )
    return f"{folder.name}: {counts}; copies found: {', '.join(recall)}"


def main() -> None:
    """Measure each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--copies", type=int, default=150)
    given = parser.parse_args()
    for folder in given.folders:
        print(measure(folder, given.copies), flush=True)


if __name__ == "__main__":
    main()

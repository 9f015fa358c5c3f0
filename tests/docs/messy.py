"""A folder of photos as a phone leaves it: `python -m tests.docs.messy PHOTOS TARGET` makes one from photos in class folders.

TARGET/photos has class folders to learn from, TARGET/holiday loose photos to sort. Among them are HEIC files, files that were
cut short, photos in the wrong folder, photos that only EXIF turns, a video, and what systems leave behind.
"""

import importlib
import importlib.util
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

PHOTOS = (".jpg", ".jpeg", ".png")
TURNED = 6  # EXIF's orientation of a phone that was held upright
EXIF_ORIENTATION = 0x0112
EVERY_HEIC = 10  # one of so many photos
BROKEN = 3  # files that cannot be read, in photos/ and in holiday/
MISPLACED = 3  # photos in the folder of another class
HEIC = Path(__file__).parents[1] / "images" / "turned.heic"  # where nothing writes HEIC, one such photo stands for all
VIDEO_HEADER = b"\x00\x00\x00\x14ftypqt  \x00\x00\x02\x00qt  "


@dataclass(frozen=True)
class Messy:
    """What a messy folder has.

    Attributes:
        learned: The photos in class folders that can be read, HEIC ones among them.
        loose: Likewise of holiday/.
        heic: The HEIC files of both.
        misplaced: The photos in a wrong folder, by their path in photos/, each with its true class.
    """

    learned: int
    loose: int
    heic: int
    misplaced: dict[str, str]


def make_messy(source: Path, target: Path, *, loose: float = 0.2, seed: int = 0) -> Messy:
    """Make the folder of the photos of class folders, of which a share is left loose to be sorted.

    Args:
        source: A folder of class folders, or one with train/ and the like above them.
        target: The folder to make.
        loose: The share of each class's photos that goes into holiday/.
        seed: Of every choice.
    """
    draw = random.Random(seed)
    classes = by_class(source)
    names = iter(draw.sample(range(1000, 9999), sum(map(len, classes.values())) + MISPLACED))
    (target / "holiday").mkdir(parents=True)
    heic, learned, held = 0, 0, 0
    for label, photos in classes.items():
        folder = target / "photos" / label
        folder.mkdir(parents=True)
        draw.shuffle(photos)
        for place, photo in enumerate(photos):
            to_sort = place < loose * len(photos)
            as_heic = place % EVERY_HEIC == EVERY_HEIC - 1
            put(
                photo,
                (target / "holiday" if to_sort else folder) / f"IMG_{next(names)}",
                heic=as_heic,
                turned=place % 5 == 0,
            )
            heic, learned, held = heic + as_heic, learned + (not to_sort), held + to_sort
    misplaced = misplace(target / "photos", draw)
    for folder in (target / "photos" / next(iter(classes)), target / "holiday"):
        litter(folder)
    return Messy(learned, held, heic, misplaced)


def by_class(source: Path) -> dict[str, list[Path]]:
    """Return the photos of each class, whatever split they lie in."""
    found: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*")):
        if path.suffix.lower() in PHOTOS:
            found.setdefault(path.parent.name, []).append(path)
    return found


def put(photo: Path, stem: Path, *, heic: bool, turned: bool) -> None:
    """Write a photo as a phone does: as HEIC, or as a JPEG that may lie on its side with EXIF to turn it."""
    if heic:
        write_heic(photo, stem.with_suffix(".HEIC"))
    elif turned:
        image = ImageOps.exif_transpose(Image.open(photo)).convert("RGB")
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = TURNED
        image.rotate(90, expand=True).save(stem.with_suffix(".JPG"), quality=95, exif=exif)
    else:
        shutil.copy(photo, stem.with_suffix(".JPG"))


def write_heic(photo: Path, path: Path) -> None:
    """Write a photo as HEIC where pillow-heif is installed; elsewhere another HEIC photo."""
    if importlib.util.find_spec("pillow_heif") is None:
        shutil.copy(HEIC, path)
        return
    importlib.import_module("pillow_heif").register_heif_opener()
    Image.open(photo).convert("RGB").save(path)


def misplace(photos: Path, draw: random.Random) -> dict[str, str]:
    """Move some photos into the folder of another class; return where they lie, with their true class."""
    labels = sorted(folder.name for folder in photos.iterdir())
    moved = {}
    for label in draw.sample(labels, min(MISPLACED, len(labels))):
        photo = draw.choice(sorted((photos / label).glob("*.JPG")))
        other = draw.choice([name for name in labels if name != label])
        shutil.move(photo, photos / other / photo.name)
        moved[f"{other}/{photo.name}"] = label
    return moved


def litter(folder: Path) -> None:
    """Add files that were cut short, a video, and what systems leave behind."""
    whole = sorted(folder.glob("*.JPG"))[0].read_bytes()
    for number, content in enumerate((b"", whole[: len(whole) // 2], b"<html>Not found</html>")[:BROKEN]):
        (folder / f"IMG_000{number}.JPG").write_bytes(content)
    (folder / "IMG_0009.MOV").write_bytes(VIDEO_HEADER + bytes(4096))
    (folder / ".DS_Store").write_bytes(bytes(64))
    (folder / "Thumbs.db").write_bytes(bytes(64))


def main(arguments: Sequence[str]) -> None:
    """Make the folder that the command line names."""
    source, target = map(Path, arguments)
    print(make_messy(source, target))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Masks as images: the class of each pixel as one value or colour, or an image for each object of a photo.

| mask | its values |
|---|---|
| grey, of 1, 8 or 16 bits | as they are; 0 and one other are background and object; 255 beside several others is ignored |
| with a palette | the palette's indices, never its colours |
| colours | each colour a class; equal channels are grey |
| numbers of a photo's objects, from 1 on | each an object (see `numbered.py`) |
| an image an object (PHOTO/images/1.png, PHOTO/masks/*.png) | what is not 0 is the object |

Values of a few pixels that hardly any mask has are no classes: they are ignored.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import cv2
import numpy as np
from jaxtyping import UInt8

from vitral.data.annotations.annotation import Mark, Size
from vitral.data.annotations.coded_map import COLOURED, GREY, HALF, WHITE, CodedMap, Meaning, read_together, read_values
from vitral.data.annotations.kept_outlines import KeptOutlines, Outline
from vitral.data.annotations.marked import Collected, MarkedPhotos, Trap, splits_of
from vitral.data.annotations.mask_names import BACKGROUND, OBJECT, ValueNames, names_listed, names_of_values
from vitral.data.annotations.mask_pairs import MaskPairs, masks_by_name
from vitral.data.annotations.numbered import number_objects, numbers_of
from vitral.data.annotations.other_task import only_objects
from vitral.data.annotations.tree import FileTree, StoredFile
from vitral.data.annotations.voc import lists_beside
from vitral.data.masks import OF_NNUNET
from vitral.data.names import ALL
from vitral.data.source import BadImage
from vitral.errors import DataError
from vitral.images.run_lengths import counts_texts, encode_parts
from vitral.machine import in_threads
from vitral.tasks.semantic import SEMANTIC

FORM = "mask images"
OBJECT_FORM = "a mask image an object"
OF_NUMBERS = "mask images that number objects"
TRANSPARENT = ("RGBA", "LA")  # modes of images that have transparency
MOST_VALUES = 4096  # of an image that is a mask
EMPTY = "masks without a pixel of an object, left out"
OF_NONE = "masks of photos that are not there, or not told apart by names, left out"
UNLIKE = "images beside masks that do not look like the masks of their photos, left out"
MIXED = (
    "masks of another kind than the others, grey among colours or colours among grey; their values are other classes"
)
OF_VOC = ("SegmentationClass", "ImageSets/Segmentation")  # its folder of maps, and that of lists beside it
STRAY = "masks with values of a few pixels that are no classes, ignored"


@dataclass(frozen=True)
class _SeenValues:
    """What is in a mask: its size, the pixels of each value, whether these are colours, and the image's mode."""

    size: Size
    counts: Counter[int]
    colours: bool
    mode: str


PNG = b"\x89PNG\r\n\x1a\n"
HEADER = 26  # bytes of a PNG, of which the last two are depth and colour type
BITS_OF_GREY = tuple(bytes([bits, 0]) for bits in (1, 2, 4, 8))
Grey = UInt8[np.ndarray, "height width"]


def read_masks(tree: FileTree, pairs: MaskPairs, class_names: Sequence[str] | None = None) -> MarkedPhotos:
    """Return what the masks in a folder say of its photos; `class_names` are those of a classifier that they are for, if any.

    Raises:
        DataError: masks are JPEGs of more than black and white, or of too many values.
    """
    found = _of_objects(tree, pairs) if pairs.objects else _of_values(tree, pairs.masks, class_names)
    return replace(found, others=frozenset(mask for masks in pairs.masks.values() for mask in masks) | pairs.others)


def _of_objects(tree: FileTree, paired: MaskPairs) -> MarkedPhotos:
    pairs = paired.masks
    found, kept = Collected(tree, OBJECT_FORM), KeptOutlines(tree.title)

    def read(photo: str) -> tuple[list[Mark], list[Trap]] | BadImage:
        try:
            return _read_objects(tree, pairs[photo], paired.classes, kept)
        except DataError as error:
            return tree.bad(photo, error)

    for photo, objects in zip(pairs, in_threads(read, list(pairs)), strict=True):
        if isinstance(objects, BadImage):
            found.bad.append(objects)
        else:
            found.marks[photo], traps = objects
            found.traps += traps
            found.stated[photo] = next((mark.runs[1:] for mark in found.marks[photo] if mark.runs), None)
    kept.write()
    found.splits = splits_of(found.marks)
    return found.photos(None if paired.classes else (OBJECT,))


def _decoded(file: StoredFile, content: bytes) -> Grey:
    """Return an image of one object, which is where it is not 0; grey PNGs of up to 8 bits by OpenCV, which is faster.

    Raises:
        DataError: it cannot be read, or is a JPEG of more than black and white.
    """
    if content.startswith(PNG) and content[HEADER - 2 : HEADER] in BITS_OF_GREY:
        values = cv2.imdecode(np.frombuffer(content, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
        if values is not None and values.ndim == 2:
            return values
    return (read_values(file, colours=False) != 0).astype(np.uint8)


def _read_objects(
    tree: FileTree, paths: Sequence[str], classes: Mapping[str, str], kept: KeptOutlines
) -> tuple[list[Mark], list[Trap]]:
    """Return a photo's objects, and what misleads in their masks; `DataError` if one cannot be read."""
    outlines: list[Outline] = []
    new: list[tuple[int, str]] = []  # the position and the key of each that is not known
    parts: list[Grey] = []
    corners: list[tuple[int, int]] = []
    for path in paths:
        file = tree.file(path)
        key, outline = kept.find(content := file.content())
        if outline is None:
            mask = _decoded(file, content)
            left, top, width, height = cv2.boundingRect(mask)
            new.append((len(outlines), key))
            parts.append(mask[top : top + height, left : left + width].copy())
            corners.append((top, left))
            outline = Outline(mask.shape[0], mask.shape[1], "")
        outlines.append(outline)
        if outline[:2] != outlines[0][:2]:
            size = f"{outline.width}x{outline.height}"
            raise DataError(f"'{file.name}' has {size} pixels, another mask of its photo has not")
    texts = counts_texts(encode_parts(parts, corners, outlines[0][:2] if outlines else (0, 0)))
    for (place, key), part, text in zip(new, parts, texts, strict=True):
        outlines[place] = outlines[place]._replace(text=text if part.size else "")
        kept.add(key, outlines[place])
    marks = [
        Mark(classes.get(path, OBJECT), runs=(text, height, width))
        for path, (height, width, text) in zip(paths, outlines, strict=True)
        if text
    ]
    return marks, [Trap(EMPTY, path) for path, outline in zip(paths, outlines, strict=True) if not outline.text]


def _of_values(tree: FileTree, pairs: Mapping[str, Sequence[str]], class_names: Sequence[str] | None) -> MarkedPhotos:
    seen: dict[str, _SeenValues] = {}
    bad: list[BadImage] = []

    def look(photo: str) -> _SeenValues | BadImage:
        try:
            return _look([tree.file(mask) for mask in pairs[photo]])
        except DataError as error:
            return tree.bad(photo, error)

    for photo, found in zip(pairs, in_threads(look, list(pairs)), strict=True):
        if isinstance(found, BadImage):
            bad.append(found)
        else:
            seen[photo] = found
    if not seen:
        raise DataError(f"{bad[0].reason}.")
    of_one_class = tuple(class_names or ()) == (OBJECT,)
    return _of_numbers(tree, pairs, seen, bad, of_one_class=of_one_class) or _of_classes(tree, pairs, seen, bad)


def _of_classes(
    tree: FileTree, pairs: Mapping[str, Sequence[str]], seen: dict[str, _SeenValues], bad: Sequence[BadImage]
) -> MarkedPhotos:
    """Return the classes that the values of masks are."""
    colours = any(found.colours for found in seen.values())
    if colours:  # a palette stands for its colours then
        seen |= {
            photo: _look([tree.file(mask) for mask in pairs[photo]], colours=True)
            for photo, found in seen.items()
            if found.mode == "P"
        }
    counts = {photo: _in_colours(found, colours) for photo, found in seen.items()}
    names = names_of_values(tree, list(counts.values()), colours=colours)
    if names.softened:
        counts = {photo: _halves(values) for photo, values in counts.items()}
    if len(names.classes) < 2:
        raise _of_one_value(tree, seen, names, bad)
    traps = [Trap(STRAY, pairs[photo][0]) for photo, values in counts.items() if values.keys() & names.stray]
    traps += _of_none(tree, pairs)
    if colours:
        traps += [Trap(MIXED, pairs[photo][0]) for photo in _of_another_kind(seen)]
    return MarkedPhotos(
        form=FORM,
        task=SEMANTIC,
        annotations={
            photo: CodedMap(file, _meanings(counts[photo], names), found.size, colours, more, names.softened)
            for photo, found in seen.items()
            for file, *more in [[tree.file(mask) for mask in pairs[photo]]]
        },
        class_names=tuple(dict.fromkeys(names.classes.values())),
        splits=splits_of_masks(tree, {photo: pairs[photo][0] for photo in seen}),
        traps=tuple(traps),
        notes=names.notes,
        bad=tuple(bad),
    )


def _of_numbers(
    tree: FileTree,
    pairs: Mapping[str, Sequence[str]],
    seen: Mapping[str, _SeenValues],
    bad: Sequence[BadImage],
    *,
    of_one_class: bool,
) -> MarkedPhotos | None:
    """Return the objects that the values of masks number; None where they are classes."""
    masks = {photo: found.counts for photo, found in seen.items()}
    files = {photo: [tree.file(mask) for mask in pairs[photo]] for photo in masks}
    if (
        any(found.colours for found in seen.values())
        or names_listed(tree, [*masks.values()], colours=False)
        or not number_objects(masks, files, of_one_class=of_one_class)
    ):
        return None
    numbers = {photo: numbers_of(counts) for photo, counts in masks.items()}
    most = max(numbers, key=lambda photo: len(numbers[photo]))
    note = (
        f"Values of masks number the objects of each photo ({len(numbers[most]):,} in '{pairs[most][0]}'): each is of the "
        f"class '{OBJECT}'. If they are classes, put a classes.txt there, a line for each value from 0 on."
    )
    meanings = {
        photo: ((0, Meaning(BACKGROUND)), *((value, Meaning(OBJECT)) for value in values))
        for photo, values in numbers.items()
    }
    maps = {
        photo: CodedMap(file, meanings[photo], seen[photo].size, more=more) for photo, (file, *more) in files.items()
    }
    return only_objects(
        MarkedPhotos(
            form=OF_NUMBERS,
            task=SEMANTIC,
            annotations=maps,
            class_names=(BACKGROUND, OBJECT),
            splits=splits_of_masks(tree, {photo: pairs[photo][0] for photo in masks}),
            traps=tuple(_of_none(tree, pairs)),
            notes=(note,),
            bad=tuple(bad),
        ),
        (OBJECT,),
    )


def _of_one_value(
    tree: FileTree, seen: Mapping[str, _SeenValues], names: ValueNames, bad: Sequence[BadImage]
) -> DataError:
    """Return the error for masks of one value, or of those that cannot be read beside which only such are there."""
    if bad:
        return DataError(f"{bad[0].reason}.")
    alpha = any(found.mode in TRANSPARENT for found in seen.values())
    return DataError(
        f"The masks in '{tree.title}' have one value alone ({', '.join(names.classes.values()) or 'none'}), which tells "
        f"nothing apart{'; their transparency is not looked at' if alpha else ''}; save them with a value for each class."
    )


def _of_another_kind(seen: Mapping[str, _SeenValues]) -> list[str]:
    """Return the photos of the rarer kind of masks, of colours or of grey; black ones are of both."""
    grey = [
        photo for photo, found in seen.items() if not found.colours and found.mode not in COLOURED and any(found.counts)
    ]
    coloured = [photo for photo, found in seen.items() if found.mode in COLOURED and any(found.counts)]
    return min(grey, coloured, key=len)


def splits_of_masks(tree: FileTree, masks: Mapping[str, str]) -> dict[str, str]:
    """Return the splits of photos as VOC's lists for segmentation and nnU-Net's folders say, and of others as paths do."""
    folders = sorted({mask.rpartition("/")[0] for mask in masks.values()})
    lists = [lists_beside(tree, place, OF_VOC[1]) for place in folders if PurePosixPath(place).name == OF_VOC[0]]
    listed = {stem: split for each in lists for stem, split in each.items()}
    stems = {photo: PurePosixPath(mask).stem for photo, mask in masks.items()}
    named = {photo: OF_NNUNET.get(PurePosixPath(photo).parent.name, ALL) for photo in masks}
    tested = "test" in named.values()  # otherwise all are of one split, which is divided as photos in none are
    told = {photo: split for photo, split in named.items() if tested and split != ALL}
    return splits_of(masks) | told | {photo: listed[stem] for photo, stem in stems.items() if stem in listed}


def _of_none(tree: FileTree, pairs: Mapping[str, Sequence[str]]) -> list[Trap]:
    """Return a trap for each of the images in the folders of masks alone that are no photo's mask."""
    masks = {mask for each in pairs.values() for mask in each}
    used = {*pairs, *masks}
    folders = {mask.rpartition("/")[0] for mask in masks} - {photo.rpartition("/")[0] for photo in pairs}
    left = [path for path in tree.photos.paths if path not in used and path.rpartition("/")[0] in folders]
    named = masks_by_name(tree) if left else frozenset[str]()
    return [Trap(UNLIKE if path in named else OF_NONE, path) for path in left]


def _meanings(counts: Counter[int], names: ValueNames) -> tuple[tuple[int, Meaning], ...]:
    return tuple((value, Meaning(name)) for value, name in names.classes.items() if value in counts)


def _look(files: Sequence[StoredFile], *, colours: bool = False) -> _SeenValues:
    values, colours, mode = read_together(files, colours)
    found, pixels = np.unique(values, return_counts=True)
    if len(found) > MOST_VALUES:
        raise DataError(f"'{files[0].name}' has {len(found):,} values, too many for a mask.")
    height, width = values.shape
    counts = Counter(dict(zip(found.tolist(), pixels.tolist(), strict=True)))
    return _SeenValues((height, width), counts, colours, mode)


def _halves(counts: Counter[int]) -> Counter[int]:
    """Return the pixels that are nearer to black, and those nearer to white."""
    white = sum(count for value, count in counts.items() if value >= HALF)
    return +Counter({0: counts.total() - white, WHITE: white})


def _in_colours(seen: _SeenValues, colours: bool) -> Counter[int]:
    """Return the pixels of each value, as a colour where the masks of the data are colours."""
    if seen.colours or not colours:
        return seen.counts
    return Counter({value * GREY: count for value, count in seen.counts.items()})

"""Masks beside photos: images of few colours under the name of a photo, as sets for segmentation are published.

| the mask of cats/1.jpg | is |
|---|---|
| in another format | cats/1.png |
| named so | cats/1_mask.png, cats/1_segmentation.png, cats/mask_1.png, cats/1_cp_masks.png |
| named so, as the photo is | cats/1_masks.png of cats/1_img.png |
| in a folder named so | masks/cats/1.png, cats/masks/1.png, ground_truth/cats/1_mask.png, masks/1.png, masks/cats/seg1.png |
| and of an object | masks/1_0.png, masks/1_1.png |
| with an end of its own | LabeledApproved/1_L.png, labels/1_P.png, masks/1_cells.png |

A name alone decides nothing: a mask has few colours where its photo has many, or is grey and the same all over its parts.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence

import numpy as np

from vitral.advice import counted
from vitral.data.batch import evenly
from vitral.data.names import natural_key
from vitral.data.stored import Entry, Store
from vitral.errors import ImageError
from vitral.images.decode import Pixels, read_image

Folder = tuple[str, ...]
Pair = tuple[int, int]  # the positions of what may be a mask, and of its photo
WORD = (
    r"(?:masks?|segm?|segmentations?|annotations?|labels?|lbl|gt|ground[ _-]?truths?|trimaps?|mattes?|inst|instances?)"
)
LAST = re.compile(rf"(.+?)[ _.-]+(?:cp[ _.-]+)?{WORD}(?:[ _.-]?\d+)?", re.IGNORECASE)
FIRST = re.compile(rf"{WORD}[ _.-]+(.+)", re.IGNORECASE)
OF_OBJECTS = re.compile(r"SegmentationObject|instances", re.IGNORECASE)  # folders of maps that number objects
BEFORE = r"(?:.*[ _.-]|(?-i:.*[a-z](?=[A-Z])))?"  # a word: what ends in a gap, or where a capital follows: PedMasks
FOLDER = re.compile(
    rf"{BEFORE}(?:{WORD}|SegmentationClass)(?:[ _.-].*)?|LabeledApproved.*|{OF_OBJECTS.pattern}", re.IGNORECASE
)
NUMBERED = re.compile(r"(.+?)[ _.-]+\d+")  # by objects
ENDED = re.compile(r"(.+)[ _.-][A-Za-z]+")
OF_PHOTO = ("_img", "_image", "_sat")  # ends of the names of photos whose masks have ends of their own
NUMBER = re.compile(r"\d+")
LOOKED_AT = 32  # pairs that are alike, by which all of them are judged where they agree
MOST_PIXELS = 1 << 16  # of an image that are looked at, about
FEW = 32  # colours of a mask
COARSE = 5  # bits of a value that are dropped, with what softened edges and compression change
MAIN = 8  # coarse colours
COVERED = 0.98  # share of a mask that is of its main coarse colours
RATIO = 4  # colours of a photo over those of its mask, at least
FLAT = 0.5  # share of a mask's pixels beside its most frequent colour that are as those right of them and below,
FLATTER = 2  # and that share over its photo's


def find_masks(
    store: Store, images: Sequence[Entry], parts: Sequence[Folder], *, spoken_of: bool, by_name: bool = False
) -> dict[int, int]:
    """Return the position of each mask among images, and that of its photo.

    Names are looked at as well as formats where any is `spoken_of`, and decide alone where the user says that there are masks.
    """
    found: dict[int, int] = {}
    for pairs in _pairs(parts, spoken_of).values():
        if by_name:
            found |= dict(pairs)
            continue
        looked_at = evenly(pairs, LOOKED_AT)
        judged = {pair: _is_mask(store, images, pair) for pair in looked_at}
        if len(set(judged.values())) > 1:
            judged |= {pair: _is_mask(store, images, pair) for pair in pairs if pair not in judged}
        verdicts = {*judged.values()}
        unread = True in verdicts and False not in verdicts  # what cannot be read is as the others are
        for pair in pairs:
            verdict = judged.get(pair, judged[looked_at[0]])
            found |= dict([pair] if (unread if verdict is None else verdict) else ())
    return found


def note_masks(images: Sequence[Entry], masks: dict[int, int]) -> str:
    """Return the note on masks that are left out."""
    mask, photo = min(masks.items(), key=lambda pair: natural_key(images[pair[0]].name))
    return (
        f"{counted(len(masks), 'mask')} of photos left out, such as '{images[mask].name}' of '{images[photo].name}': images of "
        "few colours, named like a photo. 'semantic:' before the data's name learns from them."
    )


def _pairs(parts: Sequence[Folder], spoken_of: bool) -> dict[tuple[str, ...], list[Pair]]:
    """Return what may be masks, with their photos, by what makes them pairs: formats, or the mask's folder."""
    names = _Names(parts)
    pairs: dict[tuple[str, ...], list[Pair]] = {}
    for mask, path in enumerate(parts):
        kind = _suffix(path)
        for photo in names.same(path[:-1], names.stems[mask]):
            if (other := _suffix(parts[photo])) != kind:
                pairs.setdefault((kind, other), []).append((mask, photo))
                break
        else:
            photos = names.photos(path[:-1], names.stems[mask]) if spoken_of else ()
            likeliest = next((photo for photo in photos if photo != mask), None)
            if likeliest is not None:
                pairs.setdefault(path[:-1], []).append((mask, likeliest))
    return pairs


def _suffix(path: Folder) -> str:
    return path[-1].rpartition(".")[2].lower()


def _number(stem: str) -> list[str]:
    """Return the last number of a stem, by which masks/mask_7.png belongs to images/img_7.jpg; nothing without one."""
    return NUMBER.findall(stem)[-1:]


class _Names:
    """Images by their folders and by their stems, which are their names without a suffix."""

    def __init__(self, parts: Sequence[Folder]) -> None:
        self.stems = [path[-1].rpartition(".")[0] for path in parts]
        self._same: dict[tuple[Folder, str], list[int]] = {}
        self._anywhere: dict[str, list[int]] = {}
        self._beside: dict[tuple[Folder, Folder, str], list[int]] = {}
        folders = {path[:-1] for path in parts}
        self._common = len(os.path.commonprefix([*folders]))  # the folders that all are in tell nothing
        masks = {folder: self._speaking(folder) for folder in folders}
        depths = {depth for found in masks.values() for depth in found}
        for index, (path, stem) in enumerate(zip(parts, self.stems, strict=True)):
            folder = path[:-1]
            self._same.setdefault((folder, stem), []).append(index)
            if depths and not masks[folder]:
                self._anywhere.setdefault(stem, []).append(index)
                for depth, name in itertools.product(depths, {stem, *_number(stem)}):
                    self._beside.setdefault((folder[:depth], folder[depth + 1 :], name), []).append(index)

    def same(self, folder: Folder, stem: str) -> Sequence[int]:
        """Return the images of that name in a folder."""
        return self._same.get((folder, stem), ())

    def photos(self, folder: Folder, stem: str) -> Iterator[int]:
        """Give the images that may be the photo of a mask, by the words in its name and folders, the likeliest first."""
        match = LAST.fullmatch(stem) or FIRST.fullmatch(stem)
        ended = [found[1] for found in (NUMBERED.fullmatch(stem), ENDED.fullmatch(stem)) if found]
        named = [match[1], *(match[1] + end for end in OF_PHOTO)] if match else []
        stems = (*named, stem, *ended, *_number(stem))
        for name in named:
            yield from self.same(folder, name)
        for depth, name in itertools.product(self._speaking(folder), stems):
            yield from self.same(folder[:depth] + folder[depth + 1 :], name)
            yield from self._beside.get((folder[:depth], folder[depth + 1 :], name), ())
            if len(alone := self._anywhere.get(name, ())) == 1:
                yield from alone

    def _speaking(self, folder: Folder) -> list[int]:
        """Return the depths of the folders that speak of masks."""
        return [depth for depth, part in enumerate(folder) if depth >= self._common and FOLDER.fullmatch(part)]


def _is_mask(store: Store, images: Sequence[Entry], pair: Pair) -> bool | None:
    """Tell whether the first of two images is a mask of the second; None where one of them cannot be read."""
    try:
        mask, photo = (read_image(store.read(images[index].store_index)) for index in pair)
    except (ImageError, OSError):
        return None
    few, many = _colours(mask), _colours(photo)
    if (len(few) <= FEW or _covered(mask) >= COVERED) and RATIO * len(few) <= len(many):
        return True
    return _is_grey(mask) and (flat := _flat(mask)) >= FLAT and flat >= FLATTER * _flat(photo)


def _is_grey(pixels: Pixels) -> bool:
    return bool((pixels[..., :1] == pixels[..., 1:]).all())


def _flat(pixels: Pixels) -> float:
    """Return the share of pixels beside the most frequent colour that are as those right of them and below."""
    values = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    found, counts = np.unique(values, return_counts=True)
    here = values[:-1, :-1]
    same = (here == values[:-1, 1:]) & (here == values[1:, :-1])
    beside = here != found[counts.argmax()]
    return float(same[beside].mean()) if beside.any() else 0.0


def _colours(pixels: Pixels, bits: int = 0) -> Sequence[int]:
    """Return how many of some pixels have each colour, of which some bits are dropped, the most frequent colours first."""
    values = pixels.reshape(-1, 3)[:: max(1, pixels.size // 3 // MOST_PIXELS)].astype(np.uint32) >> bits
    _, counts = np.unique(values @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32), return_counts=True)
    return sorted(counts.tolist(), reverse=True)


def _covered(pixels: Pixels) -> float:
    counts = _colours(pixels, COARSE)
    return sum(counts[:MAIN]) / sum(counts)

"""Masks beside photos: images of few colours under the name of a photo, as sets for segmentation are published.

| the mask of cats/1.jpg | is |
|---|---|
| in another format | cats/1.png |
| named so | cats/1_mask.png, cats/1_segmentation.png, cats/mask_1.png, cats/1_cp_masks.png |
| named so, as the photo is | cats/1_masks.png of cats/1_img.png |
| in a folder named so | masks/cats/1.png, cats/masks/1.png, ground_truth/cats/1_mask.png, masks/1.png, masks/cats/seg1.png |
| and of an object | masks/1_0.png, masks/1_1.png |
| with ends of its own | LabeledApproved/1_L.png, labels/1_P.png, masks/1_color_cells.png |
| of nnU-Net's | labelsTr/1.png of imagesTr/1_0000.png |
| of the only photo of that number or words | masks/mask_1.png of img_1.png, 1st_manual/1_manual1.gif of 1_test.tif |
| in one of two folders of the same names | output/cats/1.png of input/cats/1.png |

A name alone decides nothing: a mask has few colours where its photo has many, or is grey and the same all over its parts.
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vitral.advice import counted
from vitral.data.batch import evenly
from vitral.data.names import natural_key
from vitral.data.stored import Entry, Store
from vitral.errors import ImageError
from vitral.images.decode import Pixels, read_image

Folder = tuple[str, ...]
Place = tuple[Folder, ...]  # a folder, or the folders above and below one of whatever name
Pair = tuple[int, int]  # the positions of what may be a mask, and of its photo
Group = tuple[Folder, bool]  # what makes pairs, formats or the mask's folder, and whether its name and theirs say so
Key = tuple[bool, tuple[str, ...]]  # words and numbers that begin a name, or numbers that end it
WORD = (
    r"(?:masks?|msks?|segm?|segmentations?|annotations?|annot?s?|labels?|labs?|lbl|gt|(?:ground[ _-]?)?truths?|trimaps?|"
    r"mattes?|fg|foreground|inst|instances?|targets?|binary|(?:1st|2nd)HO)"
)
MASKS = (  # one is part of every name of a mask
    *("mask", "msk", "seg", "anno", "lab", "lbl", "gt", "truth", "trimap", "matte", "fg", "foreground"),
    *("inst", "target", "binary", "manual", "1stho", "2ndho"),
)
LAST = re.compile(rf"(.+?)[ _.-]+(?:cp[ _.-]+)?{WORD}(?:[ _.-]?\d+)?", re.IGNORECASE)
FIRST = re.compile(rf"{WORD}[ _.-]+(.+)", re.IGNORECASE)
OF_OBJECTS = re.compile(r"SegmentationObject(?:PNG)?|instances", re.IGNORECASE)  # folders of maps that number objects
BY_HAND = re.compile(r"(?:1st|2nd)_manual|manual\d", re.IGNORECASE)  # DRIVE's and HRF's, whose mask/ has fields of view
SECOND = re.compile(r".*_2ndHO", re.IGNORECASE)  # CHASE_DB1's masks by its second observer
SHOWN = re.compile(r"(?:SegmentationClass|SegmentationObject|Annotations)Visualization", re.IGNORECASE)  # for people
BEFORE = r"(?:.*[ _.-]|(?-i:.*[a-z](?=[A-Z])))?"  # a word: what ends in a gap, or where a capital follows: PedMasks
FOLDER = re.compile(
    rf"{BEFORE}(?:{WORD}|SegmentationClass(?:PNG)?)(?:[ _.-].*)?|LabeledApproved.*|(?:train|val|test)annot|labelsT[rs]|"
    rf"{OF_OBJECTS.pattern}|{BY_HAND.pattern}|{SHOWN.pattern}",
    re.IGNORECASE,
)
NUMBERED = re.compile(r"(.+?)[ _.-]+\d+")  # by objects
ENDED = re.compile(r"(.+)[ _.-]\d{0,2}[A-Za-z]+\d{0,2}")
OF_PHOTO = ("_img", "_image", "_sat", "_rgb")  # ends of the names of photos whose masks have ends of their own
FIRST_CHANNEL = "_0000"  # the end of nnU-Net's photos, whose masks have none,
OF_NNUNET = {"imagesTr": "train", "imagesTs": "test"}  # and the folders of its photos
TOKEN = re.compile(r"\d+|[^\W\d_]+")
OF_ITS_OWN = re.compile(r"(?<![^\W_])\d+(?![^\W_])")  # a number that is a word
ALIKE = 2  # letters at least that names of folders that are alike begin or end with
TWINS = 0.9  # share of the smaller of two folders' names that the other one has, too,
FEWEST_TWINS = 3  # and how many at least
LOOKED_AT = 32  # pairs that are alike, by which all of them are judged where they agree
MOST_PIXELS = 1 << 16  # of an image that are looked at, about
FEW = 32  # colours of a mask
COARSE = 5  # bits of a value that are dropped, with what softened edges and compression change
MAIN = 8  # coarse colours
COVERED = 0.98  # share of a mask that is of its main coarse colours
RATIO = 4  # colours of a photo over those of its mask, at least
FLAT = 0.5  # share of a mask's pixels beside its most frequent colour that are as those right of them and below,
FLATTER = 2  # and that share over its photo's


def speak_of_masks(names: Iterable[str]) -> bool:
    """Tell whether files or folders may be called like masks; what these are is looked at then."""
    joined = "\n".join(names).lower()
    return any(word in joined for word in MASKS)


def find_masks(
    store: Store,
    images: Sequence[Entry],
    parts: Sequence[Folder],
    *,
    spoken_of: bool,
    by_name: bool = False,
    any_name: bool = True,
) -> dict[int, int]:
    """Return the position of each mask among images, and that of its photo.

    Names are looked at as well as formats where any is `spoken_of`, and decide alone `by_name`, where the user says that there
    are masks. Otherwise those of two folders of the same names may have `any_name`.
    """
    found: dict[int, int] = {}
    for (kind, called), pairs in _pairs(parts, spoken_of).items():
        if by_name or (called and SHOWN.fullmatch(kind[-1])):
            found |= dict(pairs)
            continue
        looked_at = evenly(pairs, LOOKED_AT)
        objects = called and OF_OBJECTS.fullmatch(kind[-1]) is not None
        judged = {pair: _is_mask(store, images, pair, objects=objects) for pair in looked_at}
        told = [verdict for verdict in judged.values() if verdict is not None]
        if called and 2 * sum(told) > len(told):
            found |= dict(pairs)
            continue
        if len(set(judged.values())) > 1:
            judged |= {pair: _is_mask(store, images, pair, objects=objects) for pair in pairs if pair not in judged}
        verdicts = {*judged.values()}
        unread = True in verdicts and False not in verdicts  # what cannot be read is as the others are
        for pair in pairs:
            verdict = judged.get(pair, judged[looked_at[0]])
            found |= dict([pair] if (unread if verdict is None else verdict) else ())
    if any_name and not (by_name or found):
        for pairs in twins(parts):
            if all(_is_mask(store, images, pair, objects=False) for pair in evenly(pairs, LOOKED_AT)):
                found |= dict(pairs)
    return found


def twins(parts: Sequence[Folder]) -> Iterator[list[Pair]]:
    """Give the images of two folders beside each other as masks of those of the same names in the other, and the reverse.

    Whatever the two are called, they are the only ones there.
    """
    folders = {path[:-1] for path in parts}
    for depth in range(min(map(len, folders), default=0)):
        names = {folder[depth] for folder in folders}
        if len(names) != 2:
            continue
        by_name = [[index for index, path in enumerate(parts) if path[depth] == name] for name in sorted(names)]
        fewer, more = sorted(by_name, key=len)
        some = {_without(parts[index], depth) for index in evenly(fewer, LOOKED_AT)}
        if sum(_without(parts[index], depth) in some for index in more) < TWINS * len(some):
            continue  # without a table of a million names
        there = {_without(parts[index], depth): index for index in fewer}
        pairs = [(there[key], index) for index in more if (key := _without(parts[index], depth)) in there]
        if len(pairs) >= max(FEWEST_TWINS, TWINS * len(fewer)):
            yield pairs
            yield [(photo, mask) for mask, photo in pairs]


def _without(path: Folder, depth: int) -> tuple[Place, str]:
    """Return a path without one of its folders and the suffix of its name."""
    return _around(path[:-1], depth), path[-1].rpartition(".")[0]


def note_masks(images: Sequence[Entry], masks: dict[int, int]) -> str:
    """Return the note on masks that are left out."""
    mask, photo = min(masks.items(), key=lambda pair: natural_key(images[pair[0]].name))
    return (
        f"{counted(len(masks), 'mask')} of photos left out, such as '{images[mask].name}' of '{images[photo].name}': images of "
        "few colours, named like a photo. 'semantic:' before the data's name learns from them."
    )


def _pairs(parts: Sequence[Folder], spoken_of: bool) -> dict[Group, list[Pair]]:
    """Return what may be masks, with their photos, by what makes them pairs."""
    names = _Names(parts)
    pairs: dict[Group, list[Pair]] = {}
    unnamed: dict[Folder, list[int]] = {}
    for mask, path in enumerate(parts):
        kind, folder = _suffix(path), path[:-1]
        for photo in names.same(folder, names.stems[mask]):
            if (other := _suffix(parts[photo])) != kind:
                pairs.setdefault(((kind, other), False), []).append((mask, photo))
                break
        else:
            photos = names.photos(folder, names.stems[mask]) if spoken_of else ()
            likeliest = next((photo for photo in photos if photo != mask), None)
            if likeliest is not None:
                called = folder in names.of_masks and parts[likeliest][:-1] != folder
                pairs.setdefault((folder, called), []).append((mask, likeliest))
            elif spoken_of and folder in names.of_masks:
                unnamed.setdefault(folder, []).append(mask)
    photos_of = _photos_by_number(names, unnamed) if unnamed else {}
    for folder, masks in unnamed.items():
        taken = {photo for _, photo in pairs.get((folder, True), ())}
        if found := _only(names, {mask: photos_of[mask] for mask in masks}, taken):
            pairs.setdefault((folder, False), []).extend(found)
    return pairs


def _suffix(path: Folder) -> str:
    return path[-1].rpartition(".")[2].lower()


class _Names:
    """Images by their folders and by their stems, which are their names without a suffix.

    Attributes:
        of_masks: The depths at which each folder speaks of masks, of those that do.
    """

    def __init__(self, parts: Sequence[Folder]) -> None:
        self.stems = [path[-1].rpartition(".")[0] for path in parts]
        self.folders = [path[:-1] for path in parts]
        self._same: dict[tuple[Folder, str], list[int]] = {}
        self._anywhere: dict[str, list[int]] = {}
        self._beside: dict[tuple[Place, str], list[int]] = {}
        every = {*self.folders}
        common = len(os.path.commonprefix([*every]))  # the folders that all are in tell nothing
        speaking = {
            folder: [depth for depth in range(common, len(folder)) if FOLDER.fullmatch(folder[depth])]
            for folder in every
        }
        self.of_masks = {folder: depths for folder, depths in speaking.items() if depths}
        self.depths = {depth for depths in self.of_masks.values() for depth in depths}
        for index, (folder, stem) in enumerate(zip(self.folders, self.stems, strict=True)):
            self._same.setdefault((folder, stem), []).append(index)
            if self.depths and folder not in self.of_masks:
                self._anywhere.setdefault(stem, []).append(index)
                for depth in self.depths:
                    self._beside.setdefault((_around(folder, depth), stem), []).append(index)

    def same(self, folder: Folder, stem: str) -> Sequence[int]:
        """Return the images of that name in a folder."""
        return self._same.get((folder, stem), ())

    def photos(self, folder: Folder, stem: str) -> Iterator[int]:
        """Give the images that may be the photo of a mask, by the words in its name and folders, the likeliest first."""
        match = LAST.fullmatch(stem) or FIRST.fullmatch(stem)
        named = [match[1], *(match[1] + end for end in OF_PHOTO)] if match else []
        for name in named:
            yield from self.same(folder, name)
        depths = self.of_masks.get(folder, ())
        stems = (*named, stem, stem + FIRST_CHANNEL, *_beginnings(stem)) if depths else ()
        for depth, name in itertools.product(depths, stems):
            yield from self.same(folder[:depth] + folder[depth + 1 :], name)
            beside = self._beside.get((_around(folder, depth), name), ())
            yield from sorted(beside, key=lambda photo: -self.alike(folder, photo))
            if len(alone := self._anywhere.get(name, ())) == 1:
                yield from alone

    def alike(self, folder: Folder, photo: int) -> int:
        """Return how much the name of a photo's folder is like that of a folder of masks: trainannot and train, not test."""
        names = [pair for pair in zip(folder, self.folders[photo], strict=False) if pair[0] != pair[1]][:1]
        lengths = [
            len(os.path.commonprefix(each)) for one, other in names for each in ((one, other), (one[::-1], other[::-1]))
        ]
        return max((length for length in lengths if length >= ALIKE), default=0)


def _around(folder: Folder, depth: int) -> Place:
    return folder[:depth], folder[depth + 1 :]


def _beginnings(stem: str) -> Iterator[str]:
    """Give a mask's name up to its ends, which are the number of an object, or words, the longest first."""
    if match := NUMBERED.fullmatch(stem):
        yield (stem := match[1])
    while match := ENDED.fullmatch(stem):
        yield (stem := match[1])


class _Claim(NamedTuple):
    """How well a name fits a photo's: their common words and numbers, those they begin with, and whether folders are alike."""

    words: int
    numbers: int
    begun: int
    alike: int

    @property
    def alone(self) -> bool:
        """Whether nothing but the number says it."""
        return not (self.words or self.begun)


def _photos_by_number(names: _Names, unnamed: Mapping[Folder, Sequence[int]]) -> dict[int, set[int]]:
    """Return for each mask that no name gives a photo those which its numbers may mean, in or beside its folder's parent."""
    asking: dict[Place, dict[Key, list[int]]] = {}
    for folder, masks in unnamed.items():
        around = [_around(folder, depth) for depth in names.of_masks[folder]]
        places = [*around, *((above + below,) for above, below in around)]
        for mask in masks:
            for key, place in itertools.product(_keys_of_mask(names.stems[mask]), places):
                asking.setdefault(place, {}).setdefault(key, []).append(mask)
    photos: dict[int, set[int]] = {mask: set() for masks in unnamed.values() for mask in masks}
    for photo, (folder, stem) in enumerate(zip(names.folders, names.stems, strict=True)):
        around = [_around(folder, depth) for depth in names.depths]
        asked = [] if folder in names.of_masks else [asking[place] for place in ((folder,), *around) if place in asking]
        for keys, key in itertools.product(asked, _keys_of_photo(stem) if asked else ()):
            for mask in keys.get(key, ()):
                photos[mask].add(photo)
    return photos


def _tokens(stem: str) -> list[str]:
    return TOKEN.findall(stem.lower())


def _keys_of_photo(stem: str) -> list[Key]:
    """Return the last numbers of a photo's name, and all up to its last number."""
    tokens = _tokens(stem)
    places = [place for place, token in enumerate(tokens) if token.isdecimal()]
    numbers = tuple(tokens[place] for place in places)
    last = [(True, tuple(tokens[: places[-1] + 1]))] if places else []
    return [*((False, numbers[first:]) for first in range(len(numbers))), *last]


def _keys_of_mask(stem: str) -> list[Key]:
    """Return the numbers of a mask's name, all of which its photo's ends with, and beginnings that have all of the photo's."""
    lower = stem.lower()
    tokens = list(TOKEN.finditer(lower))
    texts = [token[0] for token in tokens]
    numbers = tuple(text for text in texts if text.isdecimal())
    begun = [
        (True, tuple(texts[: place + 1]))
        for place, token in enumerate(tokens)
        if token[0].isdecimal() and not OF_ITS_OWN.search(lower, token.end())
    ]
    return [*([(False, numbers)] if numbers else []), *begun]


def _only(names: _Names, photos: Mapping[int, Collection[int]], taken: Collection[int]) -> list[Pair]:
    """Return the masks of a folder that numbers give a photo: one alone that fits best, and no other mask as well.

    Where most masks of a folder have a photo by name, or share words with theirs, a number alone gives none.
    """
    claims: dict[int, list[tuple[_Claim, int]]] = {}
    for mask, several in photos.items():
        scored = sorted(((_claim(names, mask, photo), photo) for photo in several), reverse=True)
        if scored and (len(scored) == 1 or scored[0][0] > scored[1][0]):
            claims.setdefault(scored[0][1], []).append((scored[0][0], mask))
    best: list[tuple[_Claim, Pair]] = []
    for photo, found in claims.items():
        found.sort(reverse=True)
        if photo not in taken and (len(found) == 1 or found[0][0] > found[1][0]):
            best.append((found[0][0], (found[0][1], photo)))
    by_number = sum(claim.alone for claim, _ in best)
    numbered = by_number > len(taken) + len(best) - by_number
    return [pair for claim, pair in best if numbered or not claim.alone]


def _claim(names: _Names, mask: int, photo: int) -> _Claim:
    own, other = _tokens(names.stems[mask]), _tokens(names.stems[photo])
    shared = [*(Counter(own) & Counter(other)).elements()]
    numbers = sum(token.isdecimal() for token in shared)
    begun = len(os.path.commonprefix([own, other]))
    return _Claim(len(shared) - numbers, numbers, begun, names.alike(names.folders[mask], photo))


def _is_mask(store: Store, images: Sequence[Entry], pair: Pair, *, objects: bool) -> bool | None:
    """Tell whether the first of two images is a mask of the second; None where one of them cannot be read.

    One of `objects` may have many colours.
    """
    try:
        mask, photo = (read_image(store.read(images[index].store_index)) for index in pair)
    except (ImageError, OSError):
        return None
    few, many = _colours(mask), _colours(photo)
    if (len(few) <= FEW or _covered(mask) >= COVERED) and RATIO * len(few) <= len(many):
        return True
    return (objects or _is_grey(mask)) and (flat := _flat(mask)) >= FLAT and flat >= FLATTER * _flat(photo)


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

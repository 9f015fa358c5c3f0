"""ADE20K: the 150 classes of its benchmark of scene parsing, and the whole data of 2017 and of 2020.

| file | says |
|---|---|
| annotations/training/ADE_train_00000001.png | of a pixel its class, from 1 on, as in objectInfo150.txt; 0 is no class |
| NAME_seg.png | of a pixel its class, 256 (R div 10) + G, and by B which object it is of |
| NAME_atr.txt, of 2017 | a line for each object: its number # level of parts # occluded # name # short name # attributes |
| NAME.json, of 2020 | for each object its name, the number of its class, its level of parts |

Objects of level 0 are read; parts of objects, in NAME_parts_1.png and on, are left out (CSAILVision/ADE20K, utils_ade20k.py).
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from vitral.data.annotations.coded_map import Meaning, Meanings, read_maps, read_values
from vitral.data.annotations.marked import NOT_THERE, MarkedPhotos, Trap, splits_of
from vitral.data.annotations.tree import FileTree, Photos
from vitral.data.names import natural_key
from vitral.errors import DataError
from vitral.tasks.instances import INSTANCES
from vitral.tasks.semantic import SEMANTIC

FORM = "ADE20K's scene parsing"
WHOLE = "ADE20K"
SCENES = re.compile(r"(?:.*/)?annotations/(?:.*/)?(ADE_(?:train|val|frame)_\d+)\.png")
NAMES = "objectInfo150.txt"
CLASSES = 150
OBJECTS = re.compile(r"(.+)_seg\.png")
MASKS = re.compile(r"(?:.*/)?(?:[^/]+_seg|[^/]+_parts_\d+|instance_[^/]+)\.png")
PARTS = "masks of parts of objects, left out"


def read_scene_parsing(tree: FileTree) -> MarkedPhotos | None:
    """Return what the benchmark's annotations in a folder say; None where there are none.

    Raises:
        DataError: the names of the classes cannot be read.
    """
    named = {file.path: match[1] for file in tree.files if (match := SCENES.fullmatch(file.path))}
    others = Photos(file.path for file in tree.files if file.path not in named)
    chosen, traps = _photos(named, others)
    if not chosen:
        return None
    lists = [file.path for file in tree.files if PurePosixPath(file.path).name == NAMES]
    names = _names(tree, lists[0]) if lists else {number: str(number) for number in range(1, CLASSES + 1)}
    known = {number: Meaning(name) for number, name in names.items()}
    annotations, bad = read_maps(tree, chosen, lambda photo: known.get)
    return MarkedPhotos(
        form=FORM,
        task=SEMANTIC,
        annotations=annotations,
        class_names=tuple(names.values()),
        splits=splits_of(chosen),
        traps=traps,
        notes=() if lists else (f"There is no {NAMES}, so the classes are called 1 to {CLASSES}.",),
        bad=bad,
    )


def read_ade20k(tree: FileTree) -> MarkedPhotos | None:
    """Return what the whole data's annotations in a folder say; None where there are none."""
    paths = {file.path for file in tree.files}
    named = {path: match[1] for path in paths if (match := OBJECTS.fullmatch(path))}
    described = {path: stem for path, stem in named.items() if paths & {f"{stem}_atr.txt", f"{stem}.json"}}
    chosen, missing = _photos(described, tree.photos)
    if not chosen:
        return None

    def meanings(photo: str) -> Meanings:
        stem = described[chosen[photo]]
        if f"{stem}.json" in paths:
            found: Meanings = tree.json(f"{stem}.json", (), WHOLE, _of_2020)
            return found
        return _of_2017(tree, f"{stem}_atr.txt", chosen[photo])

    annotations, bad = read_maps(tree, chosen, meanings, colours=True)
    parts = (Trap(PARTS, path) for path in sorted(paths) if re.search(r"_parts_\d+\.png$", path))
    return MarkedPhotos(
        form=WHOLE,
        task=INSTANCES,
        annotations=annotations,
        class_names=tuple(sorted({name for there in annotations.values() for name in there.classes}, key=natural_key)),
        splits=splits_of(chosen),
        traps=(*missing, *parts),
        bad=bad,
        others=frozenset(filter(MASKS.fullmatch, paths)),
    )


def _photos(stems: Mapping[str, str], photos: Photos) -> tuple[dict[str, str], tuple[Trap, ...]]:
    """Return the mask of each photo, of masks with the stems of their photos' names, and the masks without a photo."""
    found = {path: photos.find(stem, path) for path, stem in sorted(stems.items())}
    chosen = {photo: path for path, photo in found.items() if photo is not None}
    return chosen, tuple(Trap(NOT_THERE, path) for path, photo in found.items() if photo is None)


def _names(tree: FileTree, path: str) -> dict[int, str]:
    """Return the names of the benchmark's classes by their numbers, or raise DataError if they cannot be read."""
    names: dict[int, str] = {}
    for line in tree.text(path).splitlines():
        number, _, rest = line.partition("\t")
        if number.strip().isdecimal():
            names[int(number)] = rest.rpartition("\t")[2].strip()
    if sorted(names) != [*range(1, len(names) + 1)] or not all(names.values()):
        raise DataError(
            f"'{tree.file(path).name}' does not number the classes of ADE20K from 1 on, each with its name; take it from its "
            "archive."
        )
    return names


def _of_2017(tree: FileTree, path: str, mask: str) -> Meanings:
    """Return what a photo's codes mean by its list of objects, whose numbers are the ranks of B."""
    names: dict[int, str] = {}
    for line in tree.text(path).splitlines():
        cells = [cell.strip() for cell in line.split("#")]
        if len(cells) > 4 and cells[0].isdecimal() and cells[1] == "0":
            names[int(cells[0])] = cells[3]
    ranks = {
        value: rank for rank, value in enumerate(np.unique(read_values(tree.file(mask), colours=True) & 0xFF).tolist())
    }

    def meaning(code: int) -> Meaning | None:
        name = names.get(ranks[code & 0xFF])
        return None if name is None else Meaning(name)

    return meaning


def _of_2020(values: Any) -> Meanings:  # noqa: ANN401
    """Return what a photo's codes mean by its description, which has the numbers of the classes."""
    listed = values["annotation"]["object"]
    names = {int(each["name_ndx"]): str(each["name"]) for each in listed if each["parts"]["part_level"] == 0}

    def meaning(code: int) -> Meaning | None:
        name = names.get((code >> 16) // 10 * 256 + (code >> 8 & 0xFF))
        return None if name is None else Meaning(name)

    return meaning

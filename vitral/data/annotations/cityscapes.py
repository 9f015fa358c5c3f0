"""Cityscapes' fine annotations: PNG images beside those of leftImg8bit, of which any form says all that is needed.

| file | value |
|---|---|
| *_gtFine_instanceIds.png | of an instance 1000 times its class and its number; of anything else its class |
| *_gtFine_labelIds.png | a class |
| *_gtFine_labelTrainIds.png | one of the 19 classes that are trained on, from 0 on; others count for nothing |

A class whose objects are counted, without a number, is a group of them (cityscapesscripts, helpers/labels.py, and
preparation/json2instanceImg.py).
"""

import re
from functools import partial
from pathlib import PurePosixPath

from vitral.data.annotations.coded_map import Meaning, read_maps
from vitral.data.annotations.marked import NOT_THERE, MarkedPhotos, Trap, splits_of
from vitral.data.annotations.tree import FileTree
from vitral.tasks.panoptic import PANOPTIC
from vitral.tasks.semantic import SEMANTIC

FORM = "Cityscapes"
DRAWN = re.compile(r"(?:.*/)?[^/]+_gt(?:Fine|Coarse)_\w+\.png")  # masks of all forms, colours among them
FORMS = ("instanceIds", "labelIds", "labelTrainIds")  # the first of those that a photo has is read
MASKS = re.compile(rf"(.+)_gt(?:Fine|Coarse)_({'|'.join(FORMS)})\.png")
# The identity of each class that is trained on, in their order.
CLASSES = {
    **{7: "road", 8: "sidewalk", 11: "building", 12: "wall", 13: "fence", 17: "pole", 19: "traffic light"},
    **{20: "traffic sign", 21: "vegetation", 22: "terrain", 23: "sky", 24: "person", 25: "rider", 26: "car"},
    **{27: "truck", 28: "bus", 31: "train", 32: "motorcycle", 33: "bicycle"},
}
TRAINED = tuple(CLASSES.values())
COUNTED = 24  # from this class on, objects are counted
OF_INSTANCES = 1000


def read_cityscapes(tree: FileTree) -> MarkedPhotos | None:
    """Return what Cityscapes' annotations in a folder say; None where there are none.

    With instances the photos are for panoptic segmentation, otherwise for semantic segmentation.
    """
    named = {file.path: MASKS.fullmatch(PurePosixPath(file.path).name) for file in tree.files}
    masks = {path: (match[1], match[2]) for path, match in named.items() if match}
    chosen: dict[str, str] = {}  # the mask of each photo
    traps = list[Trap]()
    for path, (stem, _) in sorted(masks.items(), key=lambda item: (FORMS.index(item[1][1]), item[0])):
        photo = tree.photo(f"{stem}_leftImg8bit", path)
        if photo is None:
            traps.append(Trap(NOT_THERE, path))
        elif photo not in chosen:
            chosen[photo] = path
    if not chosen and not traps:
        return None
    meanings = {photo: partial(meaning, masks[path][1]) for photo, path in chosen.items()}
    read, bad = read_maps(tree, chosen, meanings.__getitem__)
    counted = any(masks[path][1] == FORMS[0] for path in chosen.values())
    return MarkedPhotos(
        form=FORM,
        task=PANOPTIC if counted else SEMANTIC,
        annotations=read,
        class_names=TRAINED,
        splits=splits_of(chosen),
        things=tuple(name for identity, name in CLASSES.items() if identity >= COUNTED) if counted else (),
        traps=tuple(traps),
        bad=bad,
        others=frozenset(path for path in named if DRAWN.fullmatch(path)),
    )


def meaning(form: str, value: int) -> Meaning | None:
    """Return what a value means in one of the `FORMS`; None where it counts for nothing."""
    if form == "labelTrainIds":
        return Meaning(TRAINED[value]) if value < len(TRAINED) else None
    identity = value // OF_INSTANCES if value >= OF_INSTANCES else value
    if identity not in CLASSES:
        return None
    return Meaning(CLASSES[identity], crowd=form == "instanceIds" and value < OF_INSTANCES and identity >= COUNTED)

"""COCO's panoptic form: a map of segments a photo, each segment's number in red + 256 green + 65,536 blue; its class in JSON.

Classes are things, whose segments are objects, or matter such as sky (panopticapi, README and utils.py). Pixels of no segment
are ignored.
"""

from pathlib import PurePosixPath
from typing import Any

from vitral.data.annotations.coded_map import Meaning, read_maps
from vitral.data.annotations.marked import AGAIN, NOT_THERE, MarkedPhotos, Trap, split_of_path
from vitral.data.annotations.tree import FileTree
from vitral.data.names import ALL
from vitral.tasks.panoptic import PANOPTIC

FORM = "COCO panoptic"
KEYS = ("segments_info", "images", "categories")
ABSENT = "segments that their map does not have, left out"


def read_panoptic(tree: FileTree) -> MarkedPhotos | None:
    """Return what COCO's panoptic files in a folder say; None where there are none.

    Raises:
        DataError: one cannot be read.
    """
    names: dict[int, tuple[str, bool]] = {}
    maps: dict[str, str] = {}  # of each photo
    segments: dict[str, dict[int, Meaning]] = {}  # of each photo, by their codes in its map
    splits: dict[str, str] = {}
    traps: list[Trap] = []
    for path in tree.json_files():
        if (values := tree.json(path, KEYS, FORM, _checked)) is None:
            continue
        split, beside = split_of_path(path), PurePosixPath(path).stem
        called = {image["id"]: image["file_name"] for image in values["images"]}
        names |= {item["id"]: (str(item["name"]), bool(item.get("isthing", 1))) for item in values["categories"]}
        for item in values["annotations"]:
            drawn = tree.photo(f"{beside}/{item['file_name']}", path, split)
            photo = tree.photo(called.get(item["image_id"], ""), path, split, other_than=drawn)
            if photo is None or drawn is None or photo in maps:
                traps.append(Trap(AGAIN if photo in maps else NOT_THERE, path))
                continue
            maps[photo] = drawn
            segments[photo] = {
                _code(each["id"]): Meaning(names[each["category_id"]][0], bool(each.get("iscrowd")))
                for each in item["segments_info"]
                if each["category_id"] in names
            }
            if (own := split if split != ALL else split_of_path(photo)) != ALL:
                splits[photo] = own
    if not maps and not traps:
        return None
    annotations, bad = read_maps(tree, maps, lambda photo: segments[photo].get, colours=True)
    absent = {photo: len(segments[photo]) - len(there.meanings) for photo, there in annotations.items()}
    traps += [Trap(ABSENT, maps[photo], count) for photo, count in absent.items() if count]
    ordered = [names[number] for number in sorted(names)]
    return MarkedPhotos(
        form=FORM,
        task=PANOPTIC,
        annotations=annotations,
        class_names=tuple(dict.fromkeys(name for name, _ in ordered)),
        splits=splits,
        things=tuple(dict.fromkeys(name for name, is_thing in ordered if is_thing)),
        traps=tuple(traps),
        bad=bad,
    )


def _code(number: int) -> int:
    """Return a segment's number as the colour that stands for it, 65536 R + 256 G + B."""
    return (number & 0xFF) << 16 | number & 0xFF00 | number >> 16


def _checked(values: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the values of a panoptic file.

    Raises:
        KeyError: they lack what the form has; likewise a TypeError or a ValueError.
    """
    items, images = values["annotations"], values["images"]
    segments = [each for item in items for each in item["segments_info"]]
    ids = [each["id"] for each in (*images, *values["categories"], *segments)]
    ids += [item["image_id"] for item in items] + [each["category_id"] for each in segments]
    names = [each["file_name"] for each in (*images, *items)]
    if not all(isinstance(number, int) for number in ids) or not all(isinstance(name, str) for name in names):
        raise ValueError("an id is no number, or a file's name no text")
    if not all(item["name"] for item in values["categories"]):
        raise ValueError("a class without a name")
    return dict(values)

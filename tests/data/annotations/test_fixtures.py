"""Datumaro's own small datasets hold the boxes and masks that Datumaro reads in them (fixtures.json, by write_fixtures.py)."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.cases import every_case
from vitral.data.annotations.annotation import regions_of
from vitral.data.annotations.coco import read_coco
from vitral.data.annotations.coco_panoptic import read_panoptic
from vitral.data.annotations.find import Reader, list_annotated
from vitral.data.annotations.marked import MarkedPhotos
from vitral.data.annotations.mask_images import read_masks
from vitral.data.annotations.mask_pairs import pair_masks
from vitral.data.annotations.tree import FileTree
from vitral.data.annotations.voc import read_voc
from vitral.data.annotations.yolo import read_yolo
from vitral.data.listing import Opening
from vitral.paths import walk
from vitral.tasks.regions import Regions

FIXTURES: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures.json").read_text())


def _masks(tree: FileTree) -> MarkedPhotos | None:
    pairs = pair_masks(tree, by_name=True)
    return None if pairs is None else read_masks(tree, pairs)


READERS: dict[str, Reader] = {"coco instances": read_coco, "coco panoptic": read_panoptic, "masks": _masks}


def _unpack(name: str, folder: Path) -> FileTree:
    for path, content in FIXTURES[name]["files"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(base64.b64decode(content))
    return FileTree.of_folder(folder, walk(folder))


def _of(marked: MarkedPhotos, tree: FileTree, photo: str, *, as_annotated: bool) -> tuple[Regions, list[str]]:
    annotation = marked.annotations[photo]
    numbers = {name: number for number, name in enumerate(marked.class_names)}
    if as_annotated and annotation.stated is not None:
        regions = annotation.regions(numbers, annotation.stated)
    else:
        regions = regions_of(annotation, numbers, tree.store.read(tree.number(photo)))
    return regions, [marked.class_names[number] for number in regions.classes]


@every_case("name", list(FIXTURES))
def test_regions_are_datumaros(tmp_path: Path, name: str) -> None:
    tree = _unpack(name, tmp_path)
    reader = READERS.get(name, read_voc if name.startswith("voc") else read_yolo)
    marked = reader(tree)
    assert marked is not None
    compared = 0
    for item, expected in FIXTURES[name]["regions"].items():
        photos = [photo for photo in marked.annotations if Path(photo).stem == item]
        assert len(photos) == (1 if expected else 0)
        for photo in photos:
            regions, names = _of(marked, tree, photo, as_annotated=name == "coco panoptic")
            compared += _compare(name, regions, names, expected)
    assert compared == sum(map(len, FIXTURES[name]["regions"].values()))


def _compare(name: str, regions: Regions, names: list[str], expected: list[dict[str, Any]]) -> int:
    """Find each of Datumaro's regions among ours, and return how many they are."""
    left = list(range(len(regions)))
    for region in expected:
        for number in left:
            if names[number] == region["name"] and _same(name, regions, number, region):
                left.remove(number)
                break
        else:
            raise AssertionError(f"{region} is not among {names} {regions.boxes.tolist()}")
    assert not left
    return len(expected)


def _same(name: str, regions: Regions, number: int, region: dict[str, Any]) -> bool:
    if "mask" in region:
        mask = np.array(region["mask"], dtype=bool)
        return mask.shape == regions.size and bool((regions.bitmaps()[number] == mask).all())
    # Datumaro leaves VOC's numbers as they are; by VOC's own book they count from 1, the last pixel included.
    shift = [1, 1, 0, 0] if name.startswith("voc") else [0, 0, 0, 0]
    return bool(np.allclose(regions.boxes[number], np.array(region["box"]) - shift, atol=1e-4))


@every_case("name", [name for name in FIXTURES if name != "coco panoptic"])
def test_each_fixture_is_recognised_by_itself(tmp_path: Path, name: str) -> None:
    listing = list_annotated(_unpack(name, tmp_path), Opening())
    assert listing is not None
    assert not listing.bad
    expected = {item for item, found in FIXTURES[name]["regions"].items() if found}
    assert {Path(each.name).stem for listed in listing.entries.values() for each in listed} == expected


def test_a_map_of_another_shape_than_its_photo_is_refused(tmp_path: Path) -> None:
    """Datumaro's photos of 10x5 pixels have maps of 5x5 and 5x10 in their panoptic fixture."""
    listing = list_annotated(_unpack("coco panoptic", tmp_path), Opening())
    assert listing is not None
    (bad,) = listing.bad
    assert "a.jpg' is annotated as of 5x5 pixels, and has 10x5" in bad.reason

"""COCO's JSON against pycocotools, which its authors read and score it with."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.annotations import drawn
from tests.data.annotations.write_polygons import drawn as polygons
from vitral.data.annotations.polygons import polygons_mask
from vitral.data.open import open_data
from vitral.images.run_lengths import decode_mask, runs_of_text
from vitral.tasks.regions import Regions

pytest.importorskip("pycocotools")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_a_thousand_polygons_are_filled_alike() -> None:
    from pycocotools import mask

    for number in range(1000):
        outlines, height, width = polygons(number)
        theirs = mask.decode(mask.merge(mask.frPyObjects(outlines, height, width))).astype(bool)
        assert np.array_equal(decode_mask(polygons_mask(outlines, (height, width)), (height, width)), theirs)


def test_masks_boxes_areas_and_crowds_of_a_file_are_those_of_pycocotools(tmp_path: Path) -> None:
    from pycocotools import mask
    from pycocotools.coco import COCO

    values = drawn.coco(masks=True)
    rng = np.random.default_rng(0)
    for item in values["annotations"][::3]:
        bitmap = rng.random((drawn.HEIGHT, drawn.WIDTH)) > 0.7
        text = mask.encode(np.asfortranarray(bitmap, dtype=np.uint8))
        item |= {"segmentation": {**text, "counts": text["counts"].decode()}, "iscrowd": int(rng.integers(2))}
        assert runs_of_text(text["counts"].decode()).sum() == bitmap.size
    drawn.photos(tmp_path / "images")
    (tmp_path / "a.json").write_text(json.dumps(values))
    theirs = COCO(str(tmp_path / "a.json"))
    data = open_data(tmp_path)
    names = {image["file_name"]: number for number, image in theirs.imgs.items()}
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            assert isinstance(label, Regions)
            items = theirs.imgToAnns[names[Path(source.describe(index)).name]]
            assert label.crowd.tolist() == [bool(item["iscrowd"]) for item in items]
            assert label.areas.tolist() == [item["area"] for item in items]
            for bitmap, item in zip(label.bitmaps(), items, strict=True):
                assert np.array_equal(bitmap, theirs.annToMask(item).astype(bool))

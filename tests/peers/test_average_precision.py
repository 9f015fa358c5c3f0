"""Our average precision against pycocotools, hotcoco and faster-coco-eval on 200 random scenes: all twelve numbers."""

import contextlib
import importlib
import io
import itertools
from typing import Any

import numpy as np
import pytest

from tests.tasks.scenes import Scene, object_photos
from tests.tasks.test_average_precision import tally, twelve
from vitral.tasks.regions import Regions

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PEERS = {
    "pycocotools": ("pycocotools.coco:COCO", "pycocotools.cocoeval:COCOeval"),
    "hotcoco": ("hotcoco:COCO", "hotcoco:COCOeval"),
    "faster-coco-eval": ("faster_coco_eval:COCO", "faster_coco_eval:COCOeval_faster"),
}
SCENES = 200


def runs(regions: Regions, row: int) -> dict[str, Any]:
    mask = importlib.import_module("pycocotools.mask")
    coded = mask.encode(np.asfortranarray(regions.bitmaps()[row].astype(np.uint8)))
    return {"size": coded["size"], "counts": coded["counts"].decode()}


def boxed(regions: Regions, row: int) -> list[float]:
    left, top, right, bottom = regions.boxes[row].tolist()
    return [left, top, right - left, bottom - top]


def as_coco(photos: Scene, *, masks: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return photos and answers as COCO has them."""
    truth: dict[str, Any] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": k, "name": str(k)} for k in range(3)],
    }
    answers: list[dict[str, Any]] = []
    for index, (regions, found) in enumerate(photos):
        truth["images"].append({"id": index, "height": regions.size[0], "width": regions.size[1]})
        for row in range(len(regions)):
            shape: dict[str, Any] = {"segmentation": runs(regions, row)} if masks else {}
            truth["annotations"].append(
                {
                    "id": len(truth["annotations"]) + 1,
                    "image_id": index,
                    "category_id": int(regions.classes[row]),
                    "bbox": boxed(regions, row),
                    "area": float(regions.areas[row]),
                    "iscrowd": int(regions.crowd[row]),
                    **shape,
                }
            )
        for row in range(len(found.regions)):
            shape = {"segmentation": runs(found.regions, row)} if masks else {"bbox": boxed(found.regions, row)}
            number, score = int(found.regions.classes[row]), float(found.scores[row])
            answers.append({"image_id": index, "category_id": number, "score": score, **shape})
    return truth, answers


def theirs(peer: str, photos: Scene, *, masks: bool) -> list[float]:
    """Return a peer's twelve numbers."""
    coco, evaluation = (getattr(importlib.import_module(module), name) for module, name in map(split, PEERS[peer]))
    truth, answers = as_coco(photos, masks=masks)
    with contextlib.redirect_stdout(io.StringIO()):
        there = coco(truth) if peer != "pycocotools" else coco()
        if peer == "pycocotools":
            there.dataset = truth
            there.createIndex()
        run = evaluation(there, there.loadRes(answers), "segm" if masks else "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return [float(value) for value in run.stats[:12]]


def split(name: str) -> list[str]:
    return name.split(":")


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("peer", PEERS)
def test_the_twelve_numbers_are_the_peers(peer: str, masks: bool) -> None:
    pytest.importorskip(PEERS[peer][0].split(":")[0])
    apart, compared = {}, 0
    for seed in itertools.count():
        photos = object_photos(seed, masks=masks)
        if not any(len(found.regions) for _, found in photos) or not any((~each.crowd).any() for each, _ in photos):
            continue  # which the peers do not score
        ours = twelve(tally(photos, masks=masks))
        gap = np.abs(np.array(ours) - theirs(peer, photos, masks=masks)).max()
        if gap > 1e-12:
            apart[seed] = gap
        compared += 1
        if compared == SCENES:
            break
    assert not apart

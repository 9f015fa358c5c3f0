"""Write boundary AP of some scenes by its authors' code: python -m tests.peers.write_boundary_precision BOUNDARY_IOU_API.

BOUNDARY_IOU_API is a clone of bowenc0221/boundary-iou-api (BSD), which takes pycocotools and OpenCV.
"""

import contextlib
import importlib
import io
import json
import sys

import numpy as np

from tests.peers.test_average_precision import as_coco
from tests.tasks.scenes import Scene, object_photos
from tests.tasks.test_average_precision import BOUNDARY_FIGURES, SEEDS


def theirs(photos: Scene) -> float:
    """Return their boundary AP."""
    api = importlib.import_module("boundary_iou.coco_instance_api.coco")
    evaluation = importlib.import_module("boundary_iou.coco_instance_api.cocoeval")
    truth, answers = as_coco(photos, masks=True)
    with contextlib.redirect_stdout(io.StringIO()):
        there, given = api.COCO(), api.COCO()
        there.dataset, given.dataset = truth, {**truth, "annotations": answers}
        for number, answer in enumerate(answers, start=1):
            box = importlib.import_module("pycocotools.mask").toBbox(answer["segmentation"]).tolist()
            answer |= {"id": number, "iscrowd": 0, "bbox": box, "area": float(box[2] * box[3])}
        for each in (there, given):
            each.createIndex()
            for item in each.dataset["annotations"]:
                mask = each.annToMask(item)
                band = importlib.import_module("boundary_iou.utils.boundary_utils").mask_to_boundary(mask)
                coded = importlib.import_module("pycocotools.mask").encode(np.asfortranarray(band))
                item["boundary"] = coded
        run = evaluation.COCOeval(there, given, "boundary")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[0])


def main(api: str) -> None:
    """Write the file."""
    sys.path.insert(0, api)
    np.float = float  # type: ignore[attr-defined]  # of which their code is older than its end
    said = {seed: theirs(object_photos(seed, masks=True)) for seed in SEEDS}
    BOUNDARY_FIGURES.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

"""The JSON of what is found is read by pycocotools, and is its own perfect answer there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.classifier.test_write_regions import NAMES, boxes, found_in
from vitral.classifier.bulk.write_regions import write_regions
from vitral.images.run_lengths import counts_text, encode_mask

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("kind", ["segm", "bbox"])
def test_pycocotools_reads_it_as_truth_and_as_results(tmp_path: Path, kind: str) -> None:
    coco: Any = pytest.importorskip("pycocotools.coco")
    scorer: Any = pytest.importorskip("pycocotools.cocoeval")
    make = found_in if kind == "segm" else boxes
    write_regions([make("1.jpg"), make("2.jpg")], tmp_path / "out", NAMES)
    truth = coco.COCO(str(tmp_path / "out" / "predictions.json"))
    results = truth.loadRes(truth.dataset["annotations"])
    scores = scorer.COCOeval(truth, results, kind)
    scores.evaluate()
    scores.accumulate()
    scores.summarize()
    assert scores.stats[0] == pytest.approx(1)


def test_masks_are_written_as_pycocotools_writes_them() -> None:
    coco: Any = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(0)
    for _ in range(200):
        mask = rng.random(rng.integers(1, 200, 2)) < rng.random()
        encoded = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert counts_text(encode_mask(mask)) == encoded["counts"].decode()
    wide = np.zeros((7000, 7000), dtype=bool)  # whose runs take the most groups
    wide[0, 0] = wide[100:, 6999] = True
    assert counts_text(encode_mask(wide)) == coco.encode(np.asfortranarray(wide.astype(np.uint8)))["counts"].decode()

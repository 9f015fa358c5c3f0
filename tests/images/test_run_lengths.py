"""Run lengths as COCO's text, against what pycocotools 2.0.11 writes."""

import numpy as np

from tests.cases import every_case
from vitral.images.run_lengths import counts_text, counts_texts, encode_mask, encode_parts, runs_of_text

ROWS, COLUMNS = np.mgrid[:40, :300]
COCO = (
    (
        (ROWS - 20) ** 2 + (COLUMNS - 150) ** 2 < 300,
        "iV57n06K4L4M2N2N2N2O0O2O0O2O000O2O000000000001N10001N101N101N2N2N2N3L4L5JbT5",
    ),
    ((COLUMNS % 7 == 0) & (ROWS > 3), f"4T1d7{'0' * 83}dN"),
    (np.zeros((5, 4), dtype=bool), "d0"),
    (np.ones((5, 4), dtype=bool), "0d0"),
)


def _counted(mask: np.ndarray) -> list[int]:
    """Return run lengths by going through all pixels, one after the other."""
    runs, inside = [0], False
    for pixel in (mask != 0).T.reshape(-1).tolist():
        if pixel != inside:
            runs, inside = [*runs, 0], pixel
        runs[-1] += 1
    return runs


def test_masks_together_are_encoded_as_one_by_one() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        height, width = (int(side) for side in rng.integers(1, 20, 2))
        masks, parts, corners = [], [], []
        for _ in range(int(rng.integers(0, 6))):
            top, left = int(rng.integers(height)), int(rng.integers(width))
            part = (rng.random((height - top, width - left)) < rng.choice([0, 0.1, 0.5, 1])).astype(np.uint8) * 200
            if rng.integers(3) == 0:
                part = part[:0, :0]
            parts.append(part > 0 if rng.integers(2) else part)
            corners.append((top, left))
            mask = np.zeros((height, width), dtype=np.uint8)
            mask[top : top + part.shape[0], left : left + part.shape[1]] = part
            masks.append(mask)
        together = encode_parts(parts, corners, (height, width))
        assert [runs.tolist() for runs in together] == [_counted(mask) for mask in masks]
        assert [encode_mask(mask != 0).tolist() for mask in masks] == [_counted(mask) for mask in masks]
        texts = counts_texts(together)
        assert [runs_of_text(text).tolist() for text in texts] == [_counted(mask) for mask in masks]
        assert texts == [counts_text(runs) for runs in together]


def test_texts_together_are_those_of_coco() -> None:
    assert counts_texts([encode_mask(mask) for mask, _ in COCO]) == [text for _, text in COCO]
    assert counts_texts([]) == []


@every_case(("mask", "text"), COCO, ids=lambda value: value if isinstance(value, str) else "mask")
def test_text_is_that_of_coco(mask: np.ndarray, text: str) -> None:
    assert counts_text(encode_mask(mask)) == text

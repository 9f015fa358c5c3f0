"""Run lengths as COCO's text, against what pycocotools 2.0.11 writes."""

import numpy as np

from tests.cases import every_case
from vitral.images.run_lengths import counts_text, encode_mask

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


@every_case(("mask", "text"), COCO, ids=lambda value: value if isinstance(value, str) else "mask")
def test_text_is_that_of_coco(mask: np.ndarray, text: str) -> None:
    assert counts_text(encode_mask(mask)) == text

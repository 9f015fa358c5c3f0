"""What a classifier finds is drawn by supervision's annotators as supervision's own object is."""

from typing import Any

import numpy as np
import pytest

from tests.classifier.test_predicted_regions import SIZE, instances

pytestmark = pytest.mark.peers

ANNOTATORS = (
    *("BoxAnnotator", "MaskAnnotator", "LabelAnnotator", "PolygonAnnotator", "HaloAnnotator", "EllipseAnnotator"),
    *("BoxCornerAnnotator", "CircleAnnotator", "ColorAnnotator", "DotAnnotator", "PercentageBarAnnotator"),
    *("RoundBoxAnnotator", "TriangleAnnotator", "BlurAnnotator", "PixelateAnnotator"),
)


@pytest.mark.parametrize("name", ANNOTATORS)
def test_supervision_draws_it_as_its_own(name: str) -> None:
    supervision: Any = pytest.importorskip("supervision")
    found = instances()
    theirs = supervision.Detections(
        xyxy=found.xyxy, mask=found.mask, confidence=found.confidence, class_id=found.class_id, data=found.data
    )
    photo = np.random.default_rng(0).integers(0, 255, (*SIZE, 3), dtype=np.uint8)
    annotator = getattr(supervision, name)()
    ours = annotator.annotate(photo.copy(), found)
    assert (ours == annotator.annotate(photo.copy(), theirs)).all()
    assert (ours != photo).any()


def test_places_are_those_of_supervision() -> None:
    supervision: Any = pytest.importorskip("supervision")
    found = instances()
    theirs = supervision.Detections(xyxy=found.xyxy, mask=found.mask)
    for anchor in supervision.Position:
        expected = theirs.get_anchors_coordinates(anchor)
        # Theirs is the mean of the pixels' numbers, rounded down; ours that of their middles.
        apart = 1 if anchor.value == "CENTER_OF_MASS" else 1e-6
        assert np.abs(found.get_anchors_coordinates(anchor) - expected).max() <= apart

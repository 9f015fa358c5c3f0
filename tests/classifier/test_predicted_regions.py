"""What a classifier finds in an image, as a user of Python has it."""

import json

import numpy as np
import pytest

from vitral.classifier.predicted_regions import PredictedRegions
from vitral.errors import ImageError
from vitral.tasks.regions import FoundRegions, Regions

SIZE = (60, 80)
PHOTO = np.full((*SIZE, 3), 90, dtype=np.uint8)


def disc(x: int, y: int, radius: int) -> np.ndarray:
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    return (rows - y) ** 2 + (columns - x) ** 2 < radius**2


def instances() -> PredictedRegions:
    regions = Regions.of_masks(SIZE, [1, 0, 1], [disc(20, 20, 10), disc(50, 30, 15), disc(25, 22, 9)])
    found = FoundRegions(regions, np.array([0.9, 0.8, 0.3]))
    return PredictedRegions("a.jpg", found, ("red", "white"), pixels=lambda: PHOTO)


def test_arrays_have_a_row_for_each_region() -> None:
    found = instances()
    assert found.xyxy.shape == (len(found), 4) == (3, 4)
    assert found.mask is not None
    assert found.mask.shape == (3, *SIZE)
    assert found.labels == found.data["class_name"].tolist() == ["white", "red", "white"]
    assert (found.area == found.mask.sum(axis=(1, 2))).all()
    assert found.counts() == {"red": 1, "white": 2}
    assert [region[3] for region in found] == [1, 0, 1]


def test_sure_regions_are_chosen_as_of_an_array() -> None:
    sure = instances()[instances().confidence > 0.5]
    assert (len(sure), sure.labels, sure.source) == (2, ["white", "red"], "a.jpg")
    assert instances()[instances().confidence > 1].is_empty()


def test_in_the_map_of_classes_the_likeliest_lies_on_top() -> None:
    regions = Regions.of_masks(SIZE, [0, 1], [disc(20, 20, 10), disc(24, 20, 10)])
    found = PredictedRegions("a", FoundRegions(regions, np.array([0.9, 0.8])), ("red", "white"))
    expected = np.where(disc(20, 20, 10), 0, np.where(disc(24, 20, 10), 1, 255))
    assert found.class_map is not None
    assert (found.class_map == expected).all()


def test_json_is_that_of_coco() -> None:
    found = json.loads(json.dumps(instances().to_json()))
    first = found["regions"][0]
    assert (found["height"], found["width"]) == SIZE
    assert first["bbox"] == [11, 11, 19, 19]
    assert (first["label"], first["category_id"], first["score"]) == ("white", 1, 0.9)
    assert first["segmentation"]["size"] == [*SIZE]
    assert first["area"] == disc(20, 20, 10).sum()


def test_boxes_have_no_masks() -> None:
    regions = Regions.of_boxes(SIZE, [0], [[1, 2, 11, 22]])
    found = PredictedRegions("a", FoundRegions(regions, np.array([0.5])), ("cell",))
    assert found.mask is None
    assert found.class_map is None
    assert "segmentation" not in found.to_json()["regions"][0]
    with pytest.raises(ImageError, match="pixels"):
        found.overlay()


def test_a_notebook_shows_the_image_and_what_is_in_it() -> None:
    html = instances()._repr_html_()
    assert "data:image/jpeg" in html
    assert "2 white" in html
    labels = np.where(disc(20, 20, 10), 1, 0)
    found = FoundRegions(Regions.of_map(labels), np.ones(2), labels)
    semantic = PredictedRegions("a", found, ("ground", "cell"), counted=False)
    assert repr(semantic) == "PredictedRegions: a: ground 93.6%, cell 6.4%"

"""Objects by insides and rims in ONNX Runtime: pixel for pixel those of the task, whatever touches, winds or is nowhere."""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.cases import every_case
from tests.exporting.graphs import one, run, session_of
from vitral.exporting.export_regions import likeness
from vitral.exporting.segments import FoundParts
from vitral.images.geometry import Geometry, Resize
from vitral.tasks.components import find_objects

VIEW = 40, 56
CLASSES = 2
RIM, NONE = CLASSES, CLASSES + 1
READING = FoundParts(VIEW, outlined=True)
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def session() -> Any:  # noqa: ANN401
    pytest.importorskip("onnxruntime")
    return session_of(READING, [torch.zeros(2, CLASSES + 2, *VIEW)])


def check(session: Any, logits: Tensor, size: tuple[int, int]) -> list[int]:  # noqa: ANN401
    """Hold a batch against the task, and return how many objects each photo has."""
    outputs = run(session, READING.names, size, logits)
    assert outputs["objects"].shape == (len(logits), *size)
    assert outputs["objects"].dtype == np.int32
    assert outputs["boxes"].dtype == np.float32
    counts = []
    for index, own in enumerate(find_objects(logits, [Geometry(size, (Resize(*VIEW),))] * len(logits))):
        found = READING.found(one(outputs, index), size)
        counts.append(len(found.regions))
        assert len(own.regions) == counts[-1]
        assert likeness(own, found, counted=True) == 1
        assert np.allclose(own.scores, found.scores, atol=1e-5)
        assert (own.regions.classes == found.regions.classes).all()
        assert np.array_equal(outputs["boxes"][index, : counts[-1]], own.regions.boxes)
        assert not outputs["scores"][index, counts[-1] :].any()
    assert outputs["scores"].shape[1] == max(counts)
    return counts


def drawn(labels: np.ndarray) -> Tensor:
    """Return logits that are of these labels, a little surer in each place than in the one before it."""
    sure = 5 + torch.linspace(0, 1, labels.size).reshape(labels.shape)
    shown = functional.one_hot(torch.from_numpy(labels.astype(np.int64)), CLASSES + 2).permute(2, 0, 1)
    return (shown * sure)[None].float()


def noise(rng: np.random.Generator, blur: float) -> np.ndarray:
    smooth = cv2.GaussianBlur(rng.standard_normal(VIEW), (0, 0), blur)
    return smooth / smooth.std()


def spiral() -> np.ndarray:
    labels = np.full(VIEW, NONE, dtype=np.int32)
    for inset in range(0, 18, 4):
        cv2.rectangle(labels, (inset, inset), (55 - inset, 39 - inset), 0, 1)
        labels[inset + 1 : inset + 4, inset + 4] = 0 if inset < 16 else NONE
        labels[inset + 2, inset] = NONE
    return labels


def in_touch() -> np.ndarray:
    """Two objects with a rim of five pixels between them: those in its middle are as near to one as to the other."""
    labels = np.full(VIEW, RIM)
    labels[:, :20], labels[:, 25:], labels[:, -3:] = 0, 1, NONE
    labels[20] = RIM
    return labels


def without_inside() -> np.ndarray:
    labels = np.full(VIEW, NONE)
    labels[3:6, 3:9], labels[20:25, 20:25], labels[22, 22] = RIM, RIM, 1
    return labels


def many() -> np.ndarray:
    labels = np.full(VIEW, NONE)
    labels[::2, ::2] = 1
    return labels


@every_case(
    ("labels", "count"),
    [
        (lambda: np.full(VIEW, NONE), 0),
        (lambda: np.full(VIEW, 0), 1),
        (lambda: np.full(VIEW, RIM), 1),
        (without_inside, 2),
        (many, 560),
        (in_touch, 4),
        (spiral, 1),
    ],
)
def test_drawn_objects_are_found_pixel_for_pixel(session: Any, labels: Callable[[], np.ndarray], count: int) -> None:  # noqa: ANN401
    [found] = check(session, drawn(labels()), VIEW)
    assert found == count


@every_case("blur", [0.6, 1.0, 2.0, 4.0])
def test_seeds_of_all_shapes_grow_to_their_rims_as_opencv_has_it(session: Any, blur: float) -> None:  # noqa: ANN401
    rng = np.random.default_rng(0)
    for limit in (0.3, 0.8, 1.5):
        heights, kinds = noise(rng, blur), noise(rng, 3.0) > 0
        labels = np.where(heights > limit, kinds, np.where(heights > 0, RIM, NONE))
        check(session, drawn(labels), VIEW)


@every_case("size", [(1, 1), (1, 30), (23, 17), (80, 90), (40, 56)])
def test_photos_of_any_size_and_batches_whose_numbers_of_objects_differ(session: Any, size: tuple[int, int]) -> None:  # noqa: ANN401
    draw = torch.Generator().manual_seed(0)
    coarse = torch.randn(3, CLASSES + 2, 7, 9, generator=draw) * 3
    logits = functional.interpolate(coarse, VIEW, mode="bilinear")
    logits[1, NONE] += 100
    counts = check(session, logits, size)
    assert counts[1] == 0
    assert max(counts) > (1 if min(size) > 1 else 0)

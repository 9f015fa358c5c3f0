"""Images that are decoded once and kept: what a view needs of them, the same pixels whoever asks and wherever memory ends."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cases import every_case
from vitral.data import image_cache
from vitral.data.generated import open_digits
from vitral.data.image_cache import CachedImages
from vitral.data.loader import TrainingBatches, load_training
from vitral.data.open import open_data
from vitral.data.source import Source
from vitral.errors import ImageError
from vitral.events import Event, Message
from vitral.images.augment import Augmentation, decoding_factor, kept_shape
from vitral.images.decode import Pixels, Shrink
from vitral.training.methods.method import training_batches
from vitral.training.settings.recipe import Recipe

KEPT = Augmentation(crop="inception", min_area=0.25, decode="kept")
SIZE = (16, 16)
COUNT = 24


def photo(number: int, rows: int, columns: int) -> Pixels:
    """Return a smooth image that is like no other."""
    y, x = np.mgrid[0:rows, 0:columns]
    waves = [np.sin(x / (25 + number) + channel) + np.cos(y / (29 + number) - channel) for channel in range(3)]
    return (127 + 60 * np.stack(waves, axis=2)).astype(np.uint8)


@pytest.fixture(scope="module", params=["jpg", "png"])
def photos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(30):
        path = folder / ("train", "validation")[number >= COUNT] / "ab"[number % 2] / f"{number}.{request.param}"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (150, 200) if number % 3 else (200, 150)
        Image.fromarray(photo(number, *shape)).save(path)
    return folder


def source(folder: Path) -> Source:
    return open_data(str(folder)).splits["train"]


def batches(images: Source, augmentation: Augmentation = KEPT, size: tuple[int, int] = SIZE) -> TrainingBatches:
    return TrainingBatches(images, batch_size=10, image_size=size, augmentation=augmentation, seed=3)


class Counted:
    """A source that counts how often it decodes."""

    def __init__(self, images: Source) -> None:
        self.images, self.asked = images, list[int]()
        self.endless, self.shards = images.endless, images.shards

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        self.asked.append(index)
        return self.images.image(index, shrink)

    def encoded(self, index: int) -> None:
        return

    def label(self, index: int) -> int:
        return 0

    def labels(self) -> np.ndarray:
        return np.zeros(len(self), dtype=np.int64)

    def describe(self, index: int) -> str:
        return str(index)


@every_case(
    ("changes", "shape", "expected"),
    [
        ({"crop": "inception", "min_area": 0.25}, (350, 500), (117, 167)),  # 64 / 0.55
        ({"crop": "inception", "min_area": 0.05}, (500, 350), (304, 213)),
        ({"crop": "resized", "min_area": 0.08}, (350, 500), (155, 221)),  # 64 / sqrt(0.172)
        ({"crop": "resized", "min_area": 1.0}, (350, 500), (64, 91)),
        ({"crop": "square", "margin": 1.25}, (350, 500), (80, 114)),
        ({"crop": "padded"}, (500, 350), (91, 64)),
        ({"crop": "none"}, (350, 500), (64, 91)),
        ({"crop": "inception", "min_area": 0.25}, (117, 200), (117, 200)),
        ({"crop": "padded"}, (32, 32), (32, 32)),
        ({"crop": "padded"}, (64, 64), (64, 64)),
    ],
)
def test_an_image_is_kept_as_large_as_its_views_need(
    changes: dict[str, object], shape: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert kept_shape(shape, dataclasses.replace(KEPT, **changes), (64, 64)) == expected  # type: ignore[arg-type]


@every_case(("shape", "factor"), [((468, 668), 4), ((467, 668), 2), ((233, 400), 1), ((1000, 2000), 8)])
def test_a_jpeg_is_decoded_no_smaller_than_it_is_kept(shape: tuple[int, int], factor: int) -> None:
    assert decoding_factor(shape, (117, 167)) == factor


def test_few_views_are_of_fewer_pixels_than_they_have(photos: Path) -> None:
    images = source(photos)
    for crop in ("inception", "resized"):
        made = batches(images, dataclasses.replace(KEPT, crop=crop), (32, 32))
        boxes = []
        for step in range(20):
            rows = np.arange(10)
            for view in made._views(step, rows, made.indices(step), 0):
                cut = next(part for part in view.geometry.steps if type(part).__name__ == "Crop")
                boxes.append((cut.height * cut.width) ** 0.5)  # type: ignore[attr-defined]
        assert np.mean(np.array(boxes) < 31) < 0.2
        assert min(boxes) > 32 / 1.35
        assert np.median(boxes) < 80


@every_case("crop", ["inception", "resized", "square", "padded", "none"])
def test_views_of_small_images_are_those_of_full_decoding(crop: Any) -> None:  # noqa: ANN401
    digits = open_digits().splits["train"]
    how = dataclasses.replace(KEPT, crop=crop, flip="alternating", rotate=5.0)
    one, other = (batches(digits, dataclasses.replace(how, decode=way), (12, 12)) for way in ("kept", "full"))
    for step in (0, 1, 200, 0):
        assert torch.equal(one.batch(step).images, other.batch(step).images)


@every_case("crop", ["inception", "resized", "square", "padded", "none"])
def test_views_of_large_images_show_the_same(photos: Path, crop: Any) -> None:  # noqa: ANN401
    how = dataclasses.replace(KEPT, crop=crop)
    one, other = (batches(source(photos), dataclasses.replace(how, decode=way)) for way in ("kept", "full"))
    for step in range(3):
        views, others = (made._views(step, np.arange(10), made.indices(step), 0) for made in (one, other))
        for view, full in zip(views, others, strict=True):
            assert float((view.pixels.float() - full.pixels.float()).abs().mean()) < 12.0
            assert view.geometry.original == full.geometry.original
            corners = np.array([[10.0, 20.0], [120.0, 140.0]])
            np.testing.assert_allclose(view.geometry.points(corners), full.geometry.points(corners), atol=1.0)


def test_each_image_is_decoded_once(photos: Path) -> None:
    images = Counted(source(photos))
    made = batches(images)
    made.open()
    probed = len(images.asked)
    for step in range(12):
        made.batch(step)
    assert sorted(images.asked[probed:]) == list(range(COUNT))
    assert probed <= image_cache.PROBES


@pytest.mark.parametrize("limit", [0, 20_000, 1 << 30])
def test_the_pixels_do_not_depend_on_the_memory_nor_on_who_asks_first(photos: Path, limit: int) -> None:
    plenty, images = (CachedImages(source(photos), KEPT, SIZE, limit=size) for size in (1 << 30, limit))
    expected = [plenty.image(index) for index in range(COUNT)]
    for index in (*reversed(range(COUNT)), *range(COUNT)):
        assert np.array_equal(images.image(index), expected[index])
    assert len(plenty) == COUNT
    assert len(images) == {0: 0, 1 << 30: COUNT}.get(limit, len(images))
    assert (0 < len(images) < COUNT) == (limit == 20_000)


def test_an_image_larger_than_those_looked_at_is_decoded_anew() -> None:
    class Odd(Counted):
        def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
            self.asked.append(index)
            return photo(index, 300, 200 if index % 2 else 300)

    images = Odd(open_digits().splits["train"])
    made = CachedImages(images, dataclasses.replace(KEPT, crop="none"), SIZE, limit=1 << 30)
    made.open()  # looks at images 0, 78, 156 ...
    images.asked.clear()
    for _ in range(2):
        assert made.image(1).shape == (24, 16, 3)
        assert made.image(2).shape == (16, 16, 3)
    assert images.asked == [1, 2, 1]


def test_where_sizes_differ_there_is_room_for_larger_images() -> None:
    class Odd(Counted):
        def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
            self.asked.append(index)
            return photo(index, 300, 200 if index == 1 else 250 if index % 2 else 300)

    images = Odd(open_digits().splits["validation"])
    made = CachedImages(images, dataclasses.replace(KEPT, crop="none"), SIZE, limit=1 << 30)
    made.open()  # looks at images 0, 11, 22 ...
    images.asked.clear()
    assert all(made.image(index) is not None for index in (1, 2, 1, 2))
    assert images.asked == [1, 2]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_share_what_is_kept_and_change_nothing(photos: Path, workers: int) -> None:
    alone = [batches(source(photos)).batch(step) for step in range(8)]
    made = batches(source(photos))
    shared = list(load_training(made, first_step=0, last_step=8, workers=workers))
    for one, other in zip(alone, shared, strict=True):
        assert torch.equal(one.images, other.images)
    (images,) = made._images
    assert isinstance(images, CachedImages)
    assert images._ready.sum() == COUNT  # what the workers have decoded is here, too


def test_a_process_that_is_not_forked_keeps_its_own(photos: Path) -> None:
    images = CachedImages(source(photos), KEPT, SIZE)
    before = images.image(5)
    again = pickle.loads(pickle.dumps(images))
    assert len(again) == 0
    assert np.array_equal(again.image(5), before)
    assert len(again) == COUNT


def test_a_kept_image_cannot_be_written_to(photos: Path) -> None:
    images = CachedImages(source(photos), KEPT, SIZE)
    with pytest.raises(ValueError, match="read-only"):
        images.image(0)[:] = 0


def test_too_little_memory_is_said_in_a_line(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_cache, "free_bytes", lambda: 60_000)
    said: list[Event] = []
    recipe = Recipe(batch_size=4)
    made = training_batches(source(photos), recipe, image_size=SIZE, augmentation=KEPT, listener=said.append)
    (line,) = said
    assert isinstance(line, Message)
    assert "of 24; the others are decoded anew each time" in line.text
    assert made.open() == []
    said.clear()
    monkeypatch.undo()
    training_batches(source(photos), recipe, image_size=SIZE, augmentation=KEPT, listener=said.append)
    assert said == []


def test_what_is_decoded_stays_where_neither_size_nor_views_change(photos: Path) -> None:
    made = batches(source(photos))
    assert made.at(SIZE) is made
    assert made.at(SIZE, [KEPT]) is made
    for size, view in (((20, 20), KEPT), (SIZE, Augmentation(decode="kept", flip=False))):
        assert np.array_equal(
            made.at(size, [view]).batch(0).images, batches(source(photos), view, size).batch(0).images
        )
    assert (made.image_size, made.augmentation) == (SIZE, KEPT)


def test_an_image_that_cannot_be_read_is_named_when_it_is_learned_from(tmp_path: Path) -> None:
    class Damaged(Counted):
        def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
            if index == 0:
                raise ImageError("'zero.jpg' is damaged.")
            return super().image(index, shrink)

    images = CachedImages(Damaged(open_digits().splits["train"]), KEPT, (8, 8))
    assert images.open() == []
    assert images.image(1).shape == (8, 8, 3)
    for _ in range(2):
        with pytest.raises(ImageError, match="zero"):
            images.image(0)

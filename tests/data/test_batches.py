"""The batch at a step is a pure function of seed and step, whatever draws it."""

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.cases import every_case
from tests.images.sources import augment
from vitral.data.batch import batch_indices
from vitral.data.generated import open_digits
from vitral.data.loader import TrainingBatches, load_evaluation, load_training
from vitral.data.subset import stratified
from vitral.errors import ImageError
from vitral.images.augment import Augmentation, inception_box
from vitral.images.decode import Pixels, Shrink
from vitral.images.preprocessing import ORIGINAL, PHOTOS


def batches(seed: int = 0) -> TrainingBatches:
    data = open_digits()
    return TrainingBatches(
        data.splits["train"], batch_size=7, image_size=(12, 12), augmentation=data.augmentation, seed=seed
    )


def test_every_epoch_shows_every_example_once() -> None:
    drawn = np.concatenate([batch_indices(10, 4, seed=1, step=step) for step in range(10)])
    assert all(sorted(drawn[start : start + 10]) == list(range(10)) for start in range(0, 40, 10))
    assert not np.array_equal(drawn[:10], drawn[10:20])
    assert np.array_equal(batch_indices(10, 4, seed=1, step=3), drawn[12:16])
    assert Counter(np.concatenate([batch_indices(3, 8, seed=0, step=step) for step in range(3)]).tolist()) == {
        0: 8,
        1: 8,
        2: 8,
    }


@every_case("endless", [False, True])
@every_case("batch_size", [8, 9, 64, 1024])
def test_copies_of_an_image_are_kept_apart_in_a_batch(batch_size: int, endless: bool) -> None:
    """MixUp takes the previous image; 67 % of these were copies of the same one, and mixing did nothing."""
    for step in range(4):
        drawn = batch_indices(
            1 << 40 if endless else 100_000, batch_size, seed=0, step=step, repeats=3, endless=endless
        )
        assert not (drawn == np.roll(drawn, 1)).any()
        assert set(Counter(drawn.tolist()).values()) <= {1, 2, 3}
        assert len(set(drawn.tolist())) <= batch_size // 3 + 2


@every_case("workers", [1, 2])
def test_workers_change_nothing(workers: int) -> None:
    alone = [batches().batch(step) for step in range(5, 12)]
    shared = list(load_training(batches(), first_step=5, last_step=12, workers=workers))
    for one, other in zip(alone, shared, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)


def test_seeds_differ() -> None:
    assert not torch.equal(batches(0).batch(0).images, batches(1).batch(0).images)


def test_evaluation_shows_every_image_once_in_order() -> None:
    source = open_digits().splits["validation"]
    seen = [batch.indices for batch in load_evaluation(source, PHOTOS.with_size(8), batch_size=50, workers=2)]
    assert torch.equal(torch.cat(seen), torch.arange(len(source)))


@pytest.fixture
def spawning() -> Iterator[None]:
    """Worker processes that get all that they need pickled, as on macOS and Windows."""
    kept = multiprocessing.get_start_method()
    multiprocessing.set_start_method("forkserver", force=True)
    yield
    multiprocessing.set_start_method(kept, force=True)


@pytest.mark.usefixtures("spawning")
def test_workers_need_not_be_forked() -> None:
    source = open_digits().splits["validation"]
    seen = [batch.indices for batch in load_evaluation(source, PHOTOS.with_size(8), batch_size=50, workers=1)]
    assert torch.equal(torch.cat(seen), torch.arange(len(source)))
    (batch,) = load_training(batches(), first_step=5, last_step=6, workers=1)
    assert torch.equal(batch.images, batches().batch(5).images)


class Broken:
    """A source whose image 3 cannot be read."""

    endless = False
    shards: tuple[int, ...] = ()

    def __len__(self) -> int:
        return 8

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        if index == 3:
            raise ImageError("'three.jpg' is damaged.")
        return np.zeros((4, 4, 3), dtype=np.uint8)

    def encoded(self, index: int) -> None:
        return

    def label(self, index: int) -> int:
        return 0

    def labels(self) -> np.ndarray:
        return np.zeros(8, dtype=np.int64)

    def describe(self, index: int) -> str:
        return str(index)


@every_case("workers", [0, 2])
def test_an_error_in_a_worker_is_the_same_error(workers: int) -> None:
    others = set(multiprocessing.active_children())
    with pytest.raises(ImageError, match=r"^'three.jpg' is damaged.$"):
        list(load_evaluation(Broken(), PHOTOS.with_size(4), batch_size=2, workers=workers))
    assert not set(multiprocessing.active_children()) - others, "workers end with the error, not with the garbage"


class Photos(Broken):
    """Photos that take a while to prepare, each another grey; it notes who reads them, and by how many threads of torch."""

    def __init__(self) -> None:
        self.readers: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return 40

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        time.sleep(0.01)
        self.readers.append((threading.current_thread().name, torch.get_num_threads()))
        return np.full((64, 48, 3), index, dtype=np.uint8)


def test_threads_prepare_the_photos_that_are_evaluated() -> None:
    source, threads = Photos(), torch.get_num_threads()
    preprocessing = PHOTOS.with_size(8)
    (batch,) = load_evaluation(source, preprocessing, batch_size=40, workers=0)
    assert len({name for name, _ in source.readers}) > 1
    assert {count for _, count in source.readers} == {1}
    assert torch.get_num_threads() == threads
    assert torch.equal(batch.images, torch.stack([preprocessing(source.image(index)) for index in range(40)]))


def test_splits_are_stratified() -> None:
    labels = np.repeat(np.arange(3), (50, 10, 2))
    parts = stratified(labels, (0.1, 0.2), seed=0, purpose="x")
    assert sorted(np.concatenate(parts).tolist()) == list(range(62))
    assert [np.bincount(labels[part], minlength=3).tolist() for part in parts] == [[35, 7, 2], [5, 1, 0], [10, 2, 0]]


def test_the_digits_split_is_fixed() -> None:
    data = open_digits()
    assert {split: len(source) for split, source in data.splits.items()} == {
        "train": 1259,
        "validation": 179,
        "test": 359,
    }
    assert data.fingerprint.startswith("7d8e07273ce1cde2")


def test_preprocessing_is_the_originals() -> None:
    pixels = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    shrunk = ORIGINAL.with_size(2)(pixels)  # half-pixel centres: the mean of four, without rounding
    expected = (pixels[:2, :2].astype(np.float32).mean(axis=(0, 1)) - 127.5) / 127.5
    np.testing.assert_allclose(shrunk[:, 0, 0].numpy(), expected, atol=1e-6)
    again = type(ORIGINAL).from_json(ORIGINAL.to_json())
    assert again == ORIGINAL


def test_a_long_image_costs_little() -> None:
    strip = np.zeros((1, 60_000, 3), dtype=np.uint8)
    assert PHOTOS.with_size(32)(strip).shape == (3, 32, 32)
    view = augment(strip, Augmentation(), size=(16, 16), rng=np.random.default_rng(0)).pixels
    assert view.shape == (3, 16, 16)


def test_inception_boxes_keep_their_bounds() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        top, left, height, width = inception_box((90, 120), 0.2, rng)
        assert 0 <= top <= 90 - height
        assert 0 <= left <= 120 - width
        assert 0.2 * 90 * 120 <= height * width <= 90 * 120
        assert 0.7 < width / height < 1.4

"""Alternating flips: in every second pass over the data an image is mirrored, in the others it is not."""

from collections.abc import Sequence

import numpy as np
import torch

from tests.cases import every_case
from vitral.data.batch import batch_indices, batch_passes
from vitral.data.loader import TrainingBatches
from vitral.images.augment import Augmentation, training_view
from vitral.images.decode import Pixels, Shrink
from vitral.images.geometry import Flip
from vitral.training.settings.recipe import load_recipe

COUNT = 200
FLIPPING = Augmentation(crop="none", flip="alternating")


class Halves:
    """Images whose left half is black and whose right half is white, so that a view shows whether it is mirrored."""

    shards: tuple[int, ...] = ()

    def __init__(self, *, endless: bool = False) -> None:
        self.endless = endless

    def __len__(self) -> int:
        return COUNT

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        pixels = np.zeros((4, 4, 3), dtype=np.uint8)
        pixels[:, 2:] = 255
        return pixels

    def encoded(self, index: int) -> None:
        return

    def label(self, index: int) -> int:
        return 0

    def labels(self) -> np.ndarray:
        return np.zeros(COUNT, dtype=np.int64)

    def describe(self, index: int) -> str:
        return str(index)


def batches(augmentation: Augmentation = FLIPPING, *, size: int = 16, **changes: int) -> TrainingBatches:
    settings = {"seed": 5} | changes
    return TrainingBatches(
        Halves(),
        batch_size=size,
        image_size=(4, 4),
        augmentation=augmentation,
        **settings,  # type: ignore[arg-type]
    )


def mirrored(made: TrainingBatches, steps: Sequence[int]) -> np.ndarray:
    """Return (index, whether it is mirrored) of each image of some batches, in order."""
    seen = [made.batch(step) for step in steps]
    flips = torch.cat([batch.images[:, 0, 0, 0] == 255 for batch in seen])
    return np.stack([torch.cat([batch.indices for batch in seen]).numpy(), flips.numpy()], axis=1)


def passes(made: TrainingBatches, number: int) -> list[np.ndarray]:
    """Return of each pass which images were mirrored, by index."""
    size = made.batch_size
    rows = mirrored(made, range(-(-number * COUNT // size)))[: number * COUNT]
    return [part[np.argsort(part[:, 0]), 1] for part in np.split(rows, number)]


@every_case("size", [16, 64, 450])  # one holds the end of a pass and the start of the next, one whole passes
def test_over_two_passes_every_image_is_seen_once_each_way(size: int) -> None:
    first, second, third, fourth = passes(batches(size=size), 4)
    assert np.array_equal(first, 1 - second)
    assert np.array_equal(first, third)
    assert np.array_equal(second, fourth)
    assert 0.4 * COUNT < first.sum() < 0.6 * COUNT


def test_the_first_way_is_drawn_by_image_and_seed_alone() -> None:
    (first,) = passes(batches(), 1)
    assert np.array_equal(first, passes(batches(size=25), 1)[0])
    assert not np.array_equal(first, passes(batches(seed=6), 1)[0])


def test_processes_share_a_batch_as_one_has_it() -> None:
    alone = mirrored(batches(), range(9, 30))
    parts = [mirrored(batches(rank=rank, world=2), range(9, 30)).reshape(21, 8, 2) for rank in range(2)]
    assert np.array_equal(alone, np.concatenate(parts, axis=1).reshape(-1, 2))


def test_a_second_view_of_an_image_alternates_too_by_a_draw_of_its_own() -> None:
    made = TrainingBatches(
        Halves(), batch_size=COUNT, image_size=(4, 4), augmentation=FLIPPING, more=(FLIPPING,), seed=5
    )
    (first,), (second,) = made.batch(0).more, made.batch(1).more
    order = [torch.argsort(made.batch(step).indices) for step in (0, 1)]
    ways = [view[:, 0, 0, 0][rows] == 255 for view, rows in zip((first, second), order, strict=True)]
    assert torch.equal(ways[0], ~ways[1])
    assert not torch.equal(ways[0], made.batch(0).images[:, 0, 0, 0][order[0]] == 255)


def test_images_without_end_are_mirrored_by_their_own_draw() -> None:
    made = TrainingBatches(Halves(endless=True), batch_size=64, image_size=(4, 4), augmentation=FLIPPING, seed=5)
    ways = dict(mirrored(made, range(20)).tolist())
    assert len(ways) > 0.9 * COUNT
    assert all(ways[index] == way for index, way in mirrored(made, range(20)).tolist())


@every_case("repeats", [1, 3])
def test_a_row_belongs_to_the_pass_that_its_index_was_drawn_from(repeats: int) -> None:
    for step in range(12):
        numbers = batch_passes(10, 4, step=step, repeats=repeats)
        positions = [step * 4 + row for row in range(4)]
        assert sorted(numbers.tolist()) == [position // 10 for position in positions]
        if repeats == 1:
            indices = batch_indices(10, 4, seed=1, step=step)
            alone = [batch_indices(10, 1, seed=1, step=position)[0] for position in positions]
            assert indices.tolist() == alone


@every_case("way", [True, False])
def test_geometry_and_pixels_say_the_same(way: bool) -> None:
    draws = np.random.default_rng(0)
    view = training_view(lambda _: Halves().image(0), FLIPPING, size=(4, 4), rng=draws, mirrored=way)
    assert bool(view.pixels[0, 0, 0] == 255) == way
    assert view.geometry.steps == ((Flip(),) if way else ())


def test_a_recipe_takes_the_word_and_keeps_it() -> None:
    recipe = load_recipe("vit-b16-jft300m", ["augmentation.flip=alternating"])
    assert recipe.augmentation is not None
    assert recipe.augmentation.flip == "alternating"
    assert 'flip = "alternating"' in recipe.to_toml()

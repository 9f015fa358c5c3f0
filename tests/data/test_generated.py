"""VisualAtom against its renderer written out as a loop, and what a source of training images must keep."""

import pickle

import cv2
import numpy as np
import pytest

from tests.cases import every_case
from vitral.data.generated import (
    INSTANCES,
    PRESETS,
    VALIDATION_START,
    Atom,
    GeneratedImages,
    Ranges,
    atom,
    contours,
    noise_table,
    open_generated,
    render,
)
from vitral.data.loader import TrainingBatches, load_training
from vitral.data.source import Source

MINI = "visualatom-mini"


@pytest.fixture(scope="module")
def train() -> Source:
    return open_generated(MINI).splits["train"]


def released_renderer(shape: Atom, centre: tuple[float, float], noise: np.ndarray) -> np.ndarray:
    """Move the corners orbit by orbit, as the formula of render_VisualAtom.py says."""
    corners = np.empty((shape.orbits, shape.vertices, 2))
    n1, n2 = shape.frequencies
    for i in range(shape.vertices):
        t = 2 * np.pi * i / shape.vertices
        wave = 0.5 * np.sin(n1 * t) + 0.5 * np.sin(n2 * t)
        x = centre[0] + shape.radius * shape.ellipse[0] * np.cos(t)
        y = centre[1] + shape.radius * shape.ellipse[1] * np.sin(t)
        for k in range(shape.orbits):
            noise_x = shape.noise * noise[0, k, i] - shape.noise - wave
            noise_y = shape.noise * noise[1, k, i] - shape.noise - wave
            x -= np.cos(t) * (noise_x - shape.increment)
            y -= np.sin(t) * (noise_y - shape.increment)
            corners[k, i] = x, y
    return corners


@every_case("index", [0, 3, 8])
def test_closed_form_is_the_released_renderer(index: int) -> None:
    shape = atom(Ranges(), 0, index)
    noise = np.random.default_rng(index).choice(noise_table(), (2, shape.orbits, shape.vertices))
    expected = released_renderer(shape, (200.5, 17.25), noise)
    np.testing.assert_allclose(contours(shape, (200.5, 17.25), noise), expected, rtol=1e-5, atol=0.01)


def test_omitted_orbits_do_not_move_the_others() -> None:
    shape = Atom(vertices=90, orbits=24, noise=2.0, increment=0.1, radius=30, frequencies=(3, 5), ellipse=(1.0, 1.5))
    every = contours(shape, (256, 256), np.zeros((2, 24, 90), np.float32))
    sparse = contours(shape, (256, 256), np.zeros((2, 3, 90), np.float32), step=8)
    np.testing.assert_allclose(sparse, every[7::8], rtol=1e-5)


def test_noise_has_the_perlin_marginal() -> None:
    noise = noise_table()
    assert noise.shape == (65_536,)
    assert abs(noise.mean()) < 0.01
    assert noise.std() == pytest.approx(0.492, abs=0.005)
    assert np.quantile(np.abs(noise), 0.99) == pytest.approx(1.34, abs=0.03)
    assert np.abs(noise).max() <= 1.6


@every_case("name", PRESETS)
def test_classes_keep_within_their_ranges(name: str) -> None:
    ranges = PRESETS[name].ranges
    shapes = [atom(ranges, 0, index) for index in range(200)]
    for field in ("vertices", "orbits", "noise", "increment", "radius"):
        low, high = getattr(ranges, field)
        values = [getattr(shape, field) for shape in shapes]
        assert low <= min(values) < low + 0.1 * (high - low)
        assert high >= max(values) > high - 0.1 * (high - low)
    low, high = ranges.frequency
    assert {n for shape in shapes for n in shape.frequencies} == set(range(low, high + 1))
    assert all(first != second or first == 0 for first, second in (shape.frequencies for shape in shapes))
    assert all(1 <= stretch <= 2 for shape in shapes for stretch in shape.ellipse)


def test_classes_depend_only_on_seed_and_number() -> None:
    assert atom(Ranges(), 0, 5) == atom(Ranges(), 0, 5)
    assert len({atom(Ranges(), seed, index) for seed in (0, 1) for index in range(50)}) == 100


def test_images_are_as_bright_as_the_released_ones() -> None:
    large = np.stack([render(Ranges(), 0, index, 0, 512) for index in range(60)])
    small = np.stack([render(Ranges(), 0, index, 0, 224) for index in range(60)]) / 255
    assert (large > 0).mean() == pytest.approx(0.31, abs=0.06)
    assert small.mean() == pytest.approx(0.194, abs=0.04)
    assert small.std() == pytest.approx(0.304, abs=0.03)


def test_a_smaller_canvas_shows_the_same_image() -> None:
    images = [render(Ranges(), 0, 3, 1, canvas).astype(np.float32) for canvas in (512, 256)]
    large, small = (cv2.resize(drawn, (32, 32), interpolation=cv2.INTER_AREA) for drawn in images)
    assert np.corrcoef(large.ravel(), small.ravel())[0, 1] > 0.9


def test_the_last_orbit_lies_on_top_and_lines_are_one_pixel_wide() -> None:
    ranges = Ranges(vertices=(720, 720), orbits=(1, 1), noise=(0, 0), frequency=(0, 0), radius=(60, 60), centre=0.0)
    drawn = render(ranges, 0, 0, 0, 512)
    levels = np.unique(drawn)
    assert levels[0] == 0
    assert len(levels) == 2
    lit_columns = np.flatnonzero(drawn[256])
    assert len(lit_columns) in (2, 3)


def test_grey_levels_keep_within_their_range() -> None:
    drawn = render(Ranges(orbits=(20, 20), grey=(96, 100)), 0, 0, 0, 128)
    assert set(np.unique(drawn).tolist()) == {0, 96, 97, 98, 99, 100}


def test_images_differ_within_a_class_and_repeat_by_index(train: Source) -> None:
    classes = PRESETS[MINI].num_classes
    first, second = train.image(7), train.image(7 + classes)
    assert train.label(7) == train.label(7 + classes) == 7
    assert not np.array_equal(first, second)
    assert np.array_equal(first, open_generated(MINI).splits["train"].image(7))
    assert first.dtype == np.uint8
    assert first.shape == (PRESETS[MINI].canvas, PRESETS[MINI].canvas, 3)
    assert np.array_equal(first[:, :, 0], first[:, :, 2])
    assert not np.array_equal(first, open_generated(MINI, seed=1).splits["train"].image(7))


def test_training_never_shows_a_validation_image() -> None:
    data = open_generated(MINI)
    validation = data.splits["validation"]
    assert isinstance(validation, GeneratedImages)
    assert validation.first_instance == VALIDATION_START >= INSTANCES
    assert not validation.endless
    assert len(validation.labels()) == len(validation)
    assert validation.labels().tolist() == [validation.label(index) for index in range(len(validation))]
    assert not np.array_equal(validation.image(0), data.splits["train"].image(0))


def test_an_endless_source_is_indexable_to_its_end(train: Source) -> None:
    assert train.endless
    assert 2**40 < len(train) < 2**62
    assert train.image(len(train) - 1).any()
    last_class = PRESETS[MINI].num_classes - 1
    assert train.describe(len(train) - 1) == f"{MINI}[class {last_class}, instance {INSTANCES - 1}]"
    assert len(open_generated("visualatom-21k").class_names) == 21_000
    assert open_generated("visualatom").class_names[12] == "atom-012"


def test_fingerprint_tells_seed_and_preset_apart() -> None:
    prints = {open_generated(name, seed=seed).fingerprint for name in PRESETS for seed in (0, 1)}
    assert len(prints) == 2 * len(PRESETS)


def test_pickling_carries_parameters_only(train: Source) -> None:
    packed = pickle.dumps(train)
    assert len(packed) < 2_000
    assert np.array_equal(pickle.loads(packed).image(11), train.image(11))


def test_batches_are_the_same_for_any_number_of_workers(train: Source) -> None:
    batches = TrainingBatches(train, batch_size=8, image_size=(32, 32), augmentation=PRESETS[MINI].augmentation, seed=3)
    alone = list(load_training(batches, first_step=0, last_step=4, workers=0))
    shared = list(load_training(batches, first_step=0, last_step=4, workers=2))
    for ours, theirs in zip(alone, shared, strict=True):
        assert ours.images.equal(theirs.images)
        assert ours.labels.tolist() == [train.label(int(index)) for index in theirs.indices]

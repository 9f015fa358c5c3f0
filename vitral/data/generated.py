"""Built-in images: real ones, scikit-learn's 1,797 handwritten digits of 8x8 pixels, and those that are made here without end.

Made are VisualAtom's, labelled, to pre-train on without a large dataset, and black ones. A VisualAtom image is a stack of
closed contours around one centre, each an ellipse whose radius swings with two sine waves and is roughened by noise; a class is
one choice of these parameters, and each image of it draws new noise, a new centre and new grey levels. Source: Takashima et
al., CVPR 2023 (arXiv 2303.01112), after its released renderer (render_VisualAtom.py), in closed form.
"""

import functools
import hashlib
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32, Int64, UInt8

from vitral.data.source import DataSet, PixelSource
from vitral.data.subset import stratified
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.seeds import generator
from vitral.tasks.unlabelled import CLASS, UNLABELLED

SPLIT_SEED = 0  # fixed, so that every test score is on the same images
SHARES = (0.1, 0.2)  # validation, test
# A mirrored digit is not a digit, so the images are shifted, rotated and scaled a little instead of being flipped.
AUGMENTATION = Augmentation(crop="none", flip=False, shift=0.1, rotate=12.0, scale=0.15)
CANVAS = 512  # pixels: the side that every length below refers to
INSTANCES = 1 << 40
VALIDATION_START = 1 << 41  # instances from here on are never trained on
VALIDATION_INSTANCES = 2
NOISE_SAMPLES = 65_536
EPOCH_INSTANCES = 1_000  # per class, as in the released datasets (the paper's 1k and 21k)
BLANK = "blank"
BLANK_SIDE = 8  # pixels
BLANK_EPOCH = 100_000  # images that count as an epoch, in which a recipe may give its length


class DigitSource(PixelSource):
    """A split of the digits."""

    def __init__(
        self, pixels: UInt8[np.ndarray, "count 8 8"], labels: Int64[np.ndarray, " count"], rows: np.ndarray
    ) -> None:
        self._pixels = pixels[rows]
        self._labels = labels[rows]
        self._rows = rows

    def __len__(self) -> int:
        return len(self._labels)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as three equal channels, bright strokes on black."""
        return np.repeat(self._pixels[index][:, :, None], 3, axis=2)

    def label(self, index: int) -> int:
        """Return the digit."""
        return int(self._labels[index])

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return all digits in order."""
        return self._labels

    def describe(self, index: int) -> str:
        """Return the image's index in scikit-learn's order, such as "digits[17]"."""
        return f"digits[{self._rows[index]}]"


def open_digits() -> DataSet:
    """Return the digits: about 1,257 to train on, 180 to validate and 360 to test, stratified by class."""
    from sklearn.datasets import load_digits  # two seconds of start-up, for this dataset alone

    loaded = load_digits()
    pixels = np.rint(loaded.images * (255 / 16)).astype(np.uint8)
    labels = loaded.target.astype(np.int64)
    train, validation, test = stratified(labels, SHARES, seed=SPLIT_SEED, purpose="digits")
    rows = {"train": train, "validation": validation, "test": test}
    digest = hashlib.sha256(pixels.tobytes() + labels.tobytes() + np.concatenate([train, validation, test]).tobytes())
    return DataSet(
        name="digits",
        class_names=tuple(str(digit) for digit in range(10)),
        splits={name: DigitSource(pixels, labels, indices) for name, indices in rows.items()},
        augmentation=AUGMENTATION,
        fingerprint=digest.hexdigest(),
    )


@dataclass(frozen=True)
class Ranges:
    """The ranges that a class draws its parameters from, each uniformly; lengths are pixels on a canvas of 512.

    Attributes:
        vertices: The number of corners of a contour (q).
        orbits: The number of contours of an image (K).
        noise: The strength of the noise (eta).
        increment: The growth of an orbit (w).
        radius: The radius of the innermost ellipse (R).
        frequency: The frequency of the two waves (n1, n2).
        ellipse: The stretch along each axis (ox, oy).
        centre: The fraction of the canvas, around its middle, in which an image's centre lies.
        grey: The level of a contour, 0 to 255, drawn for each image.
        orbit_step: The step from one orbit that is drawn to the next; on a small canvas all of them would cover one
            another.
    """

    vertices: tuple[int, int] = (200, 1000)
    orbits: tuple[int, int] = (1, 200)
    noise: tuple[float, float] = (0.0, 4.0)
    increment: tuple[float, float] = (0.0, 0.1)
    radius: tuple[int, int] = (10, 60)
    frequency: tuple[int, int] = (0, 20)
    ellipse: tuple[float, float] = (1.0, 2.0)
    centre: float = 1.0
    grey: tuple[int, int] = (0, 255)
    orbit_step: int = 1


@dataclass(frozen=True)
class Preset:
    """A named dataset: the number of classes, their ranges, and the side of the canvas in pixels."""

    num_classes: int
    ranges: Ranges
    canvas: int
    augmentation: Augmentation


CROPPED = Augmentation(crop="inception", min_area=0.25, flip=False)
PRESETS = {
    "visualatom": Preset(1_000, Ranges(), CANVAS, CROPPED),
    "visualatom-21k": Preset(21_000, Ranges(), CANVAS, CROPPED),
    # For models with inputs of 16 to 32 pixels: few bold contours around the middle, thousands of images per second.
    "visualatom-mini": Preset(
        100,
        Ranges(
            vertices=(40, 80),
            orbits=(64, 200),
            noise=(0.0, 0.6),
            radius=(20, 90),
            frequency=(0, 6),
            centre=0.1,
            orbit_step=32,
            grey=(96, 255),
        ),
        16,
        Augmentation(crop="none", flip=False, shift=0.1, rotate=12.0, scale=0.15),
    ),
}


@dataclass(frozen=True)
class Atom:
    """One class's parameters."""

    vertices: int
    orbits: int
    noise: float
    increment: float
    radius: int
    frequencies: tuple[int, int]
    ellipse: tuple[float, float]


@functools.lru_cache(maxsize=32_768)
def atom(ranges: Ranges, seed: int, index: int) -> Atom:
    """Return the parameters of class `index`, a pure function of the arguments."""
    rng = generator(seed, "visualatom/class", index)
    first, second = rng.integers(*ranges.frequency, size=2, endpoint=True)
    while first == second and first != 0:  # equal waves would only add up to a larger one
        first, second = rng.integers(*ranges.frequency, size=2, endpoint=True)
    return Atom(
        vertices=int(rng.integers(*ranges.vertices, endpoint=True)),
        orbits=int(rng.integers(*ranges.orbits, endpoint=True)),
        noise=rng.uniform(*ranges.noise),
        increment=rng.uniform(*ranges.increment),
        radius=int(rng.integers(*ranges.radius, endpoint=True)),
        frequencies=(int(first), int(second)),
        ellipse=(rng.uniform(*ranges.ellipse), rng.uniform(*ranges.ellipse)),
    )


def contours(
    shape: Atom, centre: tuple[float, float], noise: Float32[np.ndarray, "2 orbits vertices"], *, step: int = 1
) -> Float32[np.ndarray, "orbits vertices 2"]:
    """Return the corners (x, y) of all contours, pixels on a canvas of 512.

    The released renderer moves each corner outwards orbit by orbit; the sum of its moves after k orbits is k times their
    constant part less the cumulated noise. With `step` above 1 only every `step`-th orbit is returned, the noise of those
    between summed up as one draw of the same variance.
    """
    angle = np.linspace(0, 2 * np.pi, shape.vertices, endpoint=False, dtype=np.float32)
    first, second = shape.frequencies
    wave = 0.5 * np.sin(first * angle) + 0.5 * np.sin(second * angle)
    orbit = np.arange(step, step * noise.shape[1] + 1, step, dtype=np.float32)[:, None]
    grown = orbit * (shape.noise + shape.increment + wave)
    rough = np.cumsum(noise, axis=1, dtype=np.float32) * np.float32(shape.noise * step**0.5)
    corners = np.empty((noise.shape[1], shape.vertices, 2), dtype=np.float32)
    for axis, direction in enumerate((np.cos(angle), np.sin(angle))):
        start = shape.radius * shape.ellipse[axis]
        corners[:, :, axis] = centre[axis] + direction * (start + grown - rough[axis])
    return corners


def render(ranges: Ranges, seed: int, class_index: int, instance: int, canvas: int) -> UInt8[np.ndarray, "side side"]:
    """Return a grey image, `canvas` pixels a side: lines one pixel wide on black, later orbits over earlier ones."""
    shape = atom(ranges, seed, class_index)
    rng = generator(seed, "visualatom/picture", class_index, instance)  # codespell:ignore picture
    margin = CANVAS * (1 - ranges.centre) / 2
    centre = tuple(rng.uniform(margin, CANVAS - margin, 2).tolist())
    orbits = max(1, shape.orbits // ranges.orbit_step)
    greys = rng.integers(*ranges.grey, orbits, endpoint=True)
    samples = rng.integers(0, NOISE_SAMPLES, (2, orbits, shape.vertices), dtype=np.uint16)
    corners = contours(shape, centre, noise_table()[samples], step=ranges.orbit_step)
    corners = np.rint(corners * np.float32(canvas / CANVAS)).astype(np.int32)
    drawn = np.zeros((canvas, canvas), dtype=np.uint8)
    for corner, grey in zip(corners, greys.tolist(), strict=True):
        cv2.polylines(drawn, [corner], isClosed=True, color=grey)
    return drawn


@functools.cache
def noise_table() -> Float32[np.ndarray, " samples"]:
    """Return samples of one-dimensional Perlin noise at independent positions, as the renderer draws for every corner.

    Gradients are integers from 1 to 8 of either sign at integer positions; the noise between two of them is blended with
    6t^5 - 15t^4 + 10t^3 and scaled by 0.4.
    """
    rng = generator(0, "visualatom/noise")
    hashes = rng.integers(0, 16, (2, NOISE_SAMPLES))
    gradients = ((hashes & 7) + 1) * np.where(hashes & 8, -1, 1)
    position = rng.random(NOISE_SAMPLES)
    blend = position**3 * (position * (position * 6 - 15) + 10)
    left, right = gradients[0] * position, gradients[1] * (position - 1)
    return (0.4 * (left + blend * (right - left))).astype(np.float32)


@dataclass(eq=False)
class GeneratedImages(PixelSource):
    """A split of generated images: index i is instance i // classes of class i % classes."""

    name: str
    seed: int
    first_instance: int
    instances: int
    endless: bool

    @property
    def preset(self) -> Preset:
        """The preset."""
        return PRESETS[self.name]

    def __len__(self) -> int:
        return self.preset.num_classes * self.instances

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image as three equal channels."""
        grey = render(self.preset.ranges, self.seed, self.label(index), self._instance(index), self.preset.canvas)
        return np.repeat(grey[:, :, None], 3, axis=2)

    def label(self, index: int) -> int:
        """Return the class of an image."""
        return index % self.preset.num_classes

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes of all images of a finite split."""
        return np.arange(len(self), dtype=np.int64) % self.preset.num_classes

    def describe(self, index: int) -> str:
        """Return class and instance, such as "visualatom[class 12, instance 7]"."""
        return f"{self.name}[class {self.label(index)}, instance {self._instance(index)}]"

    def _instance(self, index: int) -> int:
        return self.first_instance + index // self.preset.num_classes


def open_generated(name: str, *, seed: int = 0) -> DataSet:
    """Return a preset's endless training split, and a validation split of images that training never shows."""
    preset = PRESETS[name]
    train = GeneratedImages(name, seed=seed, first_instance=0, instances=INSTANCES, endless=True)
    validation = GeneratedImages(
        name, seed=seed, first_instance=VALIDATION_START, instances=VALIDATION_INSTANCES, endless=False
    )
    digits = len(str(preset.num_classes - 1))
    return DataSet(
        name=name,
        class_names=tuple(f"atom-{index:0{digits}}" for index in range(preset.num_classes)),
        splits={"train": train, "validation": validation},
        augmentation=preset.augmentation,
        fingerprint=hashlib.sha256(f"{preset} {seed}".encode()).hexdigest(),
        endless_epoch=preset.num_classes * EPOCH_INSTANCES,
    )


class BlankImages(PixelSource):
    """A split of black images."""

    endless = True

    def __len__(self) -> int:
        return BLANK_EPOCH

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return a black image."""
        return np.zeros((BLANK_SIDE, BLANK_SIDE, 3), dtype=np.uint8)

    def label(self, index: int) -> None:
        """Return that there is none."""
        return

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return -1 for each."""
        return np.full(BLANK_EPOCH, -1)

    def describe(self, index: int) -> str:
        """Return its name."""
        return f"{BLANK}[{index}]"


def open_blank() -> DataSet:
    """Return the dataset, of one endless split."""
    return DataSet(
        name=BLANK,
        class_names=(CLASS,),
        splits={"train": BlankImages()},
        augmentation=Augmentation(crop="none", flip=False),
        fingerprint=BLANK,
        task=UNLABELLED,
        endless_epoch=BLANK_EPOCH,
    )

"""The built-in real dataset: scikit-learn's 1,797 handwritten digits, 8x8 pixels, with a fixed stratified split."""

import hashlib

import numpy as np
from jaxtyping import Int64, UInt8

from vitral.data.source import DataSet, PixelSource
from vitral.data.splits import stratified
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink

SPLIT_SEED = 0  # fixed, so that every test score is on the same images
SHARES = (0.1, 0.2)  # validation, test
# A mirrored digit is not a digit, so the images are shifted, rotated and scaled a little instead of being flipped.
AUGMENTATION = Augmentation(crop="none", flip=False, shift=0.1, rotate=12.0, scale=0.15)


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

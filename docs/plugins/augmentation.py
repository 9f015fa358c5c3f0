"""Channels in a random order, as a policy of recipes: --plugin augmentation.py --set augmentation.policy=channel-shuffle."""

import numpy as np

import vitral


def channel_shuffle(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an image, uint8 (height, width, 3), with its channels in another order for half of the images.

    All chance comes from `rng`, so that a run that is killed and resumed sees the same images.
    """
    if rng.random() < 0.5:
        return image
    return np.ascontiguousarray(image[:, :, rng.permutation(3)])


vitral.register("augmentation", "channel-shuffle", channel_shuffle)

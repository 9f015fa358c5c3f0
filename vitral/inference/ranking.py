"""The most probable classes, ranked in the same way everywhere; and the check that values are finite."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vitral.errors import ModelError


def rank(probabilities: Float[np.ndarray, " classes"], top: int) -> list[tuple[int, float]]:
    """Return the `top` most probable classes with their probabilities, highest first; ties in the order of the classes.

    All classes if there are fewer than `top`.

    Raises:
        ModelError: `top` is below 1.
    """
    if top < 1:
        raise ModelError(f"At least one class must be shown, not {top}; set top to 1 or more.")
    order = np.argsort(-probabilities, kind="stable")[:top]
    return list(zip(order.tolist(), probabilities[order].tolist(), strict=True))


def check_finite(values: Float[np.ndarray, "images classes"], names: Sequence[str]) -> None:
    """Refuse the output of a network with damaged weights.

    Raises:
        ModelError: A value is not finite; the message names the first such image.
    """
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(broken):
        raise ModelError(
            f"The network gives no number (NaN) for '{names[int(broken[0])]}': its weights are damaged, or its training "
            "diverged; load an earlier checkpoint."
        )

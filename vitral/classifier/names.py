"""Class names, as files hold them."""

from typing import Any

from vitral.described import fits
from vitral.errors import VitralError


def read_class_names(described: Any) -> list[str]:  # noqa: ANN401  # a JSON value
    """Return class names in order.

    Raises:
        VitralError: they are no list of texts.
    """
    if not fits(list[str], described):
        raise VitralError("its class_names are no list of names in UTF-8.")
    return list(described)

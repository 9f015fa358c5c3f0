"""What a server takes from its clients at most, and who may ask it."""

import ipaddress
from dataclasses import dataclass

from vitral.advice import argument
from vitral.errors import VitralError

MIB = 1 << 20
LARGEST_BODY = 20_000_000  # bytes of a request, unless the user names another limit
DEADLINE_SECONDS = 30.0  # in which a request is answered or refused, likewise
BODY_SECONDS = 30.0  # in which a request's body must have come
HEADER_SECONDS = 10.0  # in which its headers must have come
MOST_IMAGES = 64  # in a request
MOST_CLASSES = 1000  # that an answer names for an image
HELD_BYTES = 512 * MIB  # of all bodies together, and again of all prepared images that wait
DRAIN_SECONDS = 25.0  # in which accepted requests are answered after a termination; Kubernetes kills after 30
LOOPBACK_NAMES = ("localhost",)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request may cost.

    Attributes:
        deadline: Seconds from its arrival in which it is answered or refused; a client may only ask for less.
        max_bytes: Bytes of its body.
    """

    deadline: float = DEADLINE_SECONDS
    max_bytes: int = LARGEST_BODY


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


def check_reach(host: str, token: str | None, *, open: bool) -> None:
    """Refuse to let other machines in without a token, unless the user wants that.

    Raises:
        VitralError: They would be let in; or the token is no text that a header can hold.
    """
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise VitralError("A token is of printable ASCII characters without spaces around it; choose another.")
    if token is None and not open and not is_loopback(host):
        raise VitralError(
            f"Everybody who reaches {host} could use the classifier: set {argument('token')}, or allow that with "
            f"{argument('open', True)}."
        )

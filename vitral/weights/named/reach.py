"""Whether published weights can be fetched now: is there a network, and may it be used."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from time import monotonic
from urllib.parse import urlsplit

from huggingface_hub import constants
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

from vitral.advice import argument
from vitral.weights.named.row import PublishedWeights

ANSWER_SECONDS = 3.0  # that a server may take to answer before it counts as out of reach


def switched_off() -> str:
    """Return what a message says where nothing may be fetched."""
    return f"fetching is switched off (by {argument('offline', True)} or HF_HUB_OFFLINE)"


def host(row: PublishedWeights) -> str:
    """Return the name of the server that a row's file comes from: the authors', the Hub or its mirror."""
    return str(urlsplit(row.address or constants.ENDPOINT).hostname)


def may_fetch() -> bool:
    """Tell whether anything may be fetched: HF_HUB_OFFLINE forbids it."""
    return not constants.HF_HUB_OFFLINE


class _Switch:
    """Holds the Hub's client offline while anyone wants it so; several threads may."""

    def __init__(self) -> None:
        self._lock, self._wanted, self._before = Lock(), 0, False

    def off(self) -> None:
        with self._lock:
            if not self._wanted:
                self._before = constants.HF_HUB_OFFLINE
            self._wanted += 1
            constants.HF_HUB_OFFLINE = True

    def on(self) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                constants.HF_HUB_OFFLINE = self._before


_switch = _Switch()


@contextmanager
def without_network(offline: bool) -> Iterator[None]:
    """Forbid, while the block lasts, to fetch weights and anything else from the Hub, as HF_HUB_OFFLINE does.

    It holds for the whole process: other threads fetch nothing meanwhile either.

    Args:
        offline: whether to do so; with False nothing is touched.
    """
    if not offline:
        yield
        return
    _switch.off()
    try:
        yield
    finally:
        _switch.on()


def answering(listed: Iterable[PublishedWeights]) -> frozenset[str]:
    """Return which of the servers of some rows answer, whatever they say; each is asked once, all at the same time.

    A name that cannot be resolved is known in milliseconds; whatever is slower than `ANSWER_SECONDS` counts as out of reach.
    Nobody waits longer, also where looking up a name hangs, which no time limit of a request covers.
    """
    if not may_fetch():
        return frozenset()
    addresses = {host(row): row.link if row.address else constants.ENDPOINT for row in listed}
    answered: set[str] = set()
    asking = [Thread(target=_ask, args=(name, address, answered), daemon=True) for name, address in addresses.items()]
    for thread in asking:
        thread.start()
    ends = monotonic() + ANSWER_SECONDS
    for thread in asking:
        thread.join(max(ends - monotonic(), 0.0))
    return frozenset(answered)


def _ask(name: str, address: str, answered: set[str]) -> None:
    try:
        get_session().head(address, timeout=ANSWER_SECONDS, follow_redirects=False)
    except Exception:  # whatever keeps an answer from coming
        return
    answered.add(name)

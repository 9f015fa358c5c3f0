"""The names of starts to compare: what was typed, each checked before any work, and what "auto" stands for."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from vitral.advice import argument
from vitral.classifier.load import refuse_unknown
from vitral.errors import StudyError
from vitral.events import Listener, Message
from vitral.training.planning.published_start import is_free
from vitral.weights.named.fetch import kept
from vitral.weights.named.reach import SWITCHED_OFF, answering, host, may_fetch
from vitral.weights.named.row import PublishedWeights, rows

AUTO = "auto"
LARGEST_MEGABYTES = 100  # of a file that is fetched without being named
LARGEST_SIZE = 256  # pixels, beyond which an image costs several times as much as the others'
NO_NETWORK = "no network answers"


def read_names(asked: str | Sequence[str | Path], listener: Listener) -> tuple[str, ...]:
    """Return the names of the starts, each once, in the order in which they were typed.

    Args:
        asked: with commas between them, or in a list; "auto" stands for several.
        listener: hears that no network answers, where "auto" would have been more with one.

    Raises:
        WeightsError: one means nothing; the message proposes the nearest name.
        StudyError: there is none.
    """
    parts = asked.split(",") if isinstance(asked, str) else map(str, asked)
    typed = dict.fromkeys(part.strip() for part in parts if part.strip())
    for name in typed:
        if name != AUTO:
            refuse_unknown(name)
    if not typed:
        raise StudyError(f"{argument('starts')} names no start; name some with commas between them, or '{AUTO}'.")
    if AUTO not in typed:
        return tuple(typed)
    automatic, missing = _automatic()
    named = dict.fromkeys(one for name in typed for one in (automatic if name == AUTO else (name,)))
    if not named:
        raise StudyError(
            f"'{AUTO}' means published weights, of which this machine has none that may be used in products, and {missing}; "
            "name files or folders."
        )
    if missing == NO_NETWORK:
        listener(
            Message(f"No network answers, so '{AUTO}' means only the published weights on this machine.", warning=True)
        )
    return tuple(named)


def _automatic() -> tuple[list[str], str]:
    """Return what "auto" stands for now, and why that is nothing but what is here, if so; the network is asked once."""
    listed = list(rows().values())
    cached = {row.name for row in listed if kept(row) is not None}
    every = automatic_names(listed, cached)
    if cached.issuperset(every):
        return every, ""
    reached = answering(row for row in listed if _worth_fetching(row) and row.name not in cached)
    near = [row for row in listed if row.name in cached or host(row) in reached]
    return automatic_names(near, cached), "" if reached else NO_NETWORK if may_fetch() else SWITCHED_OFF


def automatic_names(listed: Iterable[PublishedWeights], cached: Collection[str]) -> list[str]:
    """Return which starts to compare where none is named: those that are here, and those that are worth a download.

    None that is not for products is among them. The latter are small, and free as what a run begins with unasked, and of each
    kind of published score the best in whole points, since two kinds cannot be compared, and a tenth of a point says nothing
    of other images.

    Args:
        listed: published weights that are here or can be fetched.
        cached: the names of those on this machine.
    """
    every = list(listed)
    here = [row.name for row in every if row.name in cached and row.products != "no"]
    best: dict[str, PublishedWeights] = {}
    for row in every:
        if _worth_fetching(row) and (row.metric not in best or _score(row) > _score(best[row.metric])):
            best[row.metric] = row
    return list(dict.fromkeys([*here, *(row.name for row in best.values())]))


def _worth_fetching(row: PublishedWeights) -> bool:
    return is_free(row) and row.megabytes <= LARGEST_MEGABYTES and row.image_size <= LARGEST_SIZE


def _score(row: PublishedWeights) -> int:
    return round(row.score or 0.0)

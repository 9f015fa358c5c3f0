"""The names of starts to compare: those that the user gave, each checked before any work, and those that "auto" stands for."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from vitral.advice import argument
from vitral.classifier.load import refuse_unknown
from vitral.errors import StudyError
from vitral.events import Listener, Message
from vitral.training.starting.published_start import is_free
from vitral.weights.named.fetch import kept
from vitral.weights.named.reach import answering, host, may_fetch, switched_off
from vitral.weights.named.row import PublishedWeights, rows

AUTO = "auto"
LARGEST_MEGABYTES = 100  # of a file that is fetched without being named
LARGEST_SIZE = 256  # pixels, beyond which an image costs several times as much as the others'
NO_NETWORK = "no network answers"


def read_names(starts: str | Sequence[str | Path], listener: Listener) -> tuple[str, ...]:
    """Return the names of the starts, each once, in the order given.

    Args:
        starts: The names, in a list or with commas between them; "auto" stands for several.
        listener: Receives a warning if no network answers and "auto" therefore stands for less.

    Raises:
        WeightsError: A name is unknown; the message proposes the nearest.
        StudyError: There is no name.
    """
    parts = starts.split(",") if isinstance(starts, str) else map(str, starts)
    given = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for name in given:
        if name != AUTO:
            refuse_unknown(name)
    if not given:
        raise StudyError(f"{argument('starts')} names no start; name some with commas between them, or '{AUTO}'.")
    if AUTO not in given:
        return tuple(given)
    automatic, missing = _automatic()
    place = given.index(AUTO)
    names = tuple(dict.fromkeys([*given[:place], *automatic, *given[place + 1 :]]))
    if not names:
        raise StudyError(
            f"'{AUTO}' means published weights, of which this machine has none that may be used in products, and {missing}; "
            "name files or folders."
        )
    if missing == NO_NETWORK:
        listener(
            Message(f"No network answers, so '{AUTO}' means only the published weights on this machine.", warning=True)
        )
    return names


def _automatic() -> tuple[list[str], str]:
    """Return the names that "auto" stands for now, and why weights that are not here are missing, if so."""
    listed = list(rows().values())
    cached = {row.name for row in listed if kept(row) is not None}
    every = automatic_names(listed, cached)
    if cached.issuperset(every):
        return every, ""
    reached = answering(row for row in listed if _worth_fetching(row) and row.name not in cached)
    near = [row for row in listed if row.name in cached or host(row) in reached]
    return automatic_names(near, cached), "" if reached else NO_NETWORK if may_fetch() else switched_off()


def automatic_names(listed: Iterable[PublishedWeights], cached: Collection[str]) -> list[str]:
    """Return the starts to compare if none is named: those that are here, and those that are worth a download.

    All may be used in products. Those to download are small and free, and the best of each kind of published score in whole
    points: two kinds cannot be compared, and a tenth of a point says nothing of other images.

    Args:
        listed: The published weights that are here or can be fetched.
        cached: The names of those on this machine.
    """
    every = list(listed)
    here = [row.name for row in every if row.name in cached and row.products != "no"]
    best: dict[str, PublishedWeights] = {}
    for row in filter(_worth_fetching, every):
        if row.metric not in best or round(row.score or 0.0) > round(best[row.metric].score or 0.0):
            best[row.metric] = row
    return list(dict.fromkeys([*here, *(row.name for row in best.values())]))


def _worth_fetching(row: PublishedWeights) -> bool:
    return is_free(row) and row.megabytes <= LARGEST_MEGABYTES and row.image_size <= LARGEST_SIZE

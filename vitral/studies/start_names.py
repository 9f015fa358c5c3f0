"""The names of starts to compare: what was typed, each checked before any work, and what "auto" stands for."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from huggingface_hub import constants

from vitral.advice import argument
from vitral.classifier.load import refuse_unknown
from vitral.errors import StudyError
from vitral.weights.named.fetch import kept
from vitral.weights.named.row import Row, rows

AUTO = "auto"
LARGEST_MEGABYTES = 100  # of a file that is fetched without being named
LARGEST_SIZE = 256  # pixels, beyond which an image costs several times as much as the others'


def read_names(asked: str | Sequence[str | Path]) -> tuple[str, ...]:
    """Return the names of the starts, each once, in the order in which they were typed.

    Args:
        asked: with commas between them, or in a list; "auto" stands for several.

    Raises:
        WeightsError: one means nothing; the message proposes the nearest name.
        StudyError: there is none.
    """
    parts = asked.split(",") if isinstance(asked, str) else map(str, asked)
    typed = dict.fromkeys(part.strip() for part in parts if part.strip())
    for name in typed:
        if name != AUTO:
            refuse_unknown(name)
    named = dict.fromkeys(one for name in typed for one in (_automatic() if name == AUTO else (name,)))
    if not typed:
        raise StudyError(f"{argument('starts')} names no start; name some with commas between them, or '{AUTO}'.")
    if not named:
        raise StudyError(
            f"'{AUTO}' means published weights, of which none are on this machine, and HF_HUB_OFFLINE forbids fetching any; "
            "name files or folders."
        )
    return tuple(named)


def _automatic() -> list[str]:
    cached = {name for name, row in rows().items() if kept(row) is not None}
    return automatic_names(rows().values(), cached, online=not constants.HF_HUB_OFFLINE)


def automatic_names(listed: Iterable[Row], cached: Collection[str], *, online: bool) -> list[str]:
    """Return which starts to compare where none is named: those that are here, and those that are worth a download.

    None that is not for products is among them. The latter are small and free, and of each kind of published score the best
    in whole points, since two kinds cannot be compared, and a tenth of a point says nothing of other images.

    Args:
        listed: published weights.
        cached: the names of those on this machine.
        online: whether others may be fetched.
    """
    every = list(listed)
    here = [row.name for row in every if row.name in cached and row.products != "no"]
    best: dict[str, Row] = {}
    for row in every if online else ():
        if _worth_fetching(row) and (row.metric not in best or _score(row) > _score(best[row.metric])):
            best[row.metric] = row
    return list(dict.fromkeys([*here, *(row.name for row in best.values())]))


def _worth_fetching(row: Row) -> bool:
    small = row.megabytes <= LARGEST_MEGABYTES and row.image_size <= LARGEST_SIZE
    return small and row.products == "yes" and row.score is not None


def _score(row: Row) -> int:
    return round(row.score or 0.0)

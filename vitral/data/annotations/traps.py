"""`Trap`: what misleads in annotations, with the file that has it and how often; said in one line a kind."""

from collections.abc import Iterable
from dataclasses import dataclass

from vitral.advice import counted


@dataclass(frozen=True)
class Trap:
    """Something in annotations that misleads whoever trusts it.

    Attributes:
        kind: What it is and what becomes of it, in the plural: "boxes without width or height, left out".
        file: The file that has it, as it is named below the data's folder.
        count: How often the file has it.
    """

    kind: str
    file: str
    count: int = 1


def said(traps: Iterable[Trap]) -> list[str]:
    """Return one line for each kind of trap: what it is, how many there are, in how many files, and the first of these."""
    by_kind: dict[str, list[Trap]] = {}
    for trap in traps:
        by_kind.setdefault(trap.kind, []).append(trap)
    return [
        f"{kind}: {sum(trap.count for trap in found):,} in {counted(len({trap.file for trap in found}), 'file')}, "
        f"such as '{found[0].file}'."
        for kind, found in by_kind.items()
    ]

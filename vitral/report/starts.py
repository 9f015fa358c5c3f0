"""Starts side by side on the user's own images: what was found of each, which one to take, and the table of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitral.report.written import markdown_lines
from vitral.tasks.shown import NO_VALUE

JSON_FILE, TABLE_FILE = "starts.json", "starts.md"
KIND = "vitral-starts"
TITLE = "# Starts compared on "
MARKS = {JSON_FILE: f'"kind": "{KIND}"'.encode(), TABLE_FILE: TITLE.encode()}  # of files of ours, which may be replaced
COLUMNS = ("start", "accuracy", "95 %", "ms/image", "seconds", "parameters", "MB", "licence")
PIXELS = "pixels alone"  # the row that every start has to beat
NOTHING = (
    "None of them is proposed: random features say little of what training reaches, and a start that has learned from the "
    "images that judge it, nothing of what it is worth."
)


@dataclass(frozen=True)
class StartRow:
    """One start.

    Attributes:
        name: as it was asked for.
        accuracy: of the linear probe, 0 to 1; None where there is none.
        low: the lower end of its 95 % interval.
        high: the upper end.
        image_seconds: that the features of an image took, reading it included.
        seconds: that the whole probe took, from loading the start.
        parameters: of the network, its head included.
        megabytes: of its file, in units of 10^6 bytes; None for random weights.
        licence: of the published weights that it is or was trained from; empty where it is not known.
        products: whether these may be used in products; see `vitral.weights.named.row`.
        weights: "trained", "random" or "none".
        problem: why there is no accuracy, in one line; empty if there is one.
        remarks: what else must be known, one line each.
    """

    name: str
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    image_seconds: float | None = None
    seconds: float | None = None
    parameters: int | None = None
    megabytes: float | None = None
    licence: str = ""
    products: str = ""
    weights: str = "trained"
    problem: str = ""
    remarks: tuple[str, ...] = ()

    def cells(self) -> list[str]:
        """Return the row as texts, in the order of `COLUMNS`."""
        known = self.accuracy is not None and self.low is not None and self.high is not None
        return [
            self.name,
            f"{self.accuracy:.1%}" if known else NO_VALUE,
            f"{self.low:.1%} to {self.high:.1%}" if known else NO_VALUE,
            NO_VALUE if self.image_seconds is None else f"{1000 * self.image_seconds:,.1f}",
            NO_VALUE if self.seconds is None else f"{self.seconds:,.1f}",
            NO_VALUE if self.parameters is None else f"{self.parameters:,}",
            NO_VALUE if self.megabytes is None else f"{self.megabytes:,.{0 if self.megabytes >= 10 else 2}f}",
            self.licence or NO_VALUE,
        ]

    def lines(self) -> list[str]:
        """Return what is said of it below the table."""
        return [*([self.reason()] if self.problem else []), *(f"{self.name}: {remark}" for remark in self.remarks)]

    def reason(self) -> str:
        """Return why there is no accuracy, with the name."""
        return (
            f"Not compared: {self.problem}"
            if self.name in self.problem
            else f"{self.name} is not compared: {self.problem}"
        )


@dataclass(frozen=True, repr=False)
class StartTable:
    """Starts compared on the same images.

    Attributes:
        data: the dataset's name.
        rows: the most accurate first; those without an accuracy last.
        train_images: on which each probe was fitted.
        judging_images: that judged them all.
        split: which those are: "validation", or "training", each left out of the fit that judged it.
        best: the name of the start to take; empty if there is none.
        tied: the names of those that cannot be told from the most accurate one, `best` among them.
        beats_pixels: whether `best` is surely better than a linear model on pixels; None if that is not known.
        next: what one would type to train from it; empty without a `best`.
    """

    data: str
    rows: tuple[StartRow, ...]
    train_images: int
    judging_images: int
    split: str
    best: str = ""
    tied: tuple[str, ...] = ()
    beats_pixels: bool | None = None
    next: str = ""

    def __repr__(self) -> str:
        """Return in one line what was compared; `print` shows the table."""
        return f"StartTable: {len(self.rows)} rows on {self.data}, {f'{self.best} is best' if self.best else 'none to take'}"

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return self.markdown()

    def row(self, name: str) -> StartRow:
        """Return the row of a start."""
        return next(row for row in self.rows if row.name == name)

    def judged(self) -> str:
        """Return by what the starts were compared, in one sentence."""
        out = ", each left out of the fit that judges it" if self.split == "training" else ""
        return (
            f"Linear probes in closed form, fitted on {self.train_images:,} training images, judged by the same "
            f"{self.judging_images:,} {self.split} images{out}."
        )

    def verdict(self) -> list[str]:
        """Return which start to take and why, one line each."""
        others = [name for name in self.tied if name != self.best]
        if not self.best:
            return [NOTHING]
        if others:
            lines = [
                f"{_listed([self.best, *others])} are a tie: these images cannot tell them apart. {self.best} is proposed: the "
                "fastest, or the most accurate of those about as fast."
            ]
        else:
            lines = [f"{self.best} is the best start for these images."]
        if self.beats_pixels is False:
            lines.append(
                "It is not surely better here than a linear model on the pixels: expect little from its features."
            )
        return lines

    def remarks(self) -> list[str]:
        """Return what is said of single rows, one line each."""
        return [line for row in self.rows for line in row.lines()]

    def cells(self, best: str = "* {}") -> list[list[str]]:
        """Return the rows as texts; `best` is how the name of the start to take is marked."""
        every = (row.cells() for row in self.rows)
        return [[best.format(name) if name == self.best else name, *rest] for name, *rest in every]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        rows = [{**asdict(row), "best": row.name == self.best, "tied": row.name in self.tied} for row in self.rows]
        return {"kind": KIND, **asdict(self), "rows": rows}

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rows = markdown_lines(COLUMNS, self.cells("**{}**"), texts=("licence",))
        proposed = ["", f"    {self.next}"] if self.next else []
        remarks = [f"- {line}" for line in self.remarks()]
        parts = [f"{TITLE}{self.data}", "", self.judged(), "", *rows, "", *self.verdict(), *proposed]
        return "\n".join([*parts, *(["", *remarks] if remarks else []), ""])


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"

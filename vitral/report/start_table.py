"""Starts side by side on the user's own images: what was found of each, which one to take, and the table of it."""

from dataclasses import asdict, dataclass
from typing import Any

from vitral.report.written import markdown_lines
from vitral.tasks.shown import NO_VALUE, Presentable, number_text, photos_of

JSON_FILE = "starts.json"
TABLE_FILE = "starts.md"
KIND = "vitral-starts"
TITLE = "# Starts compared on "
MARKS = {JSON_FILE: f'"kind": "{KIND}"'.encode(), TABLE_FILE: TITLE.encode()}  # of our own files, which may be replaced
COLUMNS = ("start", "accuracy", "95%", "ms/image", "seconds", "parameters", "MB", "licence")
PIXELS = "pixels alone"  # the row that every start has to beat
NOTHING = (
    "None of them is recommended: random weights say little of what training reaches, and a start that was trained on the "
    "photos that score it says nothing of what it is worth."
)
TIE = (
    "{} and {} are a tie: these photos cannot tell them apart. {} is recommended: the fastest, or the most accurate of those "
    "about as fast."
)
NOT_SURE = "It is not surely better here than a linear model on the pixels: expect little from its features."


@dataclass(frozen=True)
class StartRow:
    """One start.

    Attributes:
        accuracy: The accuracy of the linear probe, 0 to 1; None without a probe.
        low: The lower end of the accuracy's 95 % interval.
        image_seconds: Seconds for the features of one image, reading included.
        seconds: Seconds for the whole probe, loading the start included.
        megabytes: The size of its file, in units of 10^6 bytes; None for random weights.
        licence: The licence of the published weights that it is or was trained from; empty if unknown.
        products: Whether these may be used in products; see `vitral.weights.named.table`.
        weights: "trained", "random" or "none".
        problem: The reason why there is no accuracy, in one line; empty if there is one.
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
        interval = NO_VALUE if self.low is None or self.high is None else f"{self.low:.1%} to {self.high:.1%}"
        milliseconds = None if self.image_seconds is None else 1000 * self.image_seconds
        return [
            self.name,
            number_text(self.accuracy, ".1%"),
            interval,
            number_text(milliseconds, ",.1f"),
            number_text(self.seconds, ",.1f"),
            number_text(self.parameters),
            number_text(self.megabytes, ",.0f" if (self.megabytes or 0) >= 10 else ",.2f"),
            self.licence or NO_VALUE,
        ]

    def reason(self) -> str:
        """Return why there is no accuracy, with the name."""
        known = self.name in self.problem
        return f"Not compared: {self.problem}" if known else f"{self.name} is not compared: {self.problem}"


@dataclass(frozen=True, repr=False)
class StartTable(Presentable):
    """Starts compared on the same images.

    Attributes:
        rows: The starts, the most accurate first and those without an accuracy last.
        judging_images: The number of images that judged them all.
        split: The split of these: "validation", or "training", each left out of the fit that judged it.
        best: The name of the start to take; empty if there is none.
        tied: The names of those that cannot be told from the most accurate one, `best` among them.
        beats_pixels: Whether `best` is surely better than a linear model on pixels; None if unknown.
        next: The call or command that trains from it; empty without a `best`.
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

    def sentence(self) -> str:
        """Return in one line what was compared; `print` shows the table."""
        return f"{len(self.rows)} rows on {self.data}, {f'{self.best} is best' if self.best else 'none is recommended'}"

    def __str__(self) -> str:
        """Return the table as Markdown."""
        return self.markdown()

    def row(self, name: str) -> StartRow:
        """Return the row of a start."""
        return next(row for row in self.rows if row.name == name)

    def judged(self) -> str:
        """Return in one sentence how the starts were compared."""
        out = ", each left out of the fit that scores it" if self.split == "training" else ""
        return (
            f"Linear probes in closed form, fitted on {photos_of('train', self.train_images)}, scored on the same "
            f"{photos_of(self.split, self.judging_images)}{out}."
        )

    def verdict(self) -> list[str]:
        """Return which start to take and why, one line each."""
        if not self.best:
            return [NOTHING]
        *tied, last = [self.best, *(name for name in self.tied if name != self.best)]
        decided = (
            TIE.format(", ".join(tied), last, self.best) if tied else f"{self.best} is the best start for these photos."
        )
        return [decided] if self.beats_pixels is not False else [decided, NOT_SURE]

    def remarks(self) -> list[str]:
        """Return the remarks on single rows, one line each."""
        lines = []
        for row in self.rows:
            lines += [row.reason()] if row.problem else []
            lines += [f"{row.name}: {remark}" for remark in row.remarks]
        return lines

    def cells(self, best: str = "* {}") -> list[list[str]]:
        """Return the rows as texts; `best` is the pattern that marks the name of the start to take."""
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

"""The page of a data check: the dataset's content, and what should be fixed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from vitral.files import write_file
from vitral.images.decode import Pixels
from vitral.outputs import check_file
from vitral.printable import printable
from vitral.report.images import inline
from vitral.report.page import LARGEST_SHEET, mark, page_environment

MOST_LISTED = 200  # groups or images in a table; all are in the JSON
MOST_OF_GROUP = 12  # names per group of duplicates
LARGEST_THUMBNAIL = 112  # pixels of the longer side


class Checked(Protocol):
    """What the page needs of a data check; see `vitral.checks.findings.DataCheck`."""

    @property
    def name(self) -> str:
        """The dataset's name."""
        ...

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Images by split and class."""
        ...

    @property
    def sheet(self) -> bytes:
        """A contact sheet, PNG."""
        ...

    @property
    def thumbnails(self) -> Mapping[tuple[str, str], Pixels]:
        """Small images by split and name."""
        ...

    def problems(self) -> list[str]:
        """What should be fixed."""
        ...


def write_check_page(
    check: Checked, facts: Sequence[tuple[str, str]], path: Path, *, near: int, overwrite: bool = False
) -> None:
    """Write a data check as one HTML file.

    Args:
        check: what was found.
        facts: sizes, formats and statistics as pairs of name and value.
        path: the file.
        near: bits in which near duplicates may differ.
        overwrite: whether to replace a file that is not such a page.

    Raises:
        StorageError: the file cannot be written, or exists and is not such a page.
    """
    check_file(path, mark=mark("check"), overwrite=overwrite)
    environment, style = page_environment()
    page = environment.get_template("check.html").render(
        kind="check",
        check=check,
        style=style,
        facts=facts,
        problems=check.problems(),
        total=sum(count for counts in check.counts.values() for count in counts.values()),
        sheet=inline(check.sheet, largest=LARGEST_SHEET) if check.sheet else None,
        most=MOST_LISTED,
        most_of_group=MOST_OF_GROUP,
        thumbnails={key: inline(image, largest=LARGEST_THUMBNAIL) for key, image in check.thumbnails.items()},
        near=near,
    )
    write_file(path, printable(page, lines=True))

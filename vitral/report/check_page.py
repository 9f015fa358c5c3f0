"""The page of a data check: the dataset's content, and what should be fixed."""

from collections.abc import Sequence
from pathlib import Path

from vitral.checks.findings import DataCheck
from vitral.files import write_file
from vitral.outputs import check_file
from vitral.report.images import inline
from vitral.report.page import LARGEST_SHEET, mark, render_page

MOST_LISTED = 200  # groups or images in a table; all are in the JSON
MOST_OF_GROUP = 12  # names per group of duplicates
LARGEST_THUMBNAIL = 112  # pixels of the longer side


def write_check_page(
    check: DataCheck, facts: Sequence[tuple[str, str]], path: Path, *, near: int, overwrite: bool = False
) -> None:
    """Write a data check as one HTML file.

    Args:
        check: The data check.
        facts: Sizes, formats and statistics as pairs of name and value.
        path: The file.
        near: Bits in which near duplicates may differ.
        overwrite: Whether to replace a file that is not such a page.

    Raises:
        StorageError: The file cannot be written, or exists and is not such a page.
    """
    check_file(path, mark=mark("check"), overwrite=overwrite)
    page = render_page(
        "check.html",
        "check",
        check=check,
        facts=facts,
        problems=check.problems(),
        total=sum(count for counts in check.counts.values() for count in counts.values()),
        sheet=inline(check.sheet, largest=LARGEST_SHEET) if check.sheet else None,
        most=MOST_LISTED,
        most_of_group=MOST_OF_GROUP,
        thumbnails={key: inline(image, largest=LARGEST_THUMBNAIL) for key, image in check.thumbnails.items()},
        near=near,
    )
    write_file(path, page)

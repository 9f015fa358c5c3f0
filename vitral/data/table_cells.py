"""What the cells of a table say where the names of its columns do not: images, labels with a column each, boxes.

A column of yes and no for each label (1 and 0, true and false, 1 and -1, x and nothing) stands for a column of classes.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vitral.data.names import some
from vitral.data.stored import UNREAD
from vitral.errors import DataError
from vitral.images.decode import EXTENSIONS

YES = {"1", "true", "yes", "x"}
NO = {"0", "-1", "false", "no", ""}
MISSING = {"", "nan", "<na>", "#n/a"}  # what pandas and spreadsheets write for nothing
UNKNOWN_NUMBER = -1  # of a class, in test splits of Hugging Face's datasets
FEWEST_OF_CLASS = 2  # images, on average, where no name says that a column holds classes
CHOICES = '{"choices":'  # how a cell of several labels begins in Label Studio's tables
FEWEST_LABELS = 2  # columns of yes and no: a single one may be anything
Cells = Callable[[str], Sequence[Any]]  # of a column


def is_given(cell: Any) -> bool:  # noqa: ANN401  # a cell of any type
    """Tell whether a cell is filled in: not empty, null or NaN."""
    return cell is not None and cell == cell and (not isinstance(cell, str) or cell.strip().lower() not in MISSING)


def cell_text(cell: object) -> str:
    """Return a cell as text, "" for a null or NaN."""
    return "" if cell is None or cell != cell else str(cell).strip()


def image_by_cells(names: Sequence[str], cells: Cells) -> str | None:
    """Return the only column whose cells all end like image files."""
    found = [
        name
        for name in names
        if (written := list(filter(is_given, cells(name))))
        and all(isinstance(cell, str) and cell.strip().lower().endswith(EXTENSIONS) for cell in written)
    ]
    return found[0] if len(found) == 1 else None


def label_columns(title: str, names: Sequence[str], cells: Cells) -> tuple[str, ...]:
    """Return which columns of a table are labels, with yes or no in each row; none if there are fewer than two.

    Raises:
        DataError: a column of text beside them may name the classes.
    """
    values = {name: {_said(cell) for cell in cells(name)} for name in names}
    labels = tuple(name for name in names if _is_label(values[name]))
    if len(labels) < FEWEST_LABELS:
        return ()
    texts = [
        name
        for name in names
        if name not in labels and not all(map(_is_number, values[name])) and len(values[name]) < len(cells(name))
    ]
    if texts:
        raise DataError(
            f"'{title}' has columns of 0 and 1 ({some(labels)}) and of text ({some(texts)}): name the one of classes 'label', "
            "or remove those that are no labels."
        )
    return labels


def marked(row: Mapping[str, Any], labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels with a yes in a row; unknown ones where all cells are empty."""
    said = {label: _said(row[label]) for label in labels}
    return tuple(label.strip() for label in labels if said[label] in YES) if any(said.values()) else UNREAD


def is_no(cell: Any) -> bool:  # noqa: ANN401  # a cell of any type
    """Tell whether a cell says no."""
    return is_given(cell) and _said(cell) in NO


def is_yes(cell: Any) -> bool:  # noqa: ANN401  # a cell of any type
    """Tell whether a cell says yes."""
    return _said(cell) in YES


def are_verdicts(cells: Sequence[Any]) -> bool:
    """Tell whether all cells of a column say yes or no."""
    return all(_said(cell) in YES | NO for cell in cells)


def are_classes(cells: Sequence[Any]) -> bool:
    """Tell whether the cells of a column may be classes: names or whole numbers, most of which occur several times."""
    written = [cell_text(cell) for cell in cells if is_given(cell)]
    whole = all("." not in cell or not _is_number(cell) for cell in written)
    return whole and 1 < len({*written}) <= len(written) / FEWEST_OF_CLASS


def class_names(value: Any, declared: Sequence[str] | None, where: str) -> tuple[str, ...]:  # noqa: ANN401  # a cell
    """Return the names of a cell's class or classes: a name, a number among declared names, or a list of either.

    The number -1 is that of no known class.

    Raises:
        DataError: a number beyond the declared names.
    """
    if isinstance(value, list | tuple):
        return tuple(name for item in value for name in class_names(item, declared, where))
    if isinstance(value, str) and value.lstrip().startswith(CHOICES):
        return _choices(value)
    if declared is not None and isinstance(value, int):
        if value == UNKNOWN_NUMBER:
            return UNREAD
        if not 0 <= value < len(declared):
            raise DataError(f"'{where}' has the class number {value}, but declares only {len(declared)} names.")
        return (declared[value],)
    return (str(value).strip(),)


def _choices(text: str) -> tuple[str, ...]:
    """Return the labels in a cell of Label Studio's; the text itself where it is something else."""
    try:
        return tuple(str(name) for name in json.loads(text)["choices"])
    except (ValueError, TypeError):
        return (text.strip(),)


def _said(cell: Any) -> str:  # noqa: ANN401  # a cell of any type
    """Return a cell as text, whole numbers without a point, and nothing for one that is not filled in."""
    text = cell_text(cell).lower()
    number = text.removesuffix(".0")
    return number if number in ("0", "1", "-1") else text


def _is_label(values: set[str]) -> bool:
    return bool(values - {""}) and values <= YES | NO and not {"0", "-1"} <= values


def _is_number(text: str) -> bool:
    try:
        return not text or math.isfinite(float(text))
    except ValueError:
        return False

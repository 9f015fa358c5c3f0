"""CSV files and plain lists of images as rows of cells: with column names or without, whatever separates the cells.

| kind | line |
|---|---|
| .csv, .tsv with column names | as in `vitral.data.columns`; cells between commas, semicolons, tabs, bars or spaces |
| .csv, .tsv without | image and class in either order, with train, val or test in a further column if there is one |
| .txt | image and class, separated by a tab, a comma or spaces; or only the image, whose folder is its class |

The csv module reads them: Arrow's reader refuses a whole table for a row of more or fewer cells, and counts rows instead of
lines. Such rows are left out, and said. Numbers in a .txt file are line numbers, from 0, of a classes.txt next to it, if there
is one. Text that is not in Unicode is read in the encoding of the country's spreadsheets that fits it, and said.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from vitral.advice import counted
from vitral.data.archive_names import OF_TABLES, decode_names
from vitral.data.bad_images import are_few
from vitral.data.batch import evenly
from vitral.data.columns import CLASSES, IMAGES, known_column
from vitral.data.find_images import TRIED, ImageFinder
from vitral.data.names import names_beside, some, split_named
from vitral.errors import DataError, one_line
from vitral.images.decode import EXTENSIONS
from vitral.paths import POINTER, is_pointer, look_at, nearest_path, refuse_endless

LIST_SUFFIX = ".txt"
DELIMITERS = (",", ";", "\t")
BAR = "|"  # separates cells where nothing else does: it may stand between labels, too
SPREADSHEET = re.compile(r'"?sep=(.)"?\r?\n?')  # a first line by which spreadsheets are told what separates cells
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the beginnings of such files
BETWEEN = re.compile(rb"[,;|\t\r\n\"]+")  # cells
IMAGE = "image"  # a column's name in a table without names
LABEL = "label"  # the same for classes
PART = "split"  # the same for splits
LONGEST_SHOWN = 30  # characters of words by which an encoding is shown


class Line(NamedTuple):
    """A row of a text table: the number of its line in the file, from 1, and its cells."""

    number: int
    cells: list[str]


Wrong = list[tuple[int, str]]  # the numbers of lines, and what is wrong with each


class Sheet(NamedTuple):
    """A text table: rows of as many cells as it has columns, others, and a line on an encoding that is not Unicode."""

    names: list[str]
    lines: list[Line]
    uneven: Wrong
    note: str

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        index = self.names.index(name)
        return [line.cells[index].strip() for line in self.lines]


def listed_classes(table: Path) -> set[str]:
    """Return the classes in a text file that is a list of existing images with a class each, but for a few lines; else none."""
    try:
        finder = ImageFinder(table)
        sheet = read_sheet(table, finder)
        if not {IMAGE, LABEL} <= {*sheet.names} or not finder.count(sheet.column(IMAGE)):
            return set()
    except DataError:
        return set()
    labels = sheet.column(LABEL)
    return {*labels} - {""} if are_few(labels.count(""), len(labels)) else set()


def names_images(table: Path) -> bool:
    """Tell whether most lines of a text file hold the name of an image file."""
    try:
        lines = [line for line in read_text(table)[0].splitlines()[:TRIED] if line.strip()]
    except DataError:
        return False
    named = [line for line in lines if any(part.lower().endswith(EXTENSIONS) for part in re.split(r"[\s,;]+", line))]
    return 2 * len(named) > len(lines)


def read_sheet(table: Path, finder: ImageFinder) -> Sheet:
    """Return a text table; the columns of one without names are "image", "label" and "split", by what is in them.

    Raises:
        DataError: it cannot be read, or it is unclear which column is the class.
    """
    text, note = read_text(table)
    lines = list(io.StringIO(text, newline=""))
    told = SPREADSHEET.fullmatch(lines[0]) if lines else None
    skipped = 1 if told else 0
    listed = table.suffix.lower() == LIST_SUFFIX
    mark = told[1] if told else "\t" if table.suffix.lower() == ".tsv" else _delimiter(lines)
    try:
        if '\\"' in text and mark is not None:
            lines = _with_doubled_quotes(lines, mark)
        rows = _rows(lines[skipped:], mark, skipped, listed=listed)
    except csv.Error as error:
        raise _unreadable(table, error) from error
    if not rows:
        return Sheet([IMAGE, LABEL] if listed else [""], [], [], note)
    rows = _without_count(rows)
    if _is_header(rows, finder, sure=listed or mark is None):
        names = [cell.strip() for cell in rows[0].cells]
        joined = (mark or " ") if known_column(names, CLASSES) == names[-1] else None
        even, uneven = _of_width(rows[1:], len(names), joined, filled=True)
        return Sheet(names, even, uneven, note)
    uneven = []
    if not listed and mark is not None:
        width = Counter(len(row.cells) for row in rows).most_common(1)[0][0]
        rows, uneven = _of_width(rows, width, None, filled=False)
    texts = [lines[row.number - 1].strip() for row in rows] if listed or mark is None else []
    names, even = _unnamed(table, rows, finder, texts, spaced=mark is None)
    return Sheet(names, even, uneven, note)


def read_text(table: Path) -> tuple[str, str]:
    """Return the text of a file, and a note on how it is encoded; no note for Unicode.

    Raises:
        DataError: it cannot be read, or may be in several encodings or in none.
    """
    refuse_endless(table, DataError)
    try:
        content = table.read_bytes()
        if is_pointer(content):
            raise DataError(f"'{table}' {POINTER}.")
        return content.decode(_unicode(content[:2])), ""
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) or b"\0" in content:
            raise _unreadable(table, error) from error
        foreign = sorted({cell.strip() for cell in BETWEEN.split(content) if not cell.isascii()})
        found = decode_names(foreign, OF_TABLES)
        if found.encoding is None:
            raise _unreadable(table, error, found.readings) from error
    words = [name for name in found.names if len(name) <= LONGEST_SHOWN] or found.names
    note = (
        f"'{table}' is not in UTF-8: it is read in {found.encoding}, with words such as {some(words)}; if they are wrong, save "
        "it in UTF-8."
    )
    return content.decode(found.encoding), note


def _unicode(start: bytes) -> str:
    """Return a text's encoding from its first two bytes: UTF-16 with its mark, or without by the zero in a plain letter."""
    if start in UTF_16:
        return "utf-16"
    return "utf-16-le" if start[1:] == b"\0" else "utf-16-be" if start[:1] == b"\0" else "utf-8-sig"


def _unreadable(table: Path, error: Exception, readings: Sequence[str] = ()) -> DataError:
    may = f"; it may be in {' or in '.join(readings)}" if readings else ""
    if isinstance(error, OSError):
        near = "" if look_at(table) else nearest_path(table)
        return DataError(f"'{table}' cannot be read ({one_line(error)}).{near}")
    return DataError(
        f"'{table}' cannot be read as a table of text in UTF-8 ({one_line(error)}){may}; save it in UTF-8."
    )


def _delimiter(lines: Sequence[str]) -> str | None:
    """Return what separates the cells, the mark that gives all rows the same number; None for spaces."""
    sample = [line for line in lines[:TRIED] if line.strip() and not line.startswith("#")]
    widths: dict[str, set[int]] = {}
    for mark in (*DELIMITERS, BAR):
        try:
            widths[mark] = {len(row) for row in csv.reader(sample, delimiter=mark)}
        except csv.Error:
            widths[mark] = set()
    even = [mark for mark in widths if len(widths[mark]) == 1 and widths[mark] != {1}]
    first = next((line for line in sample if not line.strip().isdecimal()), "")
    if even and (even != [BAR] or not any(mark in first for mark in (*DELIMITERS, " "))):
        return max(even, key=lambda mark: (mark != BAR, max(widths[mark])))
    most = max(DELIMITERS, key=first.count)
    return most if most in first or len(first.split()) < 2 else None


def _with_doubled_quotes(lines: list[str], mark: str) -> list[str]:
    r"""Return lines with quotes in cells that are written as \" doubled, if only so every cell ends where it should."""
    doubled = [line.replace('\\"', '""') for line in lines]
    return doubled if _is_well_formed(doubled, mark) and not _is_well_formed(lines, mark) else lines


def _is_well_formed(lines: Sequence[str], mark: str) -> bool:
    try:
        return sum(1 for _ in csv.reader(lines, delimiter=mark, strict=True)) > 0
    except csv.Error:
        return False


def _rows(lines: Sequence[str], mark: str | None, skipped: int, *, listed: bool) -> list[Line]:
    """Return the rows with anything in them; a line of a list that begins with a number sign is a remark."""
    if mark is None:
        rows = [Line(number, line.split()) for number, line in enumerate(lines, 1 + skipped)]
    else:
        reader = csv.reader(lines, delimiter=mark)
        rows = [Line(reader.line_num + skipped, row) for row in reader]
    filled = [row for row in rows if any(map(str.strip, row.cells))]
    return [row for row in filled if not (listed and row.cells[0].startswith("#"))]


def _without_count(rows: list[Line]) -> list[Line]:
    """Return rows without a first line that is their number, and with the name of the images' column, as CelebA lacks it."""
    if len(rows) < len(("number", "names", "row")) or rows[0].cells != [str(len(rows) - 2)]:
        return rows
    number, names = rows[1]
    return [Line(number, [IMAGE, *names] if len(names) + 1 == len(rows[2].cells) else names), *rows[2:]]


def _is_header(rows: Sequence[Line], finder: ImageFinder, *, sure: bool) -> bool:
    """Tell whether the first row names columns: known ones, or, unless one must be `sure`, what leads to no image."""
    names = [cell.strip() for cell in rows[0].cells]
    images = [index for index, name in enumerate(names) if name.lower().endswith(EXTENSIONS)]
    if known_column(names, IMAGES) and (known_column(names, CLASSES) or not images):
        return True
    if images or sure:
        return False
    second = rows[1].cells if len(rows) > 1 else []
    if any(cell.strip().lower().endswith(EXTENSIONS) for cell in second):
        return True
    return not any(name and finder.count([name]) for name in names)


def _of_width(rows: Sequence[Line], width: int, joined: str | None, *, filled: bool) -> tuple[list[Line], Wrong]:
    """Return the rows with so many cells, and what is wrong with the others; empty cells beyond them do not count.

    The joined mark may stand in the last cell without quotes; missing cells at the end may be filled with empty ones.
    """
    even: list[Line] = []
    uneven: Wrong = []
    for row in rows:
        cells, more = row.cells[:width], any(map(str.strip, row.cells[width:]))
        if more and joined is not None:
            cells, more = [*cells[:-1], joined.join(row.cells[width - 1 :])], False
        if filled:
            cells += [""] * (width - len(cells))
        if len(cells) == width and not more:
            even.append(Line(row.number, cells))
        else:
            has = f"has {counted(len(row.cells), 'cell')} for {counted(width, 'column')}"
            uneven.append((row.number, f"{has} (quotes keep separators in a cell)"))
    return even, uneven


Row = tuple[str, str | None, str | None]  # an image, its class, its split


def _unnamed(
    table: Path, rows: Sequence[Line], finder: ImageFinder, texts: Sequence[str], *, spaced: bool
) -> tuple[list[str], list[Line]]:
    """Return the columns and rows of a table without names; of a list, with its lines, by the reading of most images.

    A list's class may be a name of several words.
    """
    readings: list[Callable[[], list[Row]]] = [lambda: _columned(table, rows, finder)]
    if texts:
        readings.insert(0 if spaced else 1, lambda: [_parted(text) for text in texts])
        readings.append(lambda: [_first_word(text) for text in texts])
    best: list[Row] = []
    most, unclear = -1, None
    for reading in readings:
        try:
            parsed = reading()
        except DataError as error:
            unclear = error
            continue
        count = finder.count(evenly([image for image, _, _ in parsed], TRIED)) if texts else 0
        if count > most:
            best, most = parsed, count
    if unclear is not None and (most < 1 or not any(map(_is_name, best))):
        raise unclear
    names = names_beside(table.parent) if table.suffix.lower() == LIST_SUFFIX else None
    filled = [
        Line(row.number, [image, _class_of(image, label, names), part or ""])
        for row, (image, label, part) in zip(rows, best, strict=True)
    ]
    split = any(part is not None for _, _, part in best)
    return [IMAGE, LABEL, PART if split else ""], filled


def _columned(table: Path, rows: Sequence[Line], finder: ImageFinder) -> list[Row]:
    """Read rows without column names: the columns of image, split and class are recognised by what is in them."""
    width = len(rows[0].cells)
    for row in rows:
        if len(row.cells) != width:
            raise DataError(f"'{table}', line {row.number}, has {len(row.cells)} columns where the first has {width}.")
    tried = evenly(rows, TRIED)
    columns = [[row.cells[index].strip() for row in tried] for index in range(width)]
    image = max(range(width), key=lambda index: sum(cell.lower().endswith(EXTENSIONS) for cell in columns[index]))
    if not any(cell.lower().endswith(EXTENSIONS) for cell in columns[image]):
        image = max(range(width), key=lambda index: finder.count(columns[index]))
    others = [index for index in range(width) if index != image]
    split = (
        next((index for index in others if all(map(split_named, columns[index]))), None) if len(others) > 1 else None
    )
    others = [index for index in others if index != split]
    # A number behind the image that is all there is beside it is its class, even where each image has another.
    others = [index for index in others if not _counts(rows, index) or (index > image and len(others) == 1)]
    texts = [index for index in others if not all(map(_is_number, columns[index]))]
    chosen = others if len(others) < 2 else texts  # of several columns the one that is no number
    if len(others) > 1 and len(chosen) != 1:
        raise DataError(
            f"'{table}' has {width} columns without names, and more than one may be the class; write their names into the "
            "first line, such as 'image' and 'label'."
        )
    return [
        (
            row.cells[image].strip(),
            row.cells[chosen[0]].strip() if chosen else None,
            None if split is None else row.cells[split].strip(),
        )
        for row in rows
    ]


def _counts(rows: Sequence[Line], index: int) -> bool:
    """Tell whether a column numbers the rows: each has a whole number of its own."""
    cells = [row.cells[index].strip() for row in rows]
    return len(cells) > 1 and all(map(str.isdecimal, cells)) and len(set(cells)) == len(cells)


def _is_name(row: Row) -> bool:
    """Tell whether the class of a row is one name or number, not several numbers."""
    label = row[1]
    return label is None or " " not in label or not all(map(_is_number, label.split()))


def _parted(line: str) -> Row:
    """Read a line of a list: an image, and its class behind the last separator."""
    for mark in ("\t", ",", ";"):
        if mark in line:
            image, _, label = line.rpartition(mark)
            return image.strip(), label.strip(), None
    parts = line.rsplit(maxsplit=1)
    if len(parts) == 1 or line.lower().endswith(EXTENSIONS):
        return line, None, None
    return parts[0], parts[1], None


def _first_word(line: str) -> Row:
    """Read a line of a list: an image without spaces, and its class, which may be of several words."""
    image, *label = line.split(maxsplit=1)
    return image, label[0].strip() if label else None, None


def _class_of(image: str, label: str | None, names: Sequence[str] | None) -> str:
    """Return an image's class: that of its line, by its number among names if there are any, else its folder's name."""
    if label is None:
        return PurePosixPath(image.replace("\\", "/")).parent.name
    if names is not None and label.isdecimal() and len(label) < len(str(len(names))) + 1 and int(label) < len(names):
        return names[int(label)]
    return label


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdecimal()

"""Tables of images: Parquet files with a column of paths or of encoded bytes, and text tables, told apart by suffix.

`vitral.data.columns` tells which column is which. Several classes of one image are a list.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vitral.data.annotations.hub_masks import list_masked
from vitral.data.annotations.hub_objects import ObjectRows, objects_of, with_objects
from vitral.data.columns import (
    Columns,
    arrow,
    check_column,
    classes_of_rows,
    find_columns,
    find_image,
    find_masked,
    holds_lists,
    in_order,
    is_encoded,
    is_text,
    lists_of_images,
    may_lack,
    several_columns,
    simple_cells,
    split_of_row,
    splits_of_rows,
)
from vitral.data.find_images import ImageFinder
from vitral.data.listing import Listing
from vitral.data.names import (
    common_folder,
    is_address,
    is_saved,
    open_anywhere,
    split_of_file,
)
from vitral.data.path_table import PARQUET, PathTable, bad_row, list_paths, path_column, without_unrelated
from vitral.data.stored import Entry, Strings
from vitral.data.table_cells import cell_text
from vitral.data.text_table import LIST_SUFFIX, read_sheet
from vitral.errors import DataError, ImageError, PackageError, one_line
from vitral.paths import POINTER, is_pointer
from vitral.tasks.registry import task_of
from vitral.tasks.semantic import SEMANTIC

IN_MEMORY = 1 << 30  # bytes of local Parquet files up to which access is random
MOST_GROUPS = 10  # row groups in each process's memory beyond that size: those of a window of shards, and two more
TEXT_SUFFIXES = (".csv", ".tsv")
SUFFIXES = (*TEXT_SUFFIXES, PARQUET)
JSON = (".jsonl", ".json")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
ARROW = (".arrow", ".feather")


def list_tables(
    title: str, name: str, files: Mapping[str, Sequence[str]], *, labelled: bool = True, marked: str | None = None
) -> Listing:
    """Return the images of tables at paths or addresses, by split; a column may name the splits of those under "all".

    `marked` is the prefix before the name of the data that says which labels are meant, such as "semantic".

    Raises:
        DataError: a table cannot be read, a column is missing, or there are no rows.
    """
    every = [(split, path) for split, paths in files.items() for path in paths]
    meant = marked == SEMANTIC.name
    if labelled and (masked := _list_masked(title, name, every, beside_classes=meant)) is not None:
        return masked
    with contextlib.ExitStack() as stack:
        opened = [path_table(path, split, stack) for split, path in every]
        tables = [table for table in opened if table is not None]
        if tables and len(tables) < len(every):
            raise DataError(
                f"'{title}' holds tables of paths, such as '{tables[0].path}', and tables of the images themselves, such as "
                f"'{every[opened.index(None)][1]}'; name the one to read."
            )
        if tables:
            tables, notes = without_unrelated(tables) if labelled else (tables, [])
            listing = list_paths(title, name, tables, labelled=labelled)
            listing = replace(listing, notes=(*listing.notes, *notes))
        else:
            listing = _list_parquet(title, name, files, labelled=labelled)
    if not any(listing.entries.values()) and not listing.bad:
        raise DataError(f"'{title}' has no rows; give it one for each image, with the image and its class.")
    return listing


def no_data(path: Path) -> DataError:
    """Return the error for a file that is no kind of data, which says what to save a table as that is not read."""
    if path.suffix.lower() in SPREADSHEETS:
        return DataError(f"'{path}' is a spreadsheet, which is not read; save it as CSV there, and name that file.")
    if path.suffix.lower() in ARROW and is_saved(path.parent, alone=True):
        return DataError(f"'{path}' is a part of a dataset that `datasets` saved; name its folder, '{path.parent}'.")
    if path.suffix.lower() in ARROW:
        new = path.with_suffix(".parquet")
        return DataError(
            f"'{path}' is a table of Arrow, which is not read; save it as Parquet, in Python by "
            f"datasets.Dataset.from_file('{path}').to_parquet('{new}') or pandas.read_feather('{path}').to_parquet('{new}')."
        )
    return DataError(
        f"'{path}' is a file; give the folder that holds one sub-folder per class, or a .zip, .tar, .csv or .parquet file."
    )


def path_table(path: str, split: str, stack: contextlib.ExitStack) -> PathTable | None:
    """Return a table of paths on this machine, open as long as the stack; None for one of encoded images.

    Raises:
        DataError: it cannot be read.
    """
    finder = ImageFinder(Path(path), split)
    if path.lower().endswith((*TEXT_SUFFIXES, LIST_SUFFIX)):
        sheet = read_sheet(Path(path), finder)
        names, places = [name for name in sheet.names if name], [f"line {line.number}" for line in sheet.lines]
        bad = [bad_row(path, f"line {number}", why) for number, why in sheet.uneven]
        return PathTable(Path(path), split, names, sheet.column, places, None, finder, bad, sheet.note)
    if path.lower().endswith(JSON):
        from vitral.data.json_table import json_table  # which other tables do without

        return json_table(Path(path), split)
    if is_address(path):
        return None
    table = stack.enter_context(_parquet(path))
    schema = table.schema_arrow
    image = find_image(path, schema.names, schema=schema)
    if image is not None and image in schema.names:
        if is_encoded(schema.field(image).type):
            return None
        if holds_lists(schema.field(image).type):
            raise lists_of_images(path, image)

    @functools.cache
    def cells(column: str) -> list[Any]:
        if is_encoded(schema.field(column).type):
            return []
        try:
            found: list[Any] = table.read([column]).column(0).to_pylist()
        except Exception as error:  # file systems and damaged files raise many types
            raise DataError(f"'{path}' cannot be read ({one_line(error)}).") from error
        return found

    places = [f"row {row}" for row in range(table.metadata.num_rows)]
    return PathTable(Path(path), split, schema.names, cells, places, schema, finder)


class ParquetImages:
    """Images in row groups of Parquet files, bytes or paths, the last few groups kept in memory.

    Of each group are given the index of its file, its index in the file, and the index of its first image.
    """

    def __init__(
        self,
        files: Sequence[str],
        groups: Sequence[tuple[int, int, int]],
        column: str,
        most_groups: int,
        names: Sequence[str],
    ) -> None:
        self._files = list(files)
        self._groups = list(groups)
        self._firsts = np.array([first for _, _, first in groups], dtype=np.int64)
        self._column = column
        self._names = Strings(names)
        self._most_groups = most_groups
        self._group = functools.lru_cache(maxsize=most_groups)(self._read_group)

    def read(self, index: int) -> bytes | Path:
        """Return an image's bytes, or its path. See `Store`."""
        number = int(np.searchsorted(self._firsts, index, side="right")) - 1
        content = content_of(self._group(number)[index - int(self._firsts[number])].as_py(), self.name(index))
        if isinstance(content, bytes):
            return content
        beside = Path(self._files[self._groups[number][0]]).parent / content
        return beside if beside.is_file() or not Path(content).is_file() else Path(content)

    def name(self, index: int) -> str:
        """Return the image's name in the table if there is one, else file and row."""
        return self._names[index]

    def cells(self, column: str) -> list[str]:
        """Return each row's cell of a column as text, or raise DataError if a file cannot be read, or has no such column."""
        cells: list[str] = []
        for path in self._files:
            with _parquet(path) as table:
                check_column(path, column, table.schema_arrow.names)
                cells += map(cell_text, table.read(columns=[column]).column(0).to_pylist())
        return cells

    def __getstate__(self) -> dict[str, Any]:
        """Leave the row groups behind when sent to another process."""
        return {name: value for name, value in self.__dict__.items() if name != "_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._group = functools.lru_cache(maxsize=self._most_groups)(self._read_group)

    def _read_group(self, number: int) -> Any:  # noqa: ANN401  # pyarrow's column
        file, group, _ = self._groups[number]
        try:
            with open_anywhere(self._files[file]) as opened:
                table = arrow("pyarrow.parquet").ParquetFile(opened)
                return table.read_row_group(group, columns=[self._column]).column(0).combine_chunks()
        except Exception as error:  # file systems and damaged files raise many types
            raise ImageError(
                f"'{self._files[file]}', row group {group}, cannot be read ({one_line(error)})."
            ) from error


def content_of(cell: Any, name: str) -> bytes | str:  # noqa: ANN401  # any cell
    """Return the bytes of an image, or its path, from its cell in a table; raise ImageError with its name for neither."""
    value = cell.get("bytes") or cell.get("path") if isinstance(cell, dict) else cell
    if isinstance(value, bytes | str) and value:
        return value
    raise ImageError(f"'{name}' is empty; remove the row.")


def _list_masked(title: str, name: str, listed: Sequence[tuple[str, str]], *, beside_classes: bool) -> Listing | None:
    """Return the photos of Parquet files with their masks; None where one of them has no masks."""
    groups: list[tuple[int, int, int]] = []
    splits: list[str] = []
    names: list[str] = []
    columns: set[tuple[str, str]] = set()
    size = 0
    if any(is_address(path) or not path.lower().endswith(PARQUET) for _, path in listed):  # all masks are read
        return None
    for number, (split, path) in enumerate(listed):
        with _parquet(path) as table:
            schema = table.schema_arrow
            if (found := find_masked(schema.names, schema, beside_classes=beside_classes)) is None:
                return None
            columns.add(found)
            first = len(names)
            for group in range(table.num_row_groups):
                groups.append((number, group, len(names)))
                known = table.metadata.row_group(group)
                begun = len(names) - first
                names += [_row_name(None, path, row) for row in range(begun, begun + known.num_rows)]
                size += known.total_byte_size
            splits += [split] * (len(names) - first)
    (photo, mask), *others = columns
    if others:
        return None
    paths, most = [path for _, path in listed], len(groups) if size <= IN_MEMORY else MOST_GROUPS
    photos, masks = (ParquetImages(paths, groups, column, most, names) for column in (photo, mask))
    return list_masked(title, name, photos, masks, splits)


def _list_parquet(title: str, name: str, files: Mapping[str, Sequence[str]], *, labelled: bool) -> Listing:
    listed: list[str] = []
    groups: list[tuple[int, int, int]] = []
    names: list[str] = []
    entries: dict[str, list[Entry]] = {}
    ends: dict[str, list[int]] = {}
    declared: tuple[str, ...] | None = None
    columns: Columns | None = None
    notes: list[str] = []
    several, size, column = False, 0, None
    marked: list[ObjectRows] = []
    for split, paths in files.items():
        for path in paths:
            with _parquet(path) as table:
                schema = table.schema_arrow
                # Not of addresses: the sizes of all photos are needed.
                objects = objects_of(schema) if labelled and not is_address(path) else None
                lacks = may_lack(split, files)
                columns = _columns_of(table, path, labelled=labelled and objects is None, lacks=lacks)
                notes += columns.notes(path, schema.names)
                declared = declared or columns.declared or columns.label_names or None
                several = several or columns.are_lists
                column = columns.classes if columns.are_text else column
                first = len(names)
                if objects is not None:
                    own_objects = map(objects[0].objects, table.read(objects[0].names).to_pylist())
                    marked.append(ObjectRows(first, *objects, list(own_objects)))
                for group in range(table.num_row_groups):
                    rows = _group_rows(table, group, columns, path)
                    groups.append((len(listed), group, len(names)))
                    size += table.metadata.row_group(group).total_byte_size
                    several = several or any(len(classes) != 1 for _, classes, _ in rows)
                    for index, (own, classes, part) in enumerate(rows, len(names)):
                        label = _row_name(own, path, index - first)
                        row_split = split_of_row(part, split, path, f"row {index - first}")
                        entries.setdefault(row_split, []).append(Entry(index, label, classes, 0))
                        names.append(label)
                    for row_split in entries:
                        ends.setdefault(row_split, []).append(len(entries[row_split]))
            listed.append(path)
    remote = any(map(is_address, listed))
    random_access = not remote and size <= IN_MEMORY
    assert columns is not None
    listing = Listing(
        title=title,
        name=name,
        store=ParquetImages(listed, groups, columns.image, len(groups) if random_access else MOST_GROUPS, names),
        entries=in_order(entries),
        class_names=declared,
        task=task_of(several=several),
        shards={} if random_access else {split: tuple(positions) for split, positions in ends.items()},
        notes=tuple(notes),
        remote=remote,
        base=common_folder(listed),
        column=column,
    )
    return with_objects(listing, marked)


def _columns_of(
    table: Any,  # noqa: ANN401  # pyarrow's file
    path: str,
    *,
    labelled: bool,
    lacks: bool,
) -> Columns:
    schema = table.schema_arrow
    cells = simple_cells(schema, lambda column: table.read([column]).column(0).to_pylist())
    return find_columns(path, schema.names, labelled=labelled, schema=schema, cells=cells, may_lack=lacks)


def column_of(path: str, column: str) -> list[tuple[str, str]]:
    """Return the name of the image of each row of a table, as `list_tables` has it, and the row's cell of a column as text.

    Raises:
        DataError: the table cannot be read, or has no such column.
    """
    with contextlib.ExitStack() as stack:
        paths = path_table(path, split_of_file(Path(path).name), stack)
        if paths is not None:
            check_column(path, column, paths.names)
            return path_column(paths, column)
    cells: list[tuple[str, str]] = []
    with _parquet(path) as table:
        names = table.schema_arrow.names
        check_column(path, column, names)
        columns = find_columns(path, names, labelled=False, schema=table.schema_arrow)
        for group in range(table.num_row_groups):
            rows = _group_rows(table, group, columns, path)
            values = table.read_row_group(group, columns=[column]).column(0).to_pylist()
            texts = map(cell_text, values)
            named = (_row_name(own, path, row) for row, (own, _, _) in enumerate(rows, len(cells)))
            cells += zip(named, texts, strict=True)
    return cells


def _row_name(own: str | None, path: str, row: int) -> str:
    """Return the name of a row's image: its own, else the file and the row in it, from 0."""
    return own or f"{path}:{row}"


@contextlib.contextmanager
def _parquet(path: str) -> Iterator[Any]:  # pyarrow's file
    with contextlib.ExitStack() as stack:
        try:
            table = arrow("pyarrow.parquet").ParquetFile(stack.enter_context(open_anywhere(path)))
        except (DataError, PackageError):
            raise
        except Exception as error:  # file systems and damaged files raise many types
            if is_pointer(path):
                raise DataError(f"'{path}' {POINTER}.") from error
            raise DataError(f"'{path}' cannot be read as a Parquet file ({one_line(error)}).") from error
        names = table.schema_arrow.names
        if len(set(names)) < len(names):
            raise several_columns(path, max(names, key=names.count))
        yield table


def _group_rows(
    table: Any,  # noqa: ANN401  # pyarrow's file
    group: int,
    columns: Columns,
    path: str,
) -> list[tuple[str | None, tuple[str, ...], str | None]]:
    """Return each row's own image name, classes and split, "" for a split not filled in, without reading the images' bytes."""
    kind = table.schema_arrow.field(columns.image).type
    own = None
    if is_text(kind):
        own = columns.image
    elif arrow().types.is_struct(kind) and kind.get_field_index("path") >= 0:
        own = f"{columns.image}.path"
    wanted = [column for column in (columns.classes, columns.split, own, *columns.labels) if column is not None]
    try:
        rows, count = table.read_row_group(group, columns=wanted), table.metadata.row_group(group).num_rows
        cells = {name: rows.column(name).to_pylist() for name in rows.column_names}
    except Exception as error:  # file systems and damaged files raise many types
        raise DataError(f"'{path}', row group {group}, cannot be read ({one_line(error)}).") from error
    classes = classes_of_rows(columns, cells.__getitem__, count, title=path)
    splits = splits_of_rows(columns, cells.__getitem__, count)
    images = cells[columns.image] if own else [None] * count
    names = [cell.get("path") if isinstance(cell, dict) else cell for cell in images]
    return list(zip(names, classes, splits, strict=True))

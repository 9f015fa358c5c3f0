"""A folder of images with metadata.jsonl, as Hugging Face's ImageFolder has them: a JSON object a line, with "file_name".

File names are relative to the folder of metadata.jsonl; a folder that is a split may have one of its own.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vitral.data.chosen import chosen
from vitral.data.columns import CLASSES, find_columns, in_order, known_column, split_of_row
from vitral.data.folder import Files
from vitral.data.listing import Listing
from vitral.data.source import BadImage
from vitral.data.stored import UNREAD, Entry
from vitral.data.tables import split_of_file
from vitral.errors import DataError, one_line
from vitral.paths import look_at, refuse_endless
from vitral.tasks.registry import task_of


def list_metadata(folder: Path, files: Sequence[str]) -> Listing | None:
    """Return the images that metadata files name; None where no column of theirs could hold the classes.

    Raises:
        DataError: a file cannot be read, a line is no object or names no image or class, or several columns could be meant.
    """
    rows = [(file, line, row) for file in files for line, row in _rows(folder / file)]
    names = list(dict.fromkeys(name for _, _, row in rows for name in row))
    if chosen("label") is None and known_column(names, CLASSES) is None:
        return None
    columns = find_columns(str(folder / files[0]), names)
    assert columns.classes is not None
    paths: list[str] = []
    entries: dict[str, list[Entry]] = {}
    bad: list[BadImage] = []
    several = False
    for file, line, row in rows:
        where = f"'{folder / file}', line {line},"
        image, value = row.get(columns.image), row.get(columns.classes)
        if not isinstance(image, str) or not image.strip():
            raise DataError(f"{where} names no image in '{columns.image}'.")
        several = several or isinstance(value, list)
        path = folder / Path(file).parent / image
        status = look_at(path)
        if status is None:
            bad.append(BadImage(str(path), f"'{path}' ({folder / file}, line {line}) does not exist"))
            continue
        part = None if columns.split is None else str(row.get(columns.split) or "")
        split = split_of_row(part, split_of_file(file), str(folder / file), f"line {line}")
        name = str(Path(file).parent / image)
        entries.setdefault(split, []).append(Entry(len(paths), name, _classes(value, where), status.st_size))
        paths.append(name)
    return Listing(
        title=str(folder),
        name=folder.resolve().name,
        store=Files(folder, paths),
        entries=in_order(entries),
        task=task_of(several=several),
        bad=tuple(bad),
    )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    refuse_endless(path, DataError)
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line, text in enumerate(file, 1):
                if not text.strip():
                    continue
                row = json.loads(text)
                if not isinstance(row, dict):
                    raise DataError(
                        f"'{path}', line {line}, is not a JSON object with the image's file_name and label."
                    )
                yield line, row
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"'{path}' cannot be read as lines of JSON ({one_line(error)}).") from error


def _classes(value: object, where: str) -> tuple[str, ...]:
    """Return the classes that a value names: a text, a whole number, or a list of such."""
    if isinstance(value, list):
        return tuple(name for item in value for name in _classes(item, where))
    if isinstance(value, bool) or not isinstance(value, str | int) or value in UNREAD:
        raise DataError(f"{where} gives its image no class but '{value!s:.40}'; give a name or a number.")
    return (str(value),)

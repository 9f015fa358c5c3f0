"""Hugging Face datasets: saved on disk, from the Hub, or streamed from the Hub's Parquet files."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# HTTPError is that of the client's HTTP library, whichever it is: a failed connection, not an answer.
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]

from vitral.data.annotations.hub_masks import list_masked
from vitral.data.annotations.hub_objects import ObjectRows, class_names_of, object_columns, with_objects
from vitral.data.columns import (
    check_column,
    classes_of_rows,
    find_columns,
    find_masked,
    lists_of_images,
    may_lack,
    simple_cells,
    split_of_row,
    splits_of_rows,
)
from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL, find, is_saved, saved_splits, split_named, splits_of_files
from vitral.data.stored import Entry, JoinedStores, Store
from vitral.data.table_cells import cell_text
from vitral.data.tables import content_of, list_tables
from vitral.errors import DataError, extra_module, one_line
from vitral.paths import is_regular
from vitral.tasks.registry import task_of
from vitral.tasks.semantic import SEMANTIC
from vitral.transfers import bound_requests

PATIENCE_SECONDS = 10.0  # for the Hub's first answer
HUB = "hf:"
STREAM = "hf-stream:"


class HubImages:
    """Images in the rows of a `datasets.Dataset`, which reads them from memory-mapped files."""

    def __init__(self, title: str, rows: Any, column: str) -> None:  # noqa: ANN401  # `datasets` is imported late
        self._title, self._rows, self._column = title, rows, column

    def read(self, index: int) -> bytes | Path:
        """Return an image's bytes, or its path. See `Store`."""
        content = content_of(self._rows[index][self._column], self.name(index))
        if isinstance(content, bytes):
            return content
        around = (Path(), Path(self._title), Path(self._title).parent)  # the current folder first, as for `datasets`
        return next((folder / content for folder in around if is_regular(folder / content)), Path(content))

    def name(self, index: int) -> str:
        """Return the dataset with split and row, such as "hf:owner/name train[17]"."""
        return f"{self._title} {self._rows.split or 'rows'}[{index}]"

    def cells(self, column: str) -> list[str]:
        """Return each row's cell of a column as text, or raise DataError if there is no such column."""
        check_column(self._title, column, self._rows.column_names)
        return [cell_text(cell) for cell in self._rows[column]]


def _library(spec: str) -> Any:  # noqa: ANN401  # a module
    return extra_module("datasets", "hub", f"'{spec}'")


def list_hub(spec: str, how: Opening) -> Listing:
    """Return the images of "hf:OWNER/NAME" or "hf:OWNER/NAME:CONFIG", downloaded whole into the cache of `datasets`.

    Raises:
        DataError: there is no such dataset, or it has no images, or none with classes where it is `labelled`.
    """
    datasets = _library(spec)
    name, _, config = spec.removeprefix(HUB).partition(":")
    try:
        with _offline_if_out_of_reach(name, datasets):
            loaded = datasets.load_dataset(name, config or None)
    except Exception as error:  # the library raises many types, some of its own
        raise DataError(f"'{spec}' cannot be fetched from the Hub ({one_line(error)}).") from error
    return _list(spec, name.split("/")[-1], loaded, how)


@contextmanager
def _offline_if_out_of_reach(name: str, datasets: Any) -> Iterator[None]:  # noqa: ANN401  # the library
    """Ask the Hub once, without retries; if it does not answer, let `datasets` use its cache."""
    before = datasets.config.HF_HUB_OFFLINE
    bound_requests()
    try:
        HfApi().dataset_info(name, timeout=PATIENCE_SECONDS)
    except HfHubHTTPError:
        pass  # an answer, which the library reports better
    except (HTTPError, OfflineModeIsEnabled):
        datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def list_saved(folder: Path, how: Opening) -> Listing:
    """Return the images of a folder that `save_to_disk` wrote, or of a folder of such, one for each split.

    Raises:
        DataError: it is damaged, or has no images, or none with classes where it is `labelled`.
    """
    datasets = _library(str(folder))
    splits = [] if is_saved(folder, alone=True) else saved_splits(folder)
    try:
        loaded = (
            {name: datasets.load_from_disk(str(folder / name)) for name in splits}
            if splits
            else datasets.load_from_disk(str(folder))
        )
    except Exception as error:  # the library raises many types, some of its own
        raise DataError(f"'{folder}' cannot be read as a saved dataset ({one_line(error)}).") from error
    return _list(str(folder), folder.resolve().name, loaded, how)


def list_stream(spec: str, how: Opening) -> Listing:
    """Return the images of "hf-stream:OWNER/NAME" or "hf-stream:OWNER/NAME:CONFIG", read from the Hub as they are needed.

    The Hub keeps every dataset as Parquet files too; their row groups are the shards.

    Raises:
        DataError: there is no such dataset.
    """
    name, _, config = spec.removeprefix(STREAM).partition(":")
    root = f"hf://datasets/{name}@~parquet/{config or 'default'}"
    return list_parquet_tree(spec, root, name.split("/")[-1], labelled=how.labelled)


def list_parquet_tree(title: str, root: str, name: str, *, labelled: bool = True) -> Listing:
    """Return the images of all Parquet files below an address, by split.

    Raises:
        DataError: it cannot be reached, or there are none.
    """
    addresses, base = find(root, "**/*.parquet")
    if not addresses:
        raise DataError(
            f"'{title}' has no Parquet files; use '{HUB}' instead of '{STREAM}', or name its configuration."
        )
    files: dict[str, list[str]] = {}
    splits = splits_of_files([file.removeprefix(base).lstrip("/") for file in addresses])
    for file, split in zip(addresses, splits, strict=True):
        files.setdefault(split, []).append(file)
    return list_tables(title, name, files, labelled=labelled)


def _list_masked(title: str, name: str, splits: Mapping[str, Any], *, beside_classes: bool) -> Listing | None:
    """Return the photos with their masks; None where there are no masks."""
    columns = [
        find_masked(rows.column_names, rows.features.arrow_schema, beside_classes=beside_classes)
        for rows in splits.values()
    ]
    stores: tuple[list[tuple[Store, int]], list[tuple[Store, int]]] = ([], [])
    for rows, found in zip(splits.values(), columns, strict=True):
        if found is None:
            return None
        for listed, column in zip(stores, found, strict=True):
            listed.append((HubImages(title, _undecoded(title, rows, column), column), len(rows)))
    parts = [split_named(split) or ALL for split, rows in splits.items() for _ in range(len(rows))]
    photos, masks = map(JoinedStores, stores)
    return list_masked(title, name, photos, masks, parts)


def _undecoded(title: str, rows: Any, column: str) -> Any:  # noqa: ANN401  # `datasets` is imported late
    """Return rows whose images are bytes or paths; arrays of pixels are encoded."""
    datasets = _library(title)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of 64-bit numbers that hold 8 bits
            return rows.cast_column(column, datasets.Image(decode=False))
    except Exception as error:  # the library raises many types, some of its own
        raise lists_of_images(title, column) from error


def _list(title: str, name: str, loaded: Any, how: Opening) -> Listing:  # noqa: ANN401  # `datasets` is imported late
    splits: Mapping[str, Any] = loaded if isinstance(loaded, Mapping) else {ALL: loaded}
    meant = how.marked == SEMANTIC.name
    if how.labelled and (masked := _list_masked(title, name, splits, beside_classes=meant)) is not None:
        return masked
    stores: list[tuple[Store, int]] = []
    entries: dict[str, list[Entry]] = {}
    declared: tuple[str, ...] | None = None
    text_column: str | None = None
    notes: list[str] = []
    several, first = False, 0
    marked: list[ObjectRows] = []
    for split, rows in splits.items():
        objects = object_columns(rows.features) if how.labelled else None
        schema = rows.features.arrow_schema
        columns = find_columns(
            title,
            schema.names,
            labelled=how.labelled and objects is None,
            schema=schema,
            cells=simple_cells(schema, rows.__getitem__),
            may_lack=may_lack(split_named(split) or split, splits),
        )
        notes += columns.notes(f"{title} {split}", schema.names)
        several = several or columns.are_lists
        declared = columns.declared or columns.label_names or declared
        text_column = columns.classes if columns.are_text else text_column
        undecoded = _undecoded(title, rows, columns.image)
        stores.append((HubImages(title, undecoded, columns.image), len(rows)))
        if objects is not None:
            own = [objects.objects(row) for row in rows.select_columns(objects.names)]
            declared = class_names_of(rows.features, objects) or declared
            marked.append(ObjectRows(first, objects, declared, own))
        parts, only = splits_of_rows(columns, rows.__getitem__, len(rows)), len(splits) == 1
        # An only split is called so for want of another where a column has splits.
        alone = only and all(map(split_named, map(str, parts)))
        whole = ALL if alone else split_named(split) or (ALL if only else split)
        labels = classes_of_rows(columns, rows.__getitem__, len(rows), title=title)
        for row, names in enumerate(labels):
            part = split_of_row(parts[row], whole, title, f"row {row}")
            entries.setdefault(part, []).append(Entry(first + row, f"{split}[{row}]", names, 0))
            several = several or len(names) != 1
        first += len(rows)
    known = {split: listed for split, listed in entries.items() if split in ("train", "validation", "test", ALL)}
    left = [split for split in entries if split not in known]
    notes += [f"The split '{split}' was left out: it is none of train, validation and test." for split in left]
    listing = Listing(
        title=title,
        name=name,
        store=JoinedStores(stores),
        entries=known,
        class_names=declared,
        task=task_of(several=several),
        notes=tuple(notes),
        column=text_column,
    )
    return with_objects(listing, marked)

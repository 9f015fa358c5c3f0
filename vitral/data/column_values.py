"""What else a dataset says of its images: a further column of a table, or the folders that they lie in."""

from vitral.data.group_values import FOLDER, cells_in, folders_of
from vitral.data.open import columns_in, tables_in
from vitral.data.source import Source
from vitral.errors import DataError

NOTHING = "(empty)"  # shown for a cell without a value


def values_by(data: str, source: Source, by: str) -> tuple[str, ...]:
    """Return a text for each image of a source: its cell of a column, or the name of a folder that it lies in.

    Raises:
        DataError: there is no such column or folder.
    """
    names = [source.describe(index) for index in range(len(source))]
    tables = tables_in(data)
    if not tables:
        return tuple(folders_of(data, names, by, f"{FOLDER}, {FOLDER}:2 and so on"))
    cells = cells_in(tables, by, columns_in(data))
    if missing := [name for name in names if name not in cells]:
        raise DataError(f"The column '{by}' of '{data}' says nothing of {len(missing)} images, such as '{missing[0]}'.")
    return tuple(cells[name] or NOTHING for name in names)

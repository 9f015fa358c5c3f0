"""A further column of a dataset: of the tables that it is read from, and of no others."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.written import IMAGES, encode, write_csv, write_folder
from vitral.data.column_values import values_by
from vitral.data.open import open_data, tables_in
from vitral.errors import DataError


def by(data: Path | str, column: str, split: str = "train") -> dict[str, str]:
    """Return the value of each image by its name."""
    source = open_data(data).splits[split]
    names = [source.describe(index) for index in range(len(source))]
    return dict(zip(names, values_by(str(data), source, column), strict=True))


def test_nested_tables_have_columns_and_hidden_ones_are_none(tmp_path: Path) -> None:
    (tmp_path / "tables" / "data").mkdir(parents=True)
    for number in range(2):
        rows = {
            "image": [encode(0, 10 * number + row) for row in range(8)],
            "label": ["cat", "dog"] * 4,
            "camera": [f"{number}{row}" for row in range(8)],
        }
        path = tmp_path / "tables" / "data" / f"train-{number:05d}.parquet"
        pq.write_table(pa.table(rows), path, row_group_size=3)
    (tmp_path / "tables" / "._test.csv").write_bytes(b"\x00\x05\x16\x07")
    found = by(tmp_path / "tables", "camera") | by(tmp_path / "tables", "camera", "validation")
    assert found == {
        f"{tmp_path / 'tables' / 'data'}/train-{number:05d}.parquet:{row}": f"{number}{row}"
        for number in range(2)
        for row in range(8)
    }


@every_case("stray", ["notes.csv", "test/predictions.csv"])
def test_folders_tell_images_apart_where_a_table_is_not_read(tmp_path: Path, stray: str) -> None:
    folder = write_folder(tmp_path)
    (folder / stray).write_text("source,label\n")
    assert tables_in(str(folder)) == []
    expected = {str(folder / name): name.split("/")[1] for name in IMAGES if name.startswith("train")}
    assert by(folder, "folder") == expected
    with pytest.raises(DataError, match="is no table with columns"):
        by(folder, "label")


def test_a_share_of_a_table_has_its_columns(tmp_path: Path) -> None:
    table = write_csv(tmp_path)
    shared = by(f"part:50%:{table}", "label")
    assert 3 <= len(shared) < 24
    assert all(Path(name).parent.name == label for name, label in shared.items())


def test_what_a_published_dataset_or_lists_are_read_from_has_no_columns(tmp_path: Path) -> None:
    (tmp_path / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n")
    assert tables_in(f"imagenet:{tmp_path}") == []
    assert tables_in("digits") == []
    folder = write_folder(tmp_path)
    (folder / "train.txt").write_text("".join(f"{name} {name.split('/')[1]}\n" for name in IMAGES))
    assert len(open_data(folder).splits) == 2, "the list is read, in place of the folders of three splits"
    assert tables_in(str(folder)) == []

"""Masks of photos that have a class of their own, too, in a Hugging Face dataset: "semantic:" before its name reads them."""

from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.annotations.test_hub_masks import write
from vitral.data.open import open_data


@pytest.mark.filterwarnings("ignore")
@every_case("form", ["saved", "parquet"])
def test_masks_beside_classes_are_read_where_the_name_asks_for_them(form: str, tmp_path: Path) -> None:
    data = open_data(f"semantic:{write(tmp_path, form, ('image', 'annotation'), classes=True)}", hold_out=False)
    assert (data.task.name, data.class_names) == ("semantic", ("0", "1", "2"))
    assert {split: len(source) for split, source in data.splits.items()} == {"train": 4, "test": 2}
    plain = open_data(tmp_path / "data", hold_out=False)
    assert (plain.task.name, plain.class_names) == ("single-label", ("cat", "dog"))
    one = tmp_path / "data" / "train-00000-of-00001.parquet"
    assert form == "saved" or open_data(f"semantic:{one}", near=False).task.name == "semantic"

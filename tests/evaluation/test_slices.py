"""Accuracy by a column or by folders: the worst first, its interval, and whether chance explains it."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import read_csv

from tests.evaluation.test_compare import shade_classifier, write_shades
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.errors import DataError
from vitral.evaluation.comparison import holm
from vitral.evaluation.slices import sliced, slices
from vitral.events import ignore
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.tasks.metrics import wilson_interval

NAMES = ["dark", "middle", "light"]


def fisher_by_hand(mine: tuple[int, int], others: tuple[int, int]) -> float:
    """Add up the tables with the same margins that are no more probable."""
    images, rest, right = sum(mine), sum(others), mine[0] + others[0]

    def weight(correct: int) -> int:
        return math.comb(images, correct) * math.comb(rest, right - correct)

    weights = [weight(correct) for correct in range(max(0, right - rest), min(images, right) + 1)]
    return sum(one for one in weights if one <= weight(mine[0])) / sum(weights)


def write_table(folder: Path, count: int = 12) -> Path:
    """Write a table of images in which camera "b" took those that the classifier confuses."""
    write_shades(folder, count)
    rows = [
        f"test/{name}/{index}.png,{name},test,{'b' if index < 4 else 'a'},{index + 0.5}"
        for name in NAMES
        for index in range(count)
    ]
    rows += [f"train/{name}/0.png,{name},train,,0" for name in NAMES]
    (folder / "table.csv").write_text("\n".join(["image,label,split,camera,age", *rows]) + "\n")
    return folder / "table.csv"


def test_the_worst_comes_first_with_its_interval(tmp_path: Path, tiny_config: ViTConfig) -> None:
    table = write_table(tmp_path / "shades")
    classifier = shade_classifier(tiny_config, NAMES, confuse=[0, 1, 2])
    found = slices(classifier, table, "camera", listener=ignore)
    assert [(one.value, one.images, one.accuracy) for one in found.slices] == [("b", 12, 0.25), ("a", 24, 1.0)]
    worst, best = found.slices
    assert worst.interval == wilson_interval(3, 12)
    expected = holm([fisher_by_hand((24, 0), (3, 9)), fisher_by_hand((3, 9), (24, 0))])
    assert [best.p_value, worst.p_value] == pytest.approx(expected, abs=1e-9)
    assert (worst.worse, best.worse) == (True, False)
    assert (found.images, found.accuracy) == (36, 0.75)
    assert found.lines()[0].startswith("Surely worse by camera: b 3 of 12")
    assert found.tables()[0].rows[0][0] == "b"


def test_many_numbers_are_put_into_four_parts(tmp_path: Path, tiny_config: ViTConfig) -> None:
    table = write_table(tmp_path / "shades")
    found = slices(shade_classifier(tiny_config, NAMES, confuse=[0]), table, "age", listener=ignore)
    assert [one.images for one in found.slices] == [9, 9, 9, 9]
    assert found.slices[0].value == "0.5 to 3.25"
    assert (found.slices[0].accuracy, found.slices[0].worse) == (6 / 9, True)
    few = sliced([str(number) for number in range(36)], np.arange(36) >= 2)
    assert [(one.value, one.images, one.worse) for one in few][0] == ("0 to 8.75", 9, False)


def test_folders_tell_images_apart_too(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 3)
    classifier = shade_classifier(tiny_config, NAMES)
    assert {one.value for one in slices(classifier, folder, "folder", listener=ignore).slices} == set(NAMES)
    (only,) = slices(classifier, folder, "folder:2", listener=ignore).slices
    assert (only.value, only.images, only.p_value) == ("test", 9, 1.0)


@pytest.mark.parametrize("of", ["paths", "bytes"])
def test_a_parquet_table_is_parted_as_the_same_text_table_is(of: str, tmp_path: Path, tiny_config: ViTConfig) -> None:
    text = write_table(tmp_path / "shades")
    table = read_csv(text)
    if of == "bytes":
        folder = tmp_path / "shades"
        images = [{"bytes": (folder / path).read_bytes(), "path": path} for path in table["image"].to_pylist()]
        table = table.set_column(0, "image", pa.array(images))
    pq.write_table(table, tmp_path / "shades" / "table.parquet", row_group_size=7)
    classifier = shade_classifier(tiny_config, NAMES, confuse=[0, 1, 2])
    for by in ("camera", "age"):
        expected = slices(classifier, text, by, listener=ignore)
        assert slices(classifier, tmp_path / "shades" / "table.parquet", by, listener=ignore).slices == expected.slices
    with pytest.raises(DataError, match=r"no column 'kamera', only image, .*Did you mean 'camera'"):
        slices(classifier, tmp_path / "shades" / "table.parquet", "kamera", listener=ignore)


def test_an_image_with_two_values_of_a_column_is_refused(tmp_path: Path, tiny_config: ViTConfig) -> None:
    table = write_table(tmp_path / "shades", 2)
    table.write_text(table.read_text() + "test/dark/0.png,dark,test,c,0\n")
    with pytest.raises(DataError, match=r"0\.png' has two values in the column 'camera' of"):
        slices(shade_classifier(tiny_config, NAMES), table, "camera", listener=ignore)


def test_what_is_no_column_is_refused_before_an_image_is_computed(tmp_path: Path, tiny_config: ViTConfig) -> None:
    table = write_table(tmp_path / "shades", 2)
    classifier = shade_classifier(tiny_config, NAMES)
    classifier.model.forward = None  # type: ignore[assignment,method-assign]
    with pytest.raises(DataError, match=r"no column 'kamera', only image, .*Did you mean 'camera'"):
        slices(classifier, table, "kamera", listener=ignore)
    for by in ("camera", "folder:0", "folder:x"):
        with pytest.raises(DataError, match="is no table with columns"):
            slices(classifier, tmp_path / "shades" / "test", by, listener=ignore)
    with pytest.raises(DataError, match="does not lie in 99 folders"):
        slices(classifier, tmp_path / "shades" / "test", "folder:99", listener=ignore)


def test_an_empty_cell_is_a_slice_of_its_own() -> None:
    found = sliced(["(empty)", "a", "a"], np.array([False, True, True]))
    assert [one.value for one in found] == ["(empty)", "a"]


def test_the_command_prints_the_worst_first(
    tmp_path: Path, tiny_config: ViTConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "shades", 4)
    model = build(tiny_config, seed=0)
    folder = save(Classifier(model, Preprocessing(image_size=(16, 16)), NAMES), tmp_path / "mine")
    command = ["evaluate", "--data", str(table), "--classifier", str(folder), "--by", "age"]
    assert main(command) == 0
    assert "By age, the worst first" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by"] == "age"
    assert main([*command, "--report", "page.html"]) == 2
    assert "--report cannot go with --by" in capsys.readouterr().err
    assert main([*command[:-1], "ages"]) == 1
    assert "Did you mean 'age'?" in capsys.readouterr().err

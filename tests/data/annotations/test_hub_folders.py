"""Objects as Hugging Face documents them in folders: metadata files beside images, and Parquet shards with a column of them."""

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.tasks.regions import Regions

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
SCENES = dict(list(drawn.SCENES.items())[:10])
Rows = list[dict[str, Any]]


def objects(boxes: Sequence[drawn.Box], key: str, *, named: bool = False) -> dict[str, Any]:
    kinds = [name if named else drawn.NAMES.index(name) for name, *_ in boxes]
    return {"bbox": [[left, top, right - left, low - top] for _, left, top, right, low in boxes], key: kinds}


def rows(scenes: dict[str, list[drawn.Box]] = SCENES, folder: str = "", *, named: bool = False) -> Rows:
    return [
        {
            "file_name": f"{folder}{name}.png",
            "objects": objects(boxes, "label" if folder else "categories", named=named),
        }
        for name, boxes in scenes.items()
    ]


def write(path: Path, listed: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in listed))
    elif path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(listed), path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(listed[0])
            writer.writerows([row["file_name"], json.dumps(row["objects"])] for row in listed)


def assert_drawn(data: DataSet, names: Sequence[str], scenes: dict[str, list[drawn.Box]] = SCENES) -> None:
    assert (data.task.name, data.class_names) == ("boxes", tuple(names))
    found = {}
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            assert isinstance(label, Regions)
            pairs = zip(label.classes.tolist(), label.boxes.tolist(), strict=True)
            found[Path(source.describe(index)).stem] = sorted((drawn.NAMES[number], *box) for number, box in pairs)
    assert found == {name: sorted(boxes) for name, boxes in scenes.items()}


@every_case("suffix", [".jsonl", ".csv", ".parquet"])
def test_metadata_beside_images_gives_their_objects(tmp_path: Path, suffix: str) -> None:
    drawn.photos(tmp_path, SCENES)
    write(tmp_path / f"metadata{suffix}", rows())
    data = open_data(tmp_path, near=False, verify=False)
    assert_drawn(data, ("0", "1"))
    assert any(
        "Annotations: Hugging Face metadata, 24 regions of 2 classes in 10 photos" in note for note in data.notes
    )
    assert any("are taken as [x, y, width, height]" in note for note in data.notes)


def test_splits_names_of_classes_and_archives(tmp_path: Path) -> None:
    parts = {"train": dict(list(SCENES.items())[:7]), "validation": dict(list(SCENES.items())[7:])}
    for split, scenes in parts.items():
        drawn.photos(tmp_path / "photos" / split / "images", scenes)
        write(tmp_path / "photos" / split / "metadata.jsonl", rows(scenes, "images/"))
    (tmp_path / "photos" / "classes.txt").write_text("\n".join(drawn.NAMES))
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "photos")
    for spec in (tmp_path / "photos", f"boxes:{tmp_path / 'photos'}", archive):
        data = open_data(spec, near=False, verify=False)
        assert_drawn(data, drawn.NAMES)
        assert data.counts() == {"train": "7", "validation": "3"}


def test_the_boxes_of_all_files_decide_together(tmp_path: Path) -> None:
    for split, box in {"train": [30, 20, 70, 50], "test": [5, 5, 20, 30]}.items():
        drawn.photos(tmp_path / split, dict(list(SCENES.items())[: 6 if split == "train" else 4]))
        names = sorted(path.name for path in (tmp_path / split).iterdir())
        listed = [{"file_name": name, "objects": {"bbox": [box], "categories": [0]}} for name in names]
        write(tmp_path / split / "metadata.jsonl", listed)
    data = open_data(tmp_path, near=False, verify=False)
    assert sum("are taken as" in note for note in data.notes) == 1
    label = data.splits["test"].label(0)
    assert isinstance(label, Regions)
    assert label.boxes.tolist() == [[5, 5, 20, 30]]


def test_photos_that_are_not_there_or_not_marked_are_said(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "photos", SCENES)
    listed = rows(named=True)
    listed[3]["file_name"] = "gone.png"
    listed[4]["objects"] = None
    write(tmp_path / "photos" / "metadata.jsonl", listed)
    data = open_data(tmp_path, near=False, verify=False)
    left = {name: boxes for number, (name, boxes) in enumerate(SCENES.items()) if number not in (3, 4)}
    assert_drawn(data, drawn.NAMES, left)
    assert any("that are not in the folder" in note and ": 1 in 1 file" in note for note in data.notes)
    assert any("2 images without annotation are left out" in note for note in data.notes)


def test_metadata_that_cannot_be_read_is_one_line_and_that_of_classes_stays(tmp_path: Path) -> None:
    drawn.photos(tmp_path / "marked", SCENES)
    write(tmp_path / "marked" / "metadata.jsonl", rows())
    with (tmp_path / "marked" / "metadata.jsonl").open("a") as file:
        file.write('{"file_name": "photo_1.png", "obj')
    with pytest.raises(VitralError, match=r"metadata.jsonl' cannot be read \(line 11 is not JSON.*\)\.$") as caught:
        open_data(tmp_path / "marked")
    assert "\n" not in str(caught.value)
    drawn.photos(tmp_path / "plain", SCENES)
    listed = [{"file_name": f"{name}.png", "label": "ab"[number % 2]} for number, name in enumerate(SCENES)]
    write(tmp_path / "plain" / "metadata.jsonl", listed)
    assert open_data(tmp_path / "plain", near=False).task.name == "single-label"


def shard(folder: Path, split: str, scenes: dict[str, list[drawn.Box]], form: str) -> None:
    drawn.photos(folder / "photos", scenes)
    images = [{"bytes": (folder / "photos" / f"{name}.png").read_bytes(), "path": f"{name}.png"} for name in scenes]
    cells: list[Any] = [objects(boxes, "category") for boxes in scenes.values()]
    names = {"names": list(drawn.NAMES), "_type": "ClassLabel"}
    told: Any = {"bbox": {"_type": "List"}, "category": {"feature": names, "_type": "List"}}
    if form == "a list of objects":
        cells = [
            [{"bbox": box, "category": kind} for box, kind in zip(cell["bbox"], cell["category"], strict=True)]
            for cell in cells
        ]
        told = [{"bbox": {"_type": "List"}, "category": names}]
    table = pyarrow.table({"image": images, "objects": cells})
    features = {"image": {"_type": "Image"}, "objects": told}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    (folder / "set" / "data").mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder / "set" / "data" / f"{split}-00000-of-00001.parquet", row_group_size=4)


@every_case("form", ["objects of lists", "a list of objects"])
def test_parquet_shards_have_a_column_of_objects(tmp_path: Path, form: str) -> None:
    shard(tmp_path, "train", dict(list(SCENES.items())[:7]), form)
    shard(tmp_path, "validation", dict(list(SCENES.items())[7:]), form)
    alone = tmp_path / "set" / "data" / "train-00000-of-00001.parquet"
    for spec in (tmp_path / "set", f"boxes:{tmp_path / 'set'}"):
        data = open_data(spec, near=False, verify=False)
        assert_drawn(data, drawn.NAMES)
        assert data.counts() == {"train": "7", "validation": "3"}
    assert_drawn(open_data(alone, near=False, verify=False), drawn.NAMES, dict(list(SCENES.items())[:7]))
    with pytest.raises(VitralError, match="semantic"):
        open_data(f"semantic:{tmp_path / 'set'}")
    assert len(open_data(f"unlabelled:{tmp_path / 'set'}").splits["train"]) >= 7

"""Images that belong together stay on one side of every split that is made: those that look alike, and a user's groups."""

import io
import re
import shutil
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageEnhance

from tests.cases import every_case
from tests.forks import job
from vitral import distributed
from vitral.checks.check_data import check_data
from vitral.data import assemble
from vitral.data.groups import split_groups
from vitral.data.names import series_in
from vitral.data.open import open_data
from vitral.data.source import DataSet, drawn, same_data
from vitral.errors import DataError
from vitral.studies.sweep import to_choose_by


def photo(seed: int) -> Image.Image:
    """A photo of large structures."""
    small = np.random.default_rng(seed).integers(0, 256, (7, 7, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((112, 96), Image.Resampling.BICUBIC)


def write_exposures(folder: Path, scenes: Mapping[str, int], exposures: int = 4) -> Path:
    """Write photos "SCENEx.jpg" of scenes, each exposed as often, into class folders."""
    for place, (name, count) in enumerate(scenes.items()):
        (folder / name).mkdir(parents=True)
        for scene in range(count):
            for number in range(exposures):
                exposed = ImageEnhance.Brightness(photo(1000 * place + scene)).enhance(0.75 + 0.12 * number)
                exposed.save(folder / name / f"{scene}{'abcdefgh'[number]}.jpg", quality=90 - 5 * number)
    return folder


def scene_of(name: str) -> str:
    path = Path(name.rpartition(":")[2])
    return f"{path.parent.name}/{path.stem[:-1]}"


def sides(data: DataSet, group_of: Callable[[str], str] = scene_of) -> dict[str, set[str]]:
    """Return the splits in which each group's images are."""
    found: dict[str, set[str]] = defaultdict(set)
    for split, source in data.splits.items():
        for index in range(len(source)):
            found[group_of(source.describe(index))].add(split)
    return found


def names(data: DataSet) -> dict[str, list[str]]:
    return {split: [source.describe(index) for index in range(len(source))] for split, source in data.splits.items()}


def test_exposures_of_one_scene_are_on_one_side(tmp_path: Path) -> None:
    folder = write_exposures(tmp_path / "photos", {"cat": 10, "dog": 10, "owl": 5})
    data = open_data(folder)
    assert all(len(splits) == 1 for splits in sides(data).values())
    for split, each in (("train", (32, 32, 12)), ("validation", (4, 4, 4)), ("test", (4, 4, 4))):
        assert tuple(np.bincount(data.splits[split].labels())) == each
    assert any("look alike" in note and "25 groups" in note for note in data.notes)
    # Where the images are in a zip, and where the user has a test split, it is the same.
    zipped = open_data(shutil.make_archive(str(folder), "zip", folder))
    assert {split: list(map(scene_of, each)) for split, each in names(zipped).items()} == {
        split: list(map(scene_of, each)) for split, each in names(data).items()
    }
    shutil.copytree(folder, tmp_path / "own" / "train")
    write_exposures(tmp_path / "own" / "test", {"cat": 2, "dog": 2, "owl": 2})
    own = open_data(tmp_path / "own")
    train_and_validation = [splits - {"test"} for splits in sides(own).values()]
    assert all(len(splits) <= 1 for splits in train_and_validation)
    assert len(own.splits["validation"]) == 4 * 3


def test_data_are_split_again_as_they_were(tmp_path: Path) -> None:
    folder = write_exposures(tmp_path / "photos", {"cat": 8, "dog": 8})
    data = open_data(folder)
    before, _, _ = data.fingerprint.partition("/")  # as a version wrote it that knew nothing of look-alikes
    older = open_data(folder, drawn_as=(before,))
    assert any(len(splits) > 1 for splits in sides(older).values())
    assert older.fingerprint == before
    assert same_data(before, data.fingerprint)
    assert drawn(before) != drawn(data.fingerprint)
    for known, expected in ((before, older), (data.fingerprint, data)):
        assert names(open_data(folder, trained_on=known)) == names(expected)
        assert open_data(folder, drawn_as=(known,), verify=False).fingerprint == expected.fingerprint
    assert list(open_data(folder, trained_on="2-other").splits) == ["test"]
    # Other data are not split as a start's were, and data without look-alikes keep their fingerprint.
    assert names(open_data(folder, drawn_as=("2-other",))) == names(data)
    plain = open_data(write_exposures(tmp_path / "plain", {"cat": 8, "dog": 8}, exposures=1))
    assert "/" not in plain.fingerprint
    assert plain.together == {}


def write_table(folder: Path, header: str, row: Callable[[int], str]) -> Path:
    """Write 24 images "frameN.png" that look alike in nothing, and a table with a row for each."""
    folder.mkdir()
    for number in range(24):
        photo(number).save(folder / f"frame{number}.png")
    table = folder / "table.csv"
    table.write_text("\n".join([header, *map(row, range(24))]))
    return table


def test_groups_of_a_table_whose_columns_are_chosen(tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "photos",
        "image,right,species,patient",
        lambda n: "\n".join(f"frame{23 - n}.png,frame{n}.png,{'ab'[n // 2 % 2]},{own}" for own in (f"p{n // 2}", "")),
    )
    data = open_data(f"columns:image=right,label=species:{table}", group="patient")
    assert set(map(len, sides(data, lambda name: str(int(Path(name).stem[5:]) // 2)).values())) == {1}
    assert any("12 groups" in note for note in data.notes)


@every_case(("by", "groups"), [("series", 2), ("folder", 2), ("folder:2", 1)])
def test_images_of_a_table_in_groups_by_their_names(tmp_path: Path, by: str, groups: int) -> None:
    table = write_table(
        tmp_path / "photos", "image,label", lambda n: f"shots/{'xy'[n % 2]}/frame{n}.png,{'ab'[n // 12]}"
    )
    for number in range(24):
        place = tmp_path / "photos" / "shots" / "xy"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / f"frame{number}.png").rename(place / f"frame{number}.png")
    assert any(re.search(rf"\b{groups} groups?\b", note) for note in open_data(table, group=by).notes)


def test_series_in_shards_are_those_of_the_examples(tmp_path: Path) -> None:
    for shard in range(2):
        with tarfile.open(tmp_path / f"train-{shard}.tar", "w") as tar:
            for number in range(12 * shard, 12 * shard + 12):
                photo(number).save(content := io.BytesIO(), "png")
                files = {"png": content.getvalue(), "cls": str(number % 2).encode()}
                for kind, held in files.items():
                    info = tarfile.TarInfo(f"clip{number // 4}_{number:04d}.{kind}")
                    info.size = len(held)
                    tar.addfile(info, io.BytesIO(held))
    data = open_data(tmp_path, group="series")
    assert any("6 groups" in note for note in data.notes)
    assert {len(splits) for splits in sides(data, lambda name: name.rpartition(":")[2][:5]).values()} == {1}


def test_a_series_of_names_that_end_in_a_point(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(6):
            photo(number).save(tmp_path / name / f"{number}..png")
    assert any("2 groups" in note for note in open_data(tmp_path, group="series").notes)


def test_a_class_of_nothing_but_look_alikes_is_scored_all_the_same(tmp_path: Path) -> None:
    folder = write_exposures(tmp_path / "photos", {"cat": 10, "dog": 10})
    (folder / "wall").mkdir()
    for number in range(12):
        ImageEnhance.Brightness(photo(9)).enhance(0.7 + 0.04 * number).save(folder / "wall" / f"{number}.png")
    data = open_data(folder)
    for split in ("validation", "test"):
        assert set(data.splits[split].labels().tolist()) == {0, 1, 2}
    assert all(len(splits) == 1 for scene, splits in sides(data).items() if "wall" not in scene)
    assert any("wall" in note and "too good" in note for note in data.notes)


def test_many_images_are_not_looked_at_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_exposures(tmp_path / "photos", {"cat": 10, "dog": 10})
    monkeypatch.setattr(assemble, "CHECKED", 79)
    data = open_data(folder)
    assert "/" not in data.fingerprint
    assert any("look alike" in note and "group" in note for note in data.notes)
    monkeypatch.setattr(assemble, "CHECKED", 80)
    assert "/near=" in open_data(folder).fingerprint


def test_images_that_are_not_all_read_in_time_are_not_compared(tmp_path: Path) -> None:
    folder = write_exposures(tmp_path / "photos", {"cat": 30, "dog": 30})
    data = open_data(folder, checking_seconds=0.0)
    assert "/" not in data.fingerprint
    assert any("look alike" in note for note in data.notes)
    assert open_data(folder, drawn_as=(data.fingerprint,)).fingerprint == data.fingerprint


@every_case(
    ("names", "series"),
    [
        ([f"cat/frame_{number:04}.jpg" for number in range(30)], 1),
        ([f"cat/patient{number // 6}_{number % 6:02}.png" for number in range(30)], 5),
        ([f"cat/clip{number // 6}/{number % 6}.png" for number in range(30)], 5),
        ([f"cat/3-{number // 3}_{number % 3}.png" for number in range(30)], 10),
        ([f"cat/IMG_{number:04}.jpg" for number in range(30)], 0),
        ([f"cat/{number}.jpg" for number in range(30)], 0),
        ([f"n01443537/n01443537_{number}.JPEG" for number in range(30)], 0),
        ([f"cat/IMG_20201215_1{number * 3571 % 100000:05}.jpg" for number in range(30)], 0),
        ([f"cat/Scenery_{number}.jpg" for number in range(30)], 0),
    ],
)
def test_numbering_that_looks_like_series_is_found(names: list[str], series: int) -> None:
    found = series_in((f"photos/{name}", (name.partition("/")[0],)) for name in names)
    assert len(found) == series
    assert sum(map(len, found.values())) == (30 if series else 0)


def test_series_are_said_where_splits_are_made_without_groups(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / "photos" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        photo(number).save(tmp_path / "photos" / "ab"[number % 2] / f"video{number // 8}_{number % 8}.png")
    (note,) = [note for note in check_data(tmp_path / "photos").notes if "series" in note]
    assert all(fact in note for fact in ("40 images", "10 series", "video0_0.png", "group='series'")), note
    assert not any("numbered" in note for note in open_data(tmp_path / "photos", group="series").notes)
    for split in ("train", "val", "test"):
        shutil.copytree(tmp_path / "photos", tmp_path / "own" / split)
    assert not any("numbered" in note for note in open_data(tmp_path / "own").notes)


PATIENTS = 8


def patient_of(name: str) -> str:
    return Path(name).stem.partition("-")[0]


def rows(folder: Path) -> list[dict[str, str]]:
    """Write images of patients of two classes, which do not look alike; return them as rows of a table."""
    (folder / "images").mkdir(parents=True)
    found: list[dict[str, str]] = []
    for patient in range(PATIENTS):
        for number in range(3 + patient % 3):
            for label in ("ill", "well"):
                name = f"images/p{patient}-{label}{number}.png"
                photo(len(found)).save(folder / name)
                found.append({"image": name, "label": label, "patient": f"p{patient}"})
    return found


def as_csv(folder: Path) -> tuple[str, Callable[[str], str]]:
    lines = [",".join(row.values()) for row in rows(folder)]
    (folder / "table.csv").write_text("\n".join(["image,label,patient", *lines]))
    return str(folder / "table.csv"), patient_of


def as_parquet(folder: Path) -> tuple[str, Callable[[str], str]]:
    found = rows(folder)
    cells = [(folder / row["image"]).read_bytes() for row in found]
    columns = {"image": cells, **{name: [row[name] for row in found] for name in ("label", "patient")}}
    pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=7)
    return str(folder / "table.parquet"), lambda name: found[int(name.rpartition(":")[2])]["patient"]


def as_dataset(folder: Path) -> tuple[str, Callable[[str], str]]:
    found = rows(folder)
    columns = {name: [row[name] for row in found] for name in ("label", "patient")}
    saved = datasets.Dataset.from_dict({"image": [str(folder / row["image"]) for row in found], **columns})
    saved.cast_column("image", datasets.Image()).save_to_disk(str(folder / "saved"))
    return str(folder / "saved"), lambda name: found[int(re.findall(r"\d+", name)[-1])]["patient"]


@every_case("write", [as_csv, as_parquet, as_dataset])
def test_groups_of_a_column_are_on_one_side(
    tmp_path: Path, write: Callable[[Path], tuple[str, Callable[[str], str]]]
) -> None:
    spec, group_of = write(tmp_path / "data")
    data = open_data(spec, group="patient")
    found = sides(data, group_of)
    assert len(found) == PATIENTS
    assert all(len(splits) == 1 for splits in found.values())
    assert set(data.splits) == {"train", "validation", "test"}
    for source in data.splits.values():  # each patient is as often ill as well
        assert len(set(np.bincount(source.labels()).tolist())) == 1
    assert any(len(splits) > 1 for splits in sides(open_data(spec), group_of).values())
    # Whoever knows the fingerprint need not name the groups again.
    assert names(open_data(spec, trained_on=data.fingerprint)) == names(data)
    assert open_data(f"part:50%:{spec}", group="patient").fingerprint == f"{data.fingerprint}/part=1/2"
    with pytest.raises(DataError) as error:
        open_data(spec, group="patents")
    assert all(word in str(error.value) for word in ("'patents'", "image, label, patient"))


def test_groups_that_the_users_own_splits_share_are_said(tmp_path: Path) -> None:
    found = rows(tmp_path)
    for row in found:
        row["split"] = "test" if row["patient"] in ("p6", "p7") else "train"
    next(row for row in found if row["patient"] == "p5")["split"] = "test"
    (tmp_path / "table.csv").write_text(
        "\n".join(["image,label,patient,split", *(",".join(row.values()) for row in found)])
    )
    data = open_data(tmp_path / "table.csv", group="patient")
    (note,) = [note for note in data.notes if "several splits" in note]
    assert all(fact in note for fact in ("1 of 8 groups", "patient", "p5", "train and test")), note
    assert len(sides(data, patient_of)["p5"] - {"test"}) == 1  # the validation split that was made has whole groups


def test_images_without_a_group_are_by_themselves(tmp_path: Path) -> None:
    found = rows(tmp_path)
    lines = [f"{row['image']},{row['label']},{row['patient'] if row['patient'] != 'p0' else ''}" for row in found]
    (tmp_path / "table.csv").write_text("\n".join(["image,label,patient", *lines]))
    data = open_data(tmp_path / "table.csv", group="patient")
    assert all(len(splits) == 1 for patient, splits in sides(data, patient_of).items() if patient != "p0")
    assert sum(size == 1 for each in data.together.values() for size in Counter(each.tolist()).values()) == 6
    assert any("7 groups" in note and "6 images" in note for note in data.notes)


def test_images_in_folders_are_grouped_by_folder_or_series(tmp_path: Path) -> None:
    for number in range(120):
        label, video = ("cat", "dog")[number % 2], number // 12
        folder = tmp_path / "videos" / label / f"clip{video}"
        folder.mkdir(parents=True, exist_ok=True)
        photo(number).save(folder / f"{number}.png")
        (tmp_path / "frames" / label).mkdir(parents=True, exist_ok=True)
        photo(number).save(tmp_path / "frames" / label / f"v{video}_{number:04}.png")
    by_folder = open_data(tmp_path / "videos", classes="top", group="folder")
    assert all(len(splits) == 1 for splits in sides(by_folder, lambda name: Path(name).parent.name).values())
    by_series = open_data(tmp_path / "frames", group="series")
    assert all(len(splits) == 1 for splits in sides(by_series, lambda name: str(Path(name))[:-8]).values())
    for data in (by_folder, by_series):
        assert {split: len(source) for split, source in data.splits.items()} == {
            "train": 96,
            "validation": 12,
            "test": 12,
        }
    few = open_data(tmp_path / "frames", group="folder")
    assert list(few.splits) == ["train"]
    assert any("fewer than 3 groups by folder" in note and "cat, dog" in note for note in few.notes)
    with pytest.raises(DataError) as error:
        open_data(tmp_path / "frames", group="patient")
    assert all(word in str(error.value) for word in ("patient", "folder", "series"))
    with pytest.raises(DataError, match="patient"):
        open_data("digits", group="patient")


def test_whole_groups_are_as_balanced_as_they_allow() -> None:
    rng = np.random.default_rng(0)
    classes, groups = [], []
    for group in range(60):
        for _ in range(int(rng.integers(1, 40))):
            classes.append([group % 3])
            groups.append(group)
    parts = split_groups(classes, groups, (0.1, 0.1), seed=0, purpose="test")
    assert sorted(index for part in parts for index in part) == list(range(len(groups)))
    assert sum(len({groups[index] for index in part}) for part in parts) == 60
    for part in parts[1:]:
        counts = Counter(classes[index][0] for index in part)
        for label in range(3):
            of_all = sum(each == [label] for each in classes)
            assert abs(counts[label] / of_all - 0.1) < 0.04
    few = split_groups(
        [[label] for label in (0, 0, 0, 1, 1, 2)], [0, 1, 2, 3, 4, 5], (0.1, 0.1), seed=0, purpose="test"
    )
    assert [len(part) for part in few] == [4, 1, 1]  # class 0 in every part, the others are too few
    again = split_groups(classes, groups, (0.1, 0.1), seed=0, purpose="test")
    assert [part.tolist() for part in again] == [part.tolist() for part in parts]


def test_a_sweep_holds_out_whole_groups(tmp_path: Path) -> None:
    folder = write_exposures(tmp_path / "photos" / "train", {"cat": 15, "dog": 15}).parent
    chosen, _ = to_choose_by(open_data(folder))
    assert set(chosen.splits) == {"train", "validation"}
    assert all(len(splits) == 1 for splits in sides(chosen).values())


def opened_in_two(folder: Path, out: Path) -> int:
    distributed.join()
    data = open_data(folder)
    lines = [f"{split} {name}" for split, each in names(data).items() for name in each]
    (out / str(distributed.rank())).write_text("\n".join([data.fingerprint, *lines]))
    return 0


def test_several_processes_make_the_splits_of_one(tmp_path: Path) -> None:
    folder = write_exposures(tmp_path / "photos", {"cat": 8, "dog": 8})
    for done in job(2, opened_in_two, folder, tmp_path):
        assert done.returncode == 0, done.stderr[-2000:]
    data = open_data(folder)
    lines = [f"{split} {name}" for split, each in names(data).items() for name in each]
    for rank in "01":
        assert (tmp_path / rank).read_text() == "\n".join([data.fingerprint, *lines])

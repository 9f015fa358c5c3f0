"""Regions as files: what COCO's readers, annotation tools, biologists and eyes get."""

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.classifier.test_predicted_regions import PHOTO, SIZE, disc, instances
from vitral.classifier.bulk.write_regions import check_regions_out, class_png, write_regions
from vitral.classifier.predicted_regions import PredictedRegions
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data
from vitral.data.source import BadImage
from vitral.errors import ImageError, StorageError
from vitral.events import ignore
from vitral.images.run_lengths import decode_mask, runs_of_text
from vitral.tasks.regions import FoundRegions, Regions

NAMES = ("red", "white")


def found_in(source: str) -> PredictedRegions:
    return PredictedRegions(source, instances().found, NAMES, pixels=lambda: PHOTO)


def semantic(source: str) -> PredictedRegions:
    labels = np.where(disc(20, 20, 10), 1, 0)
    return PredictedRegions(source, FoundRegions(Regions.of_map(labels), np.ones(2), labels), NAMES, counted=False)


def boxes(source: str) -> PredictedRegions:
    regions = Regions.of_boxes(SIZE, [0, 1], [[1, 2, 11, 22], [3.5, 4, 10, 10]])
    return PredictedRegions(source, FoundRegions(regions, np.array([0.9, 0.5])), NAMES)


def read(path: Path) -> tuple[str, np.ndarray]:
    with Image.open(path) as image:
        return image.mode, np.asarray(image)


def test_objects_come_back_from_the_files(tmp_path: Path) -> None:
    written = write_regions(
        [found_in("photos/a/1.jpg"), found_in("photos/b/1.jpg")], tmp_path / "out", NAMES, inputs=["photos"]
    )
    assert (written.images, written.regions, written.errors) == (2, 6, 0)
    coco = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [image["file_name"] for image in coco["images"]] == ["a/1.jpg", "b/1.jpg"]
    assert [category["name"] for category in coco["categories"]] == [*NAMES]
    mask = instances().mask
    assert mask is not None
    for row, region in zip(coco["annotations"][:3], mask, strict=True):
        assert (decode_mask(runs_of_text(row["segmentation"]["counts"]), SIZE) == region).all()
    assert (read(tmp_path / "out" / "labels" / "b" / "1.png")[1] == instances().class_map).all()
    mode, objects = read(tmp_path / "out" / "instances" / "b" / "1.png")
    assert mode.startswith("I;16")
    assert ((objects == 1) == mask[0]).all()
    assert read(tmp_path / "out" / "overlays" / "a" / "1.jpg")[1].shape[1] >= 640


@pytest.mark.parametrize("make", [found_in, boxes])
def test_what_was_written_is_read_as_truth(tmp_path: Path, make: Callable[[str], PredictedRegions]) -> None:
    sources = [tmp_path / "photos" / folder / f"{number}.png" for folder in "ab" for number in range(4)]
    for number, source in enumerate(sources):
        source.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((*SIZE, 3), 9 * number, dtype=np.uint8)).save(source)
    write_regions([make(str(source)) for source in sources], tmp_path / "out", NAMES, inputs=[tmp_path / "photos"])
    shutil.copy(tmp_path / "out" / "predictions.json", tmp_path / "photos")
    data = open_data(tmp_path / "photos", listener=ignore)
    own = make("").found.regions
    assert data.class_names == NAMES
    assert sum(map(len, data.splits.values())) == len(sources)
    for split in data.splits.values():
        truth = split.label(0)
        assert isinstance(truth, Regions)
        assert (truth.classes == own.classes).all()
        assert (truth.boxes == own.boxes).all()
        if own.masks is not None:
            assert (truth.bitmaps() == own.bitmaps()).all()


@pytest.mark.parametrize("kind", ["", "zip", "tar"])
def test_what_was_found_is_neither_photos_nor_marked_in_them(tmp_path: Path, kind: str) -> None:
    photos = tmp_path / "cells"
    sources = [photos / f"{number}.png" for number in range(6)]
    for number, source in enumerate(sources):
        source.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((*SIZE, 3), 9 * number, dtype=np.uint8)).save(source)
    truth = {str(source): boxes(str(source)) for source in sources}
    write_regions(truth.values(), tmp_path / "truth", NAMES, inputs=[photos])
    shutil.copy(tmp_path / "truth" / "predictions.json", photos / "z.json")
    write_regions(map(found_in, truth), photos / "found", NAMES, inputs=[photos])
    where = Path(shutil.make_archive(str(tmp_path / "packed"), kind, photos)) if kind else photos
    data = open_data(where, listener=ignore)
    labels = [split.label(index) for split in data.splits.values() for index in range(len(split))]
    assert len(labels) == len(sources)
    assert all(isinstance(label, Regions) and len(label) == 2 and label.masks is None for label in labels)
    assert any("written by Vitral itself, skipped: found" in note for note in data.notes)
    named = [image.name for image in list_unlabelled(str(where))]
    assert sorted(Path(name.rpartition(":")[2]).name for name in named) == [source.name for source in sources]


def test_nothing_is_written_among_the_photos(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").touch()
    for inputs in (["photos"], ["photos/1.jpg", "photos/"]):
        with pytest.raises(StorageError, match="part of one"):
            check_regions_out(tmp_path / "photos" / "found", [tmp_path / name for name in inputs])
    check_regions_out(tmp_path / "photos" / "found", [tmp_path / "photos" / "1.jpg"])
    check_regions_out(tmp_path / "found", [tmp_path / "photos"])


def test_the_table_counts_regions_and_says_what_cannot_be_read(tmp_path: Path) -> None:
    write_regions([BadImage("=bad.jpg", "no image"), found_in("x/1.jpg")], tmp_path / "out", ("photo", "error"))
    rows = list(csv.reader(io.StringIO((tmp_path / "out" / "counts.csv").read_text())))
    heads = ["photo", "width", "height", "photo", "error", "all regions"]
    shares = ["photo, % of the photo", "error, % of the photo", "error"]
    areas = [
        f"{100 * disc(50, 30, 15).sum() / 4800:.4g}",
        f"{100 * (disc(20, 20, 10).sum() + disc(25, 22, 9).sum()) / 4800:.4g}",
    ]
    assert rows == [
        heads + shares,
        ["'=bad.jpg", *[""] * 7, "no image"],
        ["1.jpg", "80", "60", "1", "2", "3", *areas, ""],
    ]


def test_a_class_for_each_pixel_is_a_map_with_colours_and_no_counts(tmp_path: Path) -> None:
    written = write_regions([semantic("1.jpg")], tmp_path / "out", NAMES)
    assert not (tmp_path / "out" / "instances").exists()
    assert (read(tmp_path / "out" / "labels" / "1.png")[1] == np.where(disc(20, 20, 10), 1, 0)).all()
    assert (tmp_path / "out" / "counts.csv").read_text().splitlines()[0].split(",")[3] == '"red'
    assert "region" not in written.lines()[0]


def test_boxes_have_no_maps(tmp_path: Path) -> None:
    write_regions([boxes("1.jpg")], tmp_path / "out", NAMES)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["counts.csv", "predictions.json"]
    coco = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert coco["annotations"][1]["bbox"] == [3.5, 4, 6.5, 6]


def test_more_than_255_classes_need_16_bits() -> None:
    labels = np.array([[0, 300, 255]])
    image = Image.open(io.BytesIO(class_png(labels, [str(number) for number in range(301)])))
    assert np.asarray(image).tolist() == [[0, 300, 65535]]
    assert Image.open(io.BytesIO(class_png(labels[:, :1], NAMES))).mode == "P"


def test_names_stay_apart_and_in_the_folder(tmp_path: Path) -> None:
    sources = ["../../etc/1.jpg", "1.png", "image 3", "C:\\photos\\2.jpg", "..", "https://example.org/1.webp"]
    write_regions([found_in(source) for source in sources], tmp_path / "out", NAMES)
    names = {
        path.relative_to(tmp_path / "out" / "overlays").as_posix()
        for path in (tmp_path / "out" / "overlays").rglob("*.jpg")
    }
    assert names == {"1.jpg", "1-png.jpg", "image 3.jpg", "2.jpg", "photo.jpg", "1-webp.jpg"}


@pytest.mark.parametrize(
    "named", ["photos", "./photos/", "photos/../photos", ".", "..", "photos.zip", "./photos.tar.gz"]
)
def test_photos_of_one_name_keep_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    here = tmp_path / "work"
    for number, place in enumerate(("a/1.png", "b/1.png", "b/2.png", "c/d/1.png")):
        photo = here / "photos" / place
        photo.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((*SIZE, 3), 9 * number, dtype=np.uint8)).save(photo)
    monkeypatch.chdir(here / "photos" if named == ".." else here)
    if "." in named.strip("./"):
        shutil.make_archive(str(here / "photos"), "zip" if named.endswith("zip") else "gztar", here / "photos")
    sources = [image.name for image in list_unlabelled(named)]
    write_regions(map(found_in, sources), tmp_path / "out", NAMES, inputs=[named])
    written = [
        image["file_name"] for image in json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]
    ]
    inside = ["a/1.png", "b/1.png", "b/2.png", "c/d/1.png"]
    assert sorted(written) == [f"photos/{name}" if named in (".", "..") else name for name in inside]
    shutil.copy(tmp_path / "out" / "predictions.json", here / "photos")
    data = open_data(here / "photos", listener=ignore)
    assert sum(map(len, data.splits.values())) == len(inside)


def test_names_that_occur_twice_are_whole_paths(tmp_path: Path) -> None:
    sources = [
        "a/1.jpg",
        "b/1.jpg",
        "C:\\c\\1.jpg",
        "x.zip:1.jpg",
        "y.zip:e/1.jpg",
        "photos\\cats\\1.jpg",
        "//host/f/1.jpg",
    ]
    inputs = ["a/1.jpg", "b/1.jpg", "C:\\c\\1.jpg", "x.zip", "y.zip", "photos", "//host/f/1.jpg"]
    write_regions(map(found_in, sources), tmp_path / "out", NAMES, inputs=inputs)
    written = [
        image["file_name"] for image in json.loads((tmp_path / "out" / "predictions.json").read_text())["images"]
    ]
    assert written == ["1.jpg", "b/1.jpg", "C/c/1.jpg", "x.zip/1.jpg", "e/1.jpg", "cats/1.jpg", "host/f/1.jpg"]
    assert len(list((tmp_path / "out" / "overlays").rglob("*.jpg"))) == len(sources)


def test_nothing_is_half_written(tmp_path: Path) -> None:
    def interrupted() -> Iterator[PredictedRegions]:
        yield found_in("1.jpg")
        raise ImageError("stop")

    with pytest.raises(ImageError, match="stop"):
        write_regions(interrupted(), tmp_path / "out", NAMES)
    with pytest.raises(ImageError, match="1 photo .*no image"):
        write_regions([BadImage("1.jpg", "no image.")], tmp_path / "out", NAMES)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"notes\.txt"):
        check_regions_out(tmp_path, [], overwrite=True)

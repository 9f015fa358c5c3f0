"""Which column of a table, or which file of a shard's example, holds the image and which its class: one rule for every door."""

import csv
import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.written import encode
from vitral.data.column_values import values_by
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import columns_in, open_data
from vitral.data.source import DataSet
from vitral.errors import DataError
from vitral.images.decode import read_image

COUNT = 24
PHOTOS = [encode(0, number) for number in range(COUNT)]


def mask(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.pad(np.full((4, 6), 255, np.uint8), ((number % 8, 8 - number % 8), (5, 5)))).save(buffer, "PNG")
    return buffer.getvalue()


MASKS = [mask(number) for number in range(COUNT)]
SPECIES = [("cat", "dog", "bird")[number % 3] for number in range(COUNT)]
SIZES = [("large", "small")[number % 2] for number in range(COUNT)]
Columns = Mapping[str, Sequence[object]]
ENCODED = datasets.Image()


def read_of(data: DataSet) -> dict[bytes, str | tuple[str, ...]]:
    """Return the classes of each image by its pixels."""
    return {
        source.image(index).tobytes(): data.class_names[int(source.labels()[index])]
        for source in data.splits.values()
        for index in range(len(source))
    }


def expected(images: list[bytes], classes: list[str]) -> dict[bytes, str]:
    return {read_image(image).tobytes(): name for image, name in zip(images, classes, strict=True)}


def dataset(columns: Columns) -> datasets.Dataset:
    """Return columns of images and of declared classes, by what they hold."""
    features = {
        name: ENCODED if isinstance(values[0], bytes) else datasets.ClassLabel(names=sorted(set(map(str, values))))
        for name, values in columns.items()
    }
    cells = {
        name: [{"bytes": value, "path": None} if isinstance(value, bytes) else value for value in values]
        for name, values in columns.items()
    }
    return datasets.Dataset.from_dict(cells, features=datasets.Features(features))


def saved(root: Path, columns: Columns) -> Path:
    dataset(columns).save_to_disk(root / "saved")
    return root / "saved"


def parquet(root: Path, columns: Columns) -> Path:
    (root / "parquet").mkdir(parents=True)
    dataset(columns).to_parquet(root / "parquet" / "train.parquet")
    return root / "parquet"


def plain_parquet(root: Path, columns: Columns) -> Path:
    root.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), root / "plain.parquet")
    return root / "plain.parquet"


DOORS: list[Callable[[Path, Columns], Path]] = [saved, parquet, plain_parquet]


@pytest.mark.filterwarnings("ignore")
@every_case("write", DOORS, ids=lambda write: write.__name__)
def test_the_column_called_image_is_meant_in_every_door(tmp_path: Path, write: Callable[[Path, Columns], Path]) -> None:
    path = write(tmp_path, {"mask": MASKS, "image": PHOTOS, "label": SPECIES})
    data = open_data(path)
    assert read_of(data) == expected(PHOTOS, SPECIES)
    assert any("'image'" in note and "'mask'" in note and "columns:image=" in note for note in data.notes)
    masks = open_data(f"columns:image=mask:{path}")
    assert set(read_of(masks)) == {read_image(content).tobytes() for content in MASKS}
    assert masks.fingerprint
    assert open_data(f"unlabelled:columns:image=mask:{path}").class_names == ("unlabelled",)
    assert len(open_data(f"part:50%:columns:image=mask:{path}").splits["train"]) < len(masks.splits["train"])


@pytest.mark.filterwarnings("ignore")
@every_case("write", DOORS, ids=lambda write: write.__name__)
def test_of_two_columns_of_images_the_user_chooses(tmp_path: Path, write: Callable[[Path, Columns], Path]) -> None:
    path = write(tmp_path, {"segmentation": MASKS, "view": PHOTOS, "label": SPECIES})
    for spec in (str(path), f"unlabelled:{path}"):
        with pytest.raises(
            DataError, match=r"'segmentation'.*'view'.*columns:image=segmentation:.*columns:image=view:"
        ):
            open_data(spec)
    assert read_of(open_data(f"columns:image=view:{path}")) == expected(PHOTOS, SPECIES)
    with pytest.raises(DataError, match="no column 'scan'.*view"):
        open_data(f"columns:image=scan:{path}")


@pytest.mark.filterwarnings("ignore")
@every_case("write", DOORS, ids=lambda write: write.__name__)
def test_of_two_columns_of_classes_the_user_chooses(tmp_path: Path, write: Callable[[Path, Columns], Path]) -> None:
    path = write(tmp_path, {"img": PHOTOS, "coarse_label": SIZES, "fine_label": SPECIES})
    with pytest.raises(DataError, match="'coarse_label', 'fine_label'.*columns:label=coarse_label:"):
        open_data(path)
    for name, classes in (("fine_label", SPECIES), ("coarse_label", SIZES)):
        assert read_of(open_data(f"columns:label={name}:{path}")) == expected(PHOTOS, classes)
    both = write(tmp_path / "both", {"photo": PHOTOS, "coarse_label": SIZES, "label": SPECIES, "mask": MASKS})
    data = open_data(f"columns:label=coarse_label,image=photo:{both}")
    assert read_of(data) == expected(PHOTOS, SIZES)
    data = open_data(f"columns:image=photo:{both}")
    assert read_of(data) == expected(PHOTOS, SPECIES)
    assert any("'label'" in note and "'coarse_label'" in note for note in data.notes)


@pytest.mark.filterwarnings("ignore")
@every_case("write", [saved, parquet], ids=lambda write: write.__name__)
def test_images_and_boxes_are_no_classes(tmp_path: Path, write: Callable[[Path, Columns], Path]) -> None:
    assert open_data(write(tmp_path / "masks", {"image": PHOTOS, "label": MASKS})).task.name == "semantic"
    both = plain_parquet(tmp_path / "both", {"path": ["gone.png"] * COUNT, "bytes": PHOTOS, "label": SPECIES})
    assert read_of(open_data(both)) == expected(PHOTOS, SPECIES)
    boxes: list[object] = [[{"box": [0.1, 0.2, 0.3, 0.4]}]] * COUNT
    with pytest.raises(DataError, match="no column of classes.*image, labels"):
        open_data(plain_parquet(tmp_path, {"image": PHOTOS, "labels": boxes}))
    alone = write(tmp_path, {"label": SPECIES, "scan": PHOTOS})
    assert read_of(open_data(alone)) == expected(PHOTOS, SPECIES)


def test_columns_of_a_text_table_are_chosen_likewise(tmp_path: Path) -> None:
    for number, content in enumerate(PHOTOS):
        (tmp_path / f"{number}.png").write_bytes(content)
    rows = [["id", "category", "class", "site"]]
    rows += [[f"{number}.png", SPECIES[number], SIZES[number], f"s{number % 4}"] for number in range(COUNT)]
    table = tmp_path / "photos.csv"
    with open(table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(DataError, match="'category', 'class'.*columns:label=category:"):
        open_data(f"columns:image=id:{table}")
    spec = f"columns:image=id,label=class:{table}"
    data = open_data(spec)
    assert read_of(data) == expected(PHOTOS, SIZES)
    assert columns_in(f"part:50%:{spec}") == {"image": "id", "label": "class"}
    sites = values_by(spec, data.splits["train"], "site")
    names = [Path(data.splits["train"].describe(index)).stem for index in range(len(sites))]
    assert list(sites) == [f"s{int(name) % 4}" for name in names]


def test_what_has_no_columns_has_none_to_choose(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(encode(ord(name), number))
    with pytest.raises(DataError, match="no columns to choose"):
        open_data(f"columns:image=photo:{tmp_path / 'photos'}")
    for spec in ("columns:photo:x", "columns:image=:x", "columns:image=a,image=b:x", "columns:image=a:", "columns:"):
        with pytest.raises(DataError, match="columns:image=NAME,label=NAME:SOURCE"):
            open_data(spec)


def shards(root: Path, files: Callable[[int], dict[str, bytes | str]], name: str = "train-0.tar") -> Path:
    """Write a shard with the files of each example, and a second of half of them."""
    root.mkdir(exist_ok=True)
    for shard, numbers in ((name, range(COUNT)), (name.replace("0", "1"), range(COUNT // 2))):
        with tarfile.open(root / shard, "w") as archive:
            for number in numbers:
                for member, content in files(number).items():
                    data = content.encode() if isinstance(content, str) else content
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return root


def caption(number: int) -> str:
    return f"a {SIZES[number]} {SPECIES[number]}, number {number}"


READ: dict[str, Callable[[int], dict[str, bytes | str]]] = {
    "a mask under a further name": lambda n: {f"{n}.seg.png": MASKS[n], f"{n}.jpg": PHOTOS[n], f"{n}.cls": SPECIES[n]},
    "caption and metadata beside a class": lambda n: {
        f"{n}.json": '{"url": "x"}',
        f"{n}.txt": caption(n),
        f"{n}.png": PHOTOS[n],
        f"{n}.cls": SPECIES[n],
    },
    "metadata beside a class's name": lambda n: {f"{n}.json": "{}", f"{n}.txt": SPECIES[n], f"{n}.png": PHOTOS[n]},
    "the class in metadata": lambda n: {f"{n}.json": f'{{"label": "{SPECIES[n]}"}}', f"{n}.png": PHOTOS[n]},
    "dots in names": lambda n: {f"a.b/img.v2.{n}.png": PHOTOS[n], f"a.b/img.v2.{n}.cls": SPECIES[n]},
    "decimals in names": lambda n: {f"{n}.5.png": PHOTOS[n], f"{n}.5.txt": SPECIES[n]},
    "dots in some names": lambda n: {f"{n}{'.x' * (n % 2)}.png": PHOTOS[n], f"{n}{'.x' * (n % 2)}.cls": SPECIES[n]},
    "one image under a further name": lambda n: {f"{n}.rgb.png": PHOTOS[n], f"{n}.cls": f'"{SPECIES[n]}"\n'},
    "a class under a further name": lambda n: {f"{n}.png": PHOTOS[n], f"{n}.label.txt": SPECIES[n]},
    "what systems leave": lambda n: {
        f"@eaDir/{n}.png/thumb.png": MASKS[n],
        f"{n}.png": PHOTOS[n],
        f"__MACOSX/{n}.png": MASKS[n],
        f"{n}.cls": SPECIES[n],
    },
}


@every_case("case", READ)
def test_the_files_of_an_example_are_told_apart(tmp_path: Path, case: str) -> None:
    assert read_of(open_data(shards(tmp_path / "shards", READ[case]))) == expected(PHOTOS, SPECIES)


REFUSED: list[tuple[Callable[[int], dict[str, bytes | str]], str, str | None]] = [
    (
        lambda n: {f"{n}.jpg": PHOTOS[n], f"{n}.png": MASKS[n], f"{n}.cls": SPECIES[n]},
        "'jpg', 'png'.*columns:image=jpg:",
        "columns:image=jpg:",
    ),
    (
        lambda n: {f"{n}.0.jpg": PHOTOS[n], f"{n}.1.jpg": MASKS[n], f"{n}.cls": SPECIES[n]},
        r"'0\.jpg', '1\.jpg'.*columns:image=0\.jpg:",
        "columns:image=0.jpg:",
    ),
    (
        lambda n: {f"{n}.png": PHOTOS[n], f"{n}.txt": SPECIES[n], f"{n}.json": f'{{"label": "{SIZES[n]}"}}'},
        "'txt', 'json'.*columns:label=txt:",
        "columns:label=txt:",
    ),
    (
        lambda n: {f"{n}.png": PHOTOS[n], f"{n}.species.txt": SPECIES[n], f"{n}.size.txt": SIZES[n]},
        r"'species\.txt', 'size\.txt'",
        "columns:label=species.txt:",
    ),
    (lambda n: {f"{n}.png": PHOTOS[n], f"{n}.txt": caption(n)}, r"captions.*columns:label=txt:", None),
    (lambda n: {f"{n}.png": PHOTOS[n], f"{n}.txt": f"{n % 3} 0.5 0.5 0.25 0.25"}, "boxes.*0 0.5 0.5", None),
    (lambda n: {f"{n}.png": PHOTOS[n], f"{n}.txt": "0 0.5 0.5 0.1 0.1\n1 0.2 0.2 0.1 0.1\n"}, "boxes", None),
    (lambda n: {f"{n}.png": PHOTOS[n], f"{n}.txt": caption(n), f"{n}.json": '{"w": 3}'}, "captions", None),
    (lambda n: {f"{n % 20}.png": PHOTOS[n], f"{n}.cls": "0"}, r"0\.png' twice", None),
]


@every_case("place", range(len(REFUSED)))
def test_what_an_example_leaves_open_is_refused_with_the_choice(tmp_path: Path, place: int) -> None:
    files, message, choice = REFUSED[place]
    folder = shards(tmp_path / "shards", files)
    with pytest.raises(DataError, match=message):
        open_data(folder)
    if choice:
        assert read_of(open_data(f"{choice}{folder}")) == expected(PHOTOS, SPECIES)
        if "image=" in choice:
            with pytest.raises(DataError, match=message):
                list_unlabelled(str(folder))
            assert len(list_unlabelled(f"{choice}{folder}")) == COUNT + COUNT // 2
        with pytest.raises(DataError, match="gif"):
            open_data(f"columns:image=gif,label=gif:{folder}")


def test_texts_that_the_user_calls_classes_are(tmp_path: Path) -> None:
    folder = shards(tmp_path / "shards", lambda n: {f"{n}.png": PHOTOS[n], f"{n}.txt": caption(n // 2)})
    assert len(open_data(f"columns:label=txt:{folder}").class_names) == COUNT // 2


def test_captions_beside_the_images_of_class_folders_leave_an_archive_one(tmp_path: Path) -> None:
    folder = shards(tmp_path, lambda n: {f"{SPECIES[n]}/{n}.png": PHOTOS[n], f"{SPECIES[n]}/{n}.txt": caption(n)})
    assert read_of(open_data(folder / "train-0.tar")) == expected(PHOTOS, SPECIES)


def test_names_stand_beside_declared_classes(tmp_path: Path) -> None:
    folder = shards(tmp_path / "shards", lambda n: {f"{n}.png": PHOTOS[n], f"{n}.cls": SPECIES[n]})
    (folder / "classes.txt").write_text("dog\ncat\nbird\n")
    assert open_data(folder).class_names == ("dog", "cat", "bird")
    (folder / "classes.txt").write_text("dog\ncat\n")
    with pytest.raises(DataError, match="number of a class or its name, not 'bird'"):
        open_data(folder)

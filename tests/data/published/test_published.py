"""Published datasets in their authors' own forms: the right images with the right labels in the right splits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases import every_case
from tests.data.published.written import (
    CIFAR10,
    NUMBERED,
    PETS,
    SYNSETS,
    cifar10_files,
    cifar100_files,
    devkit_files,
    flowers_files,
    imagenet_archives,
    imagenet_class_tars,
    imagenet_folders,
    jpeg,
    meta_mat,
    pets_files,
    pixels,
    real_json,
    tar_of,
    training_files,
    v2_files,
    validation_files,
    write,
)
from vitral.data.open import open_data
from vitral.data.published.imagenet_classes import in_words_of, synsets
from vitral.data.source import DataSet
from vitral.errors import DataError
from vitral.images.decode import read_image

Files = Mapping[str, bytes]


def labels(data: DataSet, split: str) -> list[str]:
    return [data.class_names[label] for label in data.splits[split].labels().tolist()]


def same(data: DataSet, split: str, expected: Sequence[np.ndarray]) -> None:
    source = data.splits[split]
    assert len(source) == len(expected)
    for index, image in enumerate(expected):
        np.testing.assert_array_equal(source.image(index), image)


def test_cifar10_is_read_bit_for_bit_and_in_order(tmp_path: Path) -> None:
    write(tmp_path, cifar10_files())
    data = open_data(f"cifar10:{tmp_path}/cifar-10-batches-bin")
    assert data.class_names == CIFAR10
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 90, "validation": 10, "test": 20}
    same(data, "test", [pixels(500 + number) for number in range(20)])
    assert labels(data, "test") == [CIFAR10[number % 10] for number in range(20)]
    # Two percent of the training images are held out, at least one of each class; the others keep their order.
    held_out, train = data.splits["validation"], data.splits["train"]
    names = sorted(source.describe(index) for source in (held_out, train) for index in range(len(source)))
    assert len(set(names)) == 100
    assert train.describe(0).endswith(":data_batch_1.bin[0]") or held_out.describe(0).endswith(":data_batch_1.bin[0]")
    assert any("100 train images" in note and "CIFAR-10 has 50,000" in note for note in data.notes)


def test_the_authors_archive_is_read_as_it_is(tmp_path: Path) -> None:
    packed = tmp_path / "cifar-10-binary.tar.gz"
    packed.write_bytes(tar_of(cifar10_files(), "w:gz"))
    (tmp_path / "unpacked").mkdir()
    plain = open_data(f"cifar10:{write(tmp_path / 'unpacked', cifar10_files())}")
    for place in (packed, tmp_path):  # the archive, and a folder that holds it beside what was unpacked of it
        data = open_data(f"cifar10:{place}")
        assert data.inventory == plain.inventory
        same(data, "test", [pixels(500 + number) for number in range(20)])


def test_both_labels_of_cifar100(tmp_path: Path) -> None:
    write(tmp_path, cifar100_files())
    fine, coarse = open_data(f"cifar100:{tmp_path}"), open_data(f"cifar100-coarse:{tmp_path}")
    assert labels(fine, "test") == [f"fine{number}" for number in range(100)]
    assert labels(coarse, "test") == [f"coarse{number // 5}" for number in range(100)]
    same(fine, "test", [pixels(number) for number in range(100)])


def test_pets_have_the_authors_splits_and_the_order_of_their_numbers(tmp_path: Path) -> None:
    data = open_data(f"pets:{write(tmp_path, pets_files())}")
    assert data.class_names == PETS
    assert labels(data, "test") == [breed for breed in PETS for _ in range(3)]
    same(data, "test", [read_image(jpeg(100 * number + image)) for number in (1, 2, 3) for image in (6, 7, 8)])
    assert len(data.splits["train"]) + len(data.splits["validation"]) == 15


def test_pets_archives_are_read_as_they_are(tmp_path: Path) -> None:
    files = pets_files()
    for part in ("images", "annotations"):
        inside = {name: content for name, content in files.items() if name.startswith(part)}
        (tmp_path / f"{part}.tar.gz").write_bytes(tar_of(inside, "w:gz"))
    data = open_data(f"pets:{tmp_path}")
    assert labels(data, "test") == [breed for breed in PETS for _ in range(3)]


def test_flowers_train_on_the_small_split_and_test_on_the_large_one(tmp_path: Path) -> None:
    data = open_data(f"flowers102:{write(tmp_path, flowers_files())}")
    assert len(data.class_names) == 102
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 3, "validation": 3, "test": 6}
    assert labels(data, "train") == ["7", "1", "102"]  # of the images 9, 1 and 2
    same(data, "train", [read_image(jpeg(number)) for number in (9, 1, 2)])


def test_flowers_archive_is_read_beside_the_labels(tmp_path: Path) -> None:
    files = flowers_files()
    images = {name: content for name, content in files.items() if name.startswith("jpg/")}
    write(tmp_path, {name: content for name, content in files.items() if name not in images})
    (tmp_path / "102flowers.tgz").write_bytes(tar_of(images, "w:gz"))
    same(open_data(f"flowers102:{tmp_path}"), "train", [read_image(jpeg(number)) for number in (9, 1, 2)])


def arranged(files: Files) -> dict[str, bytes]:
    """ImageNet as most people keep it: the validation images in folders of their classes."""
    classes = ("n01440764", "n15075141", "n01443537", "n01440764", "n15075141")
    images = zip(classes, validation_files().items(), strict=True)
    moved = {f"val/{synset}/{name}": content for synset, (name, content) in images}
    return {**{name: content for name, content in files.items() if name.startswith("train/")}, **moved}


def beside(folder: str) -> dict[str, bytes]:
    """The authors' archives, that of the training images unpacked beside itself."""
    unpacked = {f"{synset}/{name}": image for synset, own in training_files().items() for name, image in own.items()}
    return {**imagenet_archives(), **{f"{folder}{name}": content for name, content in unpacked.items()}}


FORMS = {
    "folders": imagenet_folders(),
    "archives": imagenet_archives(),
    "validation images in folders": arranged(imagenet_folders()),
    "validation images in folders beside the training tar": {
        **{name: content for name, content in arranged(imagenet_folders()).items() if name.startswith("val/")},
        "ILSVRC2012_img_train.tar": imagenet_archives()["ILSVRC2012_img_train.tar"],
    },
    "unpacked at the root, the archive kept": beside(""),
    "unpacked in a folder of its name, the archive kept": beside("ILSVRC2012_img_train/"),
    "unpacked in train, the archive kept": beside("train/"),
    "a tar a class": imagenet_class_tars(),
    "a tar a class, the archive of them kept": {**imagenet_archives(), **imagenet_class_tars()},
}


@every_case("files", FORMS.values(), ids=FORMS)
def test_imagenet_is_the_same_in_each_of_its_forms(tmp_path: Path, files: Files) -> None:
    data = open_data(f"imagenet:{write(tmp_path, files)}")
    assert data.class_names == synsets()
    # The devkit numbers the classes in an order of its own.
    assert data.splits["test"].labels().tolist() == [0, 999, 1, 0, 999]
    same(data, "test", [read_image(jpeg(900 + number)) for number in range(1, 6)])
    trained = [
        (data.splits[split].describe(index).replace(":", "/").rpartition("/")[2], label)
        for split in ("train", "validation")
        for index, label in enumerate(data.splits[split].labels().tolist())
    ]
    of_synset = {synset: index for index, (synset, _) in SYNSETS.items()}
    expected = [(name, of_synset[synset]) for synset, images in training_files().items() for name in images]
    assert sorted(trained) == sorted(expected)
    first = data.splits["train"]
    name = first.describe(0).replace(":", "/").rpartition("/")[2].removesuffix(".JPEG")
    seed = 1000 * of_synset[name.split("_")[0]] + int(name.split("_")[1])
    np.testing.assert_array_equal(first.image(0), read_image(jpeg(seed)))


def test_a_thousand_tars_are_read_with_few_open_files(tmp_path: Path) -> None:
    tars = {f"train/{synset}.tar": tar_of({f"{synset}_1.JPEG": jpeg(1)}) for synset in synsets()[:40]}
    data = open_data(f"imagenet:{write(tmp_path, tars)}")
    before = len(list(Path("/proc/self/fd").iterdir()))
    read = [source.image(index) for source in data.splits.values() for index in range(len(source))]
    assert len(read) == 40
    assert len(list(Path("/proc/self/fd").iterdir())) - before < 20


def test_imagenet_for_scoring_alone_needs_no_training_images(tmp_path: Path) -> None:
    files = {name: content for name, content in imagenet_archives().items() if "train" not in name}
    data = open_data(f"imagenet:{write(tmp_path, files)}", class_names=NUMBERED)
    assert list(data.splits) == ["test"]
    assert data.splits["test"].labels().tolist() == [0, 999, 1, 0, 999]
    with pytest.raises(DataError, match="no training images, only test"):
        open_data(f"imagenet:{tmp_path}")


def test_images_of_reassessed_imagenet_without_a_label_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {**imagenet_archives(), "real.json": real_json([[0], [], [7, 3], [999], []])})
    data = open_data(f"imagenet-real:{tmp_path}", class_names=NUMBERED)
    source = data.splits["test"]
    assert [source.label(index) for index in range(len(source))] == [(0,), (3, 7), (999,)]
    same(data, "test", [read_image(jpeg(900 + number)) for number in (1, 3, 4)])
    assert any(note.startswith("2 of the 5 images have no right label") for note in data.notes)


def test_the_folders_of_imagenet_v2_are_indices(tmp_path: Path) -> None:
    write(tmp_path, v2_files())
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / "imagenetv2-matched-frequency.tar.gz"
    packed.write_bytes(tar_of(v2_files(), "w:gz"))
    for place in (tmp_path / "imagenetv2-matched-frequency-format-val", packed, packed.parent):
        data = open_data(f"imagenet-v2:{place}", class_names=synsets())
        assert data.splits["test"].labels().tolist() == [0, 0, 2, 2, 10, 10, 999, 999]  # not 0, 10, 2: by number
        same(data, "test", [read_image(jpeg(10 * index + image)) for index in (0, 2, 10, 999) for image in (0, 1)])


def test_classifiers_name_imagenets_classes_in_several_ways() -> None:
    transformers = [names.split(",")[0].replace("_", " ") for _, names in IMAGENET]
    transformers[134], transformers[517] = "crane (134)", "crane (517)"
    transformers[7] = "rooster"  # one that another source spells in another way
    whole = [names for _, names in IMAGENET]
    for known in (NUMBERED, [str(index) for index in range(1000)], transformers, whole):
        assert in_words_of(known) == tuple(known)
    assert in_words_of(None) == synsets() == in_words_of(["n01440764", "n01443537"])
    for wrong in (transformers[::-1], ["cat", "dog"], NUMBERED[:999]):
        with pytest.raises(DataError, match="not ImageNet's 1,000") as caught:
            in_words_of(wrong)
        assert f"it has {wrong[0]}, {wrong[1]}" in str(caught.value)
        assert "ImageNet has tench, goldfish, great white shark" in str(caught.value)


def test_plain_folders_and_tables_of_imagenet_suit_classifiers_that_name_it_otherwise(tmp_path: Path) -> None:
    write(
        tmp_path / "plain", {name: content for name, content in imagenet_folders().items() if name.startswith("train")}
    )
    data = open_data(tmp_path / "plain", class_names=NUMBERED, trained_on="")
    assert sorted(set(data.splits["train"].labels().tolist())) == [0, 1, 999]
    names = [names for _, names in IMAGENET]
    names[134], names[638] = (
        "crane bird",
        "maillot, one-piece",
    )  # as that dataset tells them from those of the same name
    declared = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
    table = pa.table({"image": [jpeg(1), jpeg(2)], "label": [7, 134]})
    (tmp_path / "table").mkdir()
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(declared)}), tmp_path / "table" / "test.parquet"
    )
    assert open_data(tmp_path / "table", class_names=NUMBERED).splits["test"].labels().tolist() == [7, 134]
    with pytest.raises(DataError, match="The classifier has cat, dog; the data have n01440764"):
        open_data(tmp_path / "plain", class_names=["cat", "dog"])
    assert open_data(tmp_path / "plain").class_names == ("n01440764", "n01443537", "n15075141")


IMAGENET = [
    line.split("\t") for line in (Path("vitral") / "data/published/imagenet_classes.txt").read_text().splitlines()
]


def test_classes_that_do_not_match_are_shown_side_by_side(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="classifier .*cat, dog.* data .*Abyssinian, Bengal, american_bulldog"):
        open_data(f"pets:{write(tmp_path, pets_files())}", class_names=["cat", "dog"])


def test_the_devkit_is_read_as_its_authors_write_it() -> None:
    assert b"ILSVRC2012_ID" in meta_mat()
    assert len(devkit_files()) == 2

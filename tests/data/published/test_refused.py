"""Published datasets that are incomplete, damaged, of another form or not there: one line each, which says what to do."""

import gzip
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.cases import every_case
from tests.data.published.written import (
    NUMBERED,
    cifar10_files,
    cifar100_files,
    flowers_files,
    imagenet_archives,
    imagenet_folders,
    jpeg,
    matlab,
    meta_mat,
    pets_files,
    real_json,
    tar_of,
    training_files,
    v2_files,
    validation_files,
    write,
)
from vitral.data.open import open_data
from vitral.errors import DataError, VitralError

Files = Mapping[str, bytes]


def without(files: Files, name: str) -> dict[str, bytes]:
    assert any(path.endswith(name) for path in files)
    return {path: content for path, content in files.items() if not path.endswith(name)}


def changed(files: Files, name: str, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    assert any(path.endswith(name) for path in files)
    return {path: change(content) if path.endswith(name) else content for path, content in files.items()}


BAD: dict[str, tuple[str, Files, str]] = {
    "a batch is missing": (
        "cifar10",
        without(cifar10_files(), "data_batch_3.bin"),
        "no 'data_batch_3.bin'; unpack cifar-10",
    ),
    "a batch is cut short": (
        "cifar10",
        changed(cifar10_files(), "batch_2.bin", lambda content: content[:-7]),
        "has 61,453 bytes, which is no whole number of images",
    ),
    "a label is beyond the classes": (
        "cifar10",
        changed(cifar10_files(), "test_batch.bin", lambda content: b"\x0b" + content[1:]),
        "has the label 11, but CIFAR-10 has only 10 classes",
    ),
    "the names are of something else": (
        "cifar100",
        changed(cifar100_files(), "fine_label_names.txt", lambda content: b"cat\ndog"),
        "names 2 classes; CIFAR-100 has 100",
    ),
    "pickles": (
        "cifar10",
        {"cifar-10-batches-py/data_batch_1": pickle.dumps({b"data": 1}), "cifar-10-batches-py/test_batch": b""},
        "download the binary version, cifar-10-binary.tar.gz",
    ),
    "a pet's image is missing": ("pets", without(pets_files(), "Bengal_7.jpg"), "has no images/Bengal_7.jpg, named in"),
    "a list of pets is missing": ("pets", without(pets_files(), "/trainval.txt"), "has no 'annotations/trainval.txt'"),
    "a breed has two names": (
        "pets",
        changed(pets_files(), "/test.txt", lambda content: content.replace(b" 3 ", b" 1 ")),
        "gives breed 1 two names, 'Abyssinian' and 'Bengal'",
    ),
    "flowers without labels": ("flowers102", without(flowers_files(), "imagelabels.mat"), "no 'imagelabels.mat'; put"),
    "a flower is missing": ("flowers102", without(flowers_files(), "image_00012.jpg"), "has 12 labels for 11 images"),
    "too few labels": (
        "flowers102",
        changed(flowers_files(), "imagelabels.mat", lambda content: matlab(labels=np.ones((1, 9), np.uint8))),
        "has 9 labels for 12 images",
    ),
    "a flower's class is unknown": (
        "flowers102",
        changed(flowers_files(), "imagelabels.mat", lambda content: matlab(labels=np.full((1, 12), 103, np.uint8))),
        "has the label 103; the classes are 1 to 102",
    ),
    "a split names a flower that is not there": (
        "flowers102",
        changed(flowers_files(), "setid.mat", lambda content: matlab(trnid=[1], valid=[2], tstid=[77])),
        "no jpg/image_00077.jpg, named in setid.mat",
    ),
    **{
        f"{number} in {file}": (
            "flowers102",
            changed(flowers_files(), file, lambda content, made=made: matlab(**made)),  # type: ignore[misc]
            rf"'{file}' in .* has no list '\w+' of whole numbers from 1 on; it is damaged",
        )
        for number in (np.nan, np.inf, 1.5, 0, -1, 1e300)
        for file, made in {
            "imagelabels.mat": {"labels": np.array([number, *[1.0] * 11])},
            "setid.mat": {"trnid": np.array([[9, 1, number]]), "valid": [3], "tstid": [4]},
        }.items()
    },
    "a devkit's number is none": (
        "imagenet",
        changed(imagenet_folders(), "meta.mat", lambda content: meta_mat(np.inf)),
        "'meta.mat' in .* is not the devkit's list of classes",
    ),
    "a pet's image twice": (
        "pets",
        {**pets_files(), "copy/images/Bengal_7.jpg": jpeg(1)},
        r"holds an image twice \('.*copy/images/Bengal_7.jpg' and '.*'\); move one of the two",
    ),
    "pets' archive twice": (
        "pets",
        {
            **{name: content for name, content in pets_files().items() if not name.startswith("images")},
            **{name: tar_of({"images/Bengal_7.jpg": jpeg(1)}) for name in ("images.tar", "again/images.tar")},
        },
        r"holds an image twice \('.*/images.tar:images/Bengal_7.jpg' and '.*/again/images.tar:images/Bengal_7.jpg'\)",
    ),
    "a flower's image twice": (
        "flowers102",
        {**flowers_files(), "102flowers/jpg/image_00003.jpg": jpeg(1)},
        r"holds an image twice \('.*102flowers/jpg/image_00003.jpg' and '.*'\)",
    ),
    "a training image twice": (
        "imagenet",
        {**imagenet_folders(), "subset/n01440764/n01440764_2.JPEG": jpeg(1)},
        r"holds an image twice \('.*/subset/n01440764/n01440764_2.JPEG' and '.*/train/n01440764/n01440764_2.JPEG'\)",
    ),
    "a class's tar is cut short": (
        "imagenet",
        {"train/n01440764.tar": tar_of(training_files()["n01440764"])[:600]},
        "'.*/train/n01440764.tar' (is cut short|cannot be read as a tar file)",
    ),
    "damaged labels": (
        "flowers102",
        changed(flowers_files(), "setid.mat", lambda content: content[:150]),
        "'setid.mat' in .* cannot be read as a MATLAB file",
    ),
    "no devkit": (
        "imagenet",
        without(imagenet_archives(), "devkit_t12.tar.gz"),
        "put ILSVRC2012_devkit_t12.tar.gz there",
    ),
    "half a devkit": ("imagenet", without(imagenet_folders(), "meta.mat"), "no 'meta.mat'; put ILSVRC2012_devkit"),
    "a validation image is missing": (
        "imagenet",
        without(imagenet_folders(), "val_00000003.JPEG"),
        "has labels for 5 images, but there are 4 validation images",
    ),
    "a number of no class": (
        "imagenet",
        changed(imagenet_folders(), "ground_truth.txt", lambda content: content.replace(b"987", b"1001", 1)),
        "Line 2 of 'ILSVRC2012_validation_ground_truth.txt' in .* is '1001', no number of a class",
    ),
    "a folder of no class": (
        "imagenet",
        {**imagenet_folders(), "train/n00001740/n00001740_1.JPEG": jpeg(1)},
        "folder n00001740/, which is none of ImageNet's 1,000 classes",
    ),
    "an inner tar is cut short": (
        "imagenet",
        {"ILSVRC2012_img_train.tar": tar_of({"n01440764.tar": tar_of(training_files()["n01440764"])[:600]})},
        "'n01440764.tar' in .* cannot be read as a tar file",
    ),
    "nothing of it": ("imagenet", {"notes.txt": b"empty"}, "is not a complete ImageNet: it has no images of it"),
    "a validation image twice": (
        "imagenet",
        {**imagenet_folders(), "copy/ILSVRC2012_val_00000001.JPEG": jpeg(1)},
        "holds a validation image twice",
    ),
    "no reassessed labels": ("imagenet-real", imagenet_archives(), "no 'real.json'; fetch it from"),
    "reassessed labels of the wrong length": (
        "imagenet-real",
        {**imagenet_archives(), "real.json": real_json([[1]] * 6)},
        "'real.json' has labels for 6 images, but there are 5 validation images",
    ),
    "a reassessed label is beyond the classes": (
        "imagenet-real",
        {**imagenet_archives(), "real.json": real_json([[1], [1000], [], [], []])},
        "has the class 1000 for image 2; they are 0 to 999",
    ),
    "reassessed labels are cut short": (
        "imagenet-real",
        {**imagenet_archives(), "real.json": b"[[1], [2"},
        "cannot be read as JSON",
    ),
    "several sets of ImageNet-V2": (
        "imagenet-v2",
        {**v2_files(), **{f"imagenetv2-top-images-format-val/{name}": b"" for name in ("1/1.jpeg",)}},
        "holds several sets of images",
    ),
    "a folder beyond the classes": ("imagenet-v2", {"set/1000/0.jpeg": jpeg(1)}, "has a folder 1000/, but"),
    "nothing of ImageNet-V2": ("imagenet-v2", validation_files(), "no images in folders 0/ to 999/"),
}


@every_case("name", BAD)
def test_each_incomplete_set_is_one_line(tmp_path: Path, name: str) -> None:
    dataset, files, message = BAD[name]
    wanted = None if dataset in ("cifar10", "cifar100", "pets", "flowers102") else NUMBERED
    with pytest.raises(DataError, match=message) as caught:
        open_data(f"{dataset}:{write(tmp_path, files)}", class_names=wanted)
    assert "\n" not in str(caught.value)


def test_the_python_archive_is_refused_by_name_unopened(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(gzip.compress(b"whatever"))
    with pytest.raises(DataError, match="download the binary version, cifar-10-binary.tar.gz"):
        open_data(f"cifar10:{path}")


def test_what_zip_compresses_cannot_be_read_by_offset(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cifar.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in cifar10_files().items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match="zip .*CIFAR-10.* unpack it"):
        open_data(f"cifar10:{tmp_path / 'cifar.zip'}")


@every_case(
    ("files", "name"),
    [
        (cifar10_files(), "cifar10"),
        (cifar100_files(), "cifar100"),
        (pets_files(), "pets"),
        (flowers_files(), "flowers102"),
    ],
)
def test_a_published_dataset_that_is_not_named_says_how_to_name_it(tmp_path: Path, files: Files, name: str) -> None:
    with pytest.raises(DataError, match=f"name it so: {name}:{tmp_path}"):
        open_data(write(tmp_path, files))


@every_case("spec", ["cifar10", "cifar10:", "pets:/nowhere", "cifar12:x", "imagenet:tests/conftest.py"])
def test_a_dataset_that_is_not_there_is_one_line(spec: str) -> None:
    with pytest.raises(VitralError) as caught:
        open_data(spec)
    assert "\n" not in str(caught.value)

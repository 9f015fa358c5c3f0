"""Small datasets in the forms in which their authors give them out, every byte where theirs is."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

NUMBERED = [f"class {index}" for index in range(1000)]  # as weights without names have them
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Three of ImageNet's classes: index in the official order, WordNet's number, the devkit's number (its order is another).
SYNSETS = {0: ("n01440764", 449), 1: ("n01443537", 450), 999: ("n15075141", 987)}


def pixels(seed: int, side: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def jpeg(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed, 16)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def write(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def tar_of(files: Mapping[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def record(labels: Sequence[int], image: np.ndarray) -> bytes:
    """One image of CIFAR's binary version: labels, then all of red, all of green, all of blue, row by row."""
    return bytes(labels) + b"".join(image[:, :, channel].tobytes() for channel in range(3))


def cifar10_files(each: int = 20) -> dict[str, bytes]:
    """Image `number` of file `place` has the label `number % 10` and the pixels of the seed 100 * place + number."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    files = {
        f"cifar-10-batches-bin/{name}": b"".join(
            record([number % 10], pixels(100 * place + number)) for number in range(each)
        )
        for place, name in enumerate(names)
    }
    return {**files, "cifar-10-batches-bin/batches.meta.txt": ("\n".join(CIFAR10) + "\n\n").encode()}


def cifar100_files() -> dict[str, bytes]:
    """Image `number` has the fine label `number` and the coarse one `number // 5`."""
    images = b"".join(record([number // 5, number], pixels(number)) for number in range(100))
    return {
        "cifar-100-binary/train.bin": images + images,
        "cifar-100-binary/test.bin": images,
        "cifar-100-binary/fine_label_names.txt": "\n".join(f"fine{number}" for number in range(100)).encode(),
        "cifar-100-binary/coarse_label_names.txt": "\n".join(f"coarse{number}" for number in range(20)).encode(),
    }


PETS = ("Abyssinian", "american_bulldog", "Bengal")  # in the order of their numbers, 1 to 3, which is not that of ASCII


def pets_files() -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    lines: dict[str, list[str]] = {"trainval": [], "test": []}
    for number, breed in enumerate(PETS, 1):
        for image in range(1, 9):
            files[f"images/{breed}_{image}.jpg"] = jpeg(100 * number + image)
            lines["trainval" if image <= 5 else "test"].append(f"{breed}_{image} {number} 1 1")
    files |= {f"annotations/{name}.txt": ("\n".join(text) + "\n").encode() for name, text in lines.items()}
    every = ["#Image CLASS-ID SPECIES BREED ID", *lines["trainval"], *lines["test"]]
    files["annotations/list.txt"] = "\n".join(every).encode()
    files["annotations/trimaps/Abyssinian_1.png"] = b"never read"
    return files


def matlab(**variables: object) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, variables)
    return buffer.getvalue()


def flowers_files() -> dict[str, bytes]:
    """Twelve images of the classes 7, 1 and 102, image `n` of class `(7, 1, 102)[n % 3]`; the test split is the largest."""
    labels = [(7, 1, 102)[number % 3] for number in range(1, 13)]
    return {
        **{f"jpg/image_{number:05d}.jpg": jpeg(number) for number in range(1, 13)},
        "imagelabels.mat": matlab(labels=np.array([labels], dtype=np.uint8)),
        "setid.mat": matlab(
            trnid=np.array([[9, 1, 2]], dtype=np.uint16),
            valid=np.array([[3, 4, 5]], dtype=np.uint16),
            tstid=np.array([[6, 7, 8, 10, 11, 12]], dtype=np.uint16),
        ),
    }


def meta_mat(last: float = 1001) -> bytes:
    """The devkit's list of synsets, with one that is no leaf, whose number is the `last`."""
    rows: list[tuple[float | str, ...]] = [(number, synset, "words", "gloss", 0) for synset, number in SYNSETS.values()]
    rows.append((last, "n00001740", "entity", "gloss", 3))
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    return matlab(synsets=np.array([[row] for row in rows], dtype=kinds))


TRUTH = (449, 987, 450, 449, 987)  # of five validation images


def validation_files() -> dict[str, bytes]:
    return {f"ILSVRC2012_val_{number:08d}.JPEG": jpeg(900 + number) for number in range(1, 6)}


def devkit_files() -> dict[str, bytes]:
    truth = "".join(f"{number}\n" for number in TRUTH).encode()
    data = "ILSVRC2012_devkit_t12/data"
    return {f"{data}/ILSVRC2012_validation_ground_truth.txt": truth, f"{data}/meta.mat": meta_mat()}


def training_files(each: int = 4) -> dict[str, dict[str, bytes]]:
    """By synset the images of its tar or folder."""
    return {
        synset: {f"{synset}_{number}.JPEG": jpeg(1000 * index + number) for number in range(1, each + 1)}
        for index, (synset, _) in SYNSETS.items()
    }


def imagenet_folders() -> dict[str, bytes]:
    train = {
        f"train/{synset}/{name}": content
        for synset, files in training_files().items()
        for name, content in files.items()
    }
    validation = {f"val/{name}": content for name, content in validation_files().items()}
    return {**train, **validation, **devkit_files()}


def imagenet_archives() -> dict[str, bytes]:
    inner = {f"{synset}.tar": tar_of(files) for synset, files in training_files().items()}
    return {
        "ILSVRC2012_img_train.tar": tar_of(inner),
        "ILSVRC2012_img_val.tar": tar_of(dict(sorted(validation_files().items(), reverse=True))),  # in any order
        "ILSVRC2012_devkit_t12.tar.gz": tar_of(devkit_files(), "w:gz"),
    }


def imagenet_class_tars() -> dict[str, bytes]:
    """The tar of tars unpacked once, as the usual instructions begin; one of its tars is unpacked, too."""
    files = {name: content for name, content in imagenet_archives().items() if "train" not in name}
    training = training_files()
    unpacked = {f"train/n01443537/{name}": content for name, content in training["n01443537"].items()}
    tars = {f"train/{synset}.tar": tar_of(images) for synset, images in training.items()}
    return {**files, **tars, **unpacked}


def real_json(labels: Sequence[Sequence[int]]) -> bytes:
    return json.dumps([list(right) for right in labels]).encode()


def v2_files() -> dict[str, bytes]:
    folder = "imagenetv2-matched-frequency-format-val"
    return {f"{folder}/{index}/{image}.jpeg": jpeg(10 * index + image) for index in (0, 2, 10, 999) for image in (0, 1)}

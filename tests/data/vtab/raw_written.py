"""Write small datasets in the forms that their authors give out, and tell what TFDS would make of each image."""

import csv
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from scipy.io import savemat

from tests.data.vtab.written import example, png, write_records

SUN_LISTS = {"train": "sun397_tfds_tr.txt", "validation": "sun397_tfds_va.txt", "test": "sun397_tfds_te.txt"}
NORB = {"train": "smallnorb-5x46789x9x18x6x2x96x96-training", "test": "smallnorb-5x01235x9x18x6x2x96x96-testing"}


class Made(NamedTuple):
    """An image: its key in TFDS, the value of its pixels, and its labels by task."""

    key: str
    value: int
    labels: dict[str, int]


Expected = dict[str, list[Made]]


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def cifar100(root: Path) -> Expected:
    expected: Expected = {}
    for split, count in (("train", 12), ("test", 5)):
        records = b"".join(bytes([7, 3 * i % 100, *[i + 1] * 3072]) for i in range(count))
        write(root / f"cifar-100-binary/{split}.bin", records)
        expected[split] = [Made(str(i), i + 1, {"cifar100": 3 * i % 100}) for i in range(count)]
    write(root / "cifar-100-binary/fine_label_names.txt", "\n".join(f"class {i:02}" for i in range(100)) + "\n")
    return expected


def svhn(root: Path) -> Expected:
    expected: Expected = {}
    for split, count in (("train", 12), ("test", 11)):
        images = np.tile(np.arange(count, dtype=np.uint8) + 1, (32, 32, 3, 1))
        root.mkdir(exist_ok=True)
        digits = np.arange(count) % 10 + 1  # 1 to 10, where 10 is a zero
        savemat(root / f"{split}_32x32.mat", {"X": images, "y": digits[:, None].astype(np.uint8)})
        expected[split] = [Made(str(i), i + 1, {"svhn": (i + 1) % 10}) for i in range(count)]
    return expected


def matrix(path: Path, values: np.ndarray) -> None:
    magic = 507333717 if values.dtype == np.uint8 else 507333716
    shape = (*values.shape, *[1] * max(0, 3 - values.ndim))
    write(path, struct.pack(f"<{2 + len(shape)}i", magic, values.ndim, *shape) + values.tobytes())


def smallnorb(root: Path, train: int = 20, test: int = 9) -> Expected:
    expected: Expected = {}
    for split, count in (("train", train), ("test", test)):
        numbers = np.arange(count)
        pairs = np.stack([numbers % 200 + 1, np.full(count, 255)], 1).astype(np.uint8)
        matrix(root / f"{NORB[split]}-dat.mat", np.tile(pairs[:, :, None, None], (1, 1, 6, 5)))
        info = np.stack([numbers % 10, numbers % 9, 2 * (numbers % 18), numbers % 6], 1).astype("<i4")
        matrix(root / f"{NORB[split]}-info.mat", info)
        expected[split] = [
            Made(str(i), i % 200 + 1, {"smallnorb-azimuth": i % 18, "smallnorb-elevation": i % 9}) for i in range(count)
        ]
    return expected


def dsprites(root: Path) -> Expected:
    root.mkdir()
    count = 40
    numbers = np.arange(count)
    classes = np.stack([numbers * 0, numbers % 3, numbers % 6, numbers, numbers % 32, 31 - numbers % 32], 1)
    with h5py.File(root / "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.hdf5", "w") as file:
        file["imgs"] = np.tile((numbers % 2)[:, None, None], (1, 8, 8)).astype(np.uint8)
        file["latents/classes"] = classes
    made = [
        Made(str(i), i % 2, {"dsprites-location": i % 32 // 2, "dsprites-orientation": int(i / 2.5)})
        for i in range(count)
    ]
    return {"train": made}


def camelyon(root: Path) -> Expected:
    root.mkdir()
    expected: Expected = {}
    for split, name, count in (("train", "train", 9), ("validation", "valid", 4), ("test", "test", 5)):
        numbers = np.arange(count)
        with h5py.File(root / f"camelyonpatch_level_2_split_{name}_x.h5", "w") as file:
            file["x"] = np.tile((numbers + 1)[:, None, None, None], (1, 8, 8, 3)).astype(np.uint8)
        with h5py.File(root / f"camelyonpatch_level_2_split_{name}_y.h5", "w") as file:
            file["y"] = (numbers % 2).reshape(-1, 1, 1, 1)
        expected[split] = [Made(f"{name}_{i}", i + 1, {"camelyon": i % 2}) for i in range(count)]
    return expected


def dtd(root: Path) -> Expected:
    expected: Expected = {}
    value = 0
    for split, name in (("train", "train1"), ("validation", "val1"), ("test", "test1")):
        lines = []
        for label, texture in enumerate(("banded", "blotchy", "zigzagged")):
            value += 1
            lines.append(f"{texture}/{texture}_{value:04}.jpg")
            write(root / "dtd/images" / lines[-1], png(value))
            expected.setdefault(split, []).append(Made(lines[-1], value, {"dtd": label}))
        write(root / f"dtd/labels/{name}.txt", "\n".join(lines) + "\n")
    return expected


def flowers(root: Path) -> Expected:
    labels = [3, 1, 102, 5, 7, 9]
    for number in range(1, 7):
        write(root / f"jpg/image_{number:05}.jpg", png(number))
    savemat(root / "imagelabels.mat", {"labels": np.array([labels], dtype=np.uint8)})
    ids = {"trnid": [2, 5], "valid": [1, 6], "tstid": [3, 4]}
    savemat(root / "setid.mat", {name: np.array([numbers]) for name, numbers in ids.items()})
    names = {"train": "trnid", "validation": "valid", "test": "tstid"}
    return {
        split: [Made(f"image_{i:05}.jpg", i, {"flowers": labels[i - 1] - 1}) for i in ids[name]]
        for split, name in names.items()
    }


def pets(root: Path) -> Expected:
    expected: Expected = {}
    value = 0
    for split, name in (("train", "trainval"), ("test", "test")):
        lines = []
        for label, breed in enumerate(("Abyssinian", "american_bulldog", "Bengal")):
            value += 1
            lines.append(f"{breed}_{value} {label + 1} 1 1")
            write(root / f"images/{breed}_{value}.jpg", png(value))
            expected.setdefault(split, []).append(Made(f"{breed}_{value}.jpg", value, {"pets": label}))
        write(root / f"annotations/{name}.txt", "\n".join(lines) + "\n")
    return expected


def in_folders(task: str, above: str, names: tuple[str, ...]) -> Callable[[Path], Expected]:
    def made(root: Path) -> Expected:
        images = []
        for label, name in enumerate(names):
            for number in range(3):
                value = 1 + 3 * label + number
                write(root / above / name / f"{name}_{number}.jpg", png(value))
                images.append(Made(f"{name}_{name}_{number}.jpg", value, {task: label}))
        return {"train": images}

    return made


def sun397(root: Path) -> Expected:
    expected: Expected = {}
    value = 100
    folders = ("/a/abbey", "/c/church/outdoor", "/z/zen_garden")
    root.mkdir()
    with tarfile.open(root / "SUN397.tar.gz", "w:gz") as archive:
        for split, name in SUN_LISTS.items():
            lines = []
            for label, folder in enumerate(folders):
                value += 10
                lines.append(f"{folder}/sun_{value}.jpg")
                content = png(value, side=16)
                info = tarfile.TarInfo(f"SUN397{lines[-1]}")
                info.size = len(content)
                archive.addfile(info, BytesIO(content))
                expected.setdefault(split, []).append(Made(lines[-1], value, {"sun397": label}))
            write(root / name, "\n".join(lines) + "\n")
    return expected


def clevr(root: Path) -> Expected:
    expected: Expected = {}
    # The last is above 8.5 as it is written, and not so in the precision that TFDS stores.
    depths = [7.9, 8.2, 8.9, 9.5, 9.75, 10.5, 8.500000001]
    near = [0, 1, 2, 3, 4, 5, 1]
    for split, name in (("train", "train"), ("validation", "val")):
        scenes = []
        for number, (depth, label) in enumerate(zip(depths, near, strict=True)):
            file = f"CLEVR_{name}_{number:06}.png"
            write(root / f"CLEVR_v1.0/images/{name}/{file}", png(number + 1))
            objects = [{"pixel_coords": [9, 2, 30.5]}] * (2 + number) + [{"pixel_coords": [100, 90, depth]}]
            scenes.append({"image_filename": file, "objects": objects})
            labels = {"clevr-count": number, "clevr-distance": label}
            expected.setdefault(split, []).append(Made(file, number + 1, labels))
        write(root / f"CLEVR_v1.0/scenes/CLEVR_{name}_scenes.json", json.dumps({"scenes": scenes}))
    return expected


def dmlab(root: Path) -> Expected:
    root.mkdir()
    expected: Expected = {}
    for split, count in (("train", 7), ("validation", 4), ("test", 5)):
        made = [Made(f"video_{i}_{split}.jpg", i + 1, {"dmlab": i % 6}) for i in range(count)]
        records = [
            example({"image": [png(one.value)], "filename": [one.key.encode()], "label": [one.labels["dmlab"]]})
            for one in made
        ]
        write_records(root / f"dmlab-{split}.tfrecord-00000-of-00002", records[:2])
        write_records(root / f"dmlab-{split}.tfrecord-00001-of-00002", records[2:])
        expected[split] = made
    return expected


OBJECTS = [  # type and depth of objects, and the label
    ([("Pedestrian", 3.0), ("Car", 7.5), ("DontCare", -1000.0)], 0),
    ([("Van", 19.9), ("Tram", 1.0)], 1),
    ([("Truck", 20.5)], 2),
    ([("DontCare", -1000.0)], 3),
]


def kitti(root: Path) -> Expected:
    root.mkdir()
    count, drives = 30, 12
    order = [(7 * i + 3) % count for i in range(count)]  # of each image its line, from 0
    lines = [f"2011_09_26 2011_09_26_drive_{i % drives:04}_sync {i:010}" for i in range(count)]
    with zipfile.ZipFile(root / "devkit_object.zip", "w") as archive:
        archive.writestr("mapping/train_rand.txt", ",".join(str(line + 1) for line in order))
        archive.writestr("mapping/train_mapping.txt", "\n".join(lines) + "\n")
    with zipfile.ZipFile(root / "data_object_image_2.zip", "w") as archive:
        for i in reversed(range(count)):
            archive.writestr(f"training/image_2/{i:06}.png", png(i + 1))
            archive.writestr(f"testing/image_2/{i:06}.png", png(255))
    with zipfile.ZipFile(root / "data_object_label_2.zip", "w") as archive:
        for i in range(count):
            rows = [
                f"{kind} 0.00 0 -0.20 1.0 2.0 3.0 4.0 1.89 0.48 1.20 1.84 1.47 {depth} 0.01"
                for kind, depth in OBJECTS[i % 4][0]
            ]
            archive.writestr(f"training/label_2/{i:06}.txt", "\n".join(rows) + "\n")
    np.random.seed(123)  # as TFDS draws
    videos = sorted(f"2011_09_26_drive_{i:04}_sync" for i in range(drives))
    test = set(np.random.choice(videos, 1, replace=False))
    validation = set(np.random.choice(sorted(set(videos) - test), 1, replace=False))
    expected: Expected = {"train": [], "validation": [], "test": []}
    for i in range(count):
        video = lines[order[i]].split(" ")[1]
        split = "test" if video in test else "validation" if video in validation else "train"
        expected[split].append(Made(f"{i:06}.png", i + 1, {"kitti-distance": OBJECTS[i % 4][1]}))
    return expected


def table(path: Path, rows: list[list[str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


WRITERS: dict[str, Callable[[Path], Expected]] = {
    "cifar100": cifar100,
    "svhn_cropped": svhn,
    "smallnorb": smallnorb,
    "dsprites": dsprites,
    "patch_camelyon": camelyon,
    "dtd": dtd,
    "oxford_flowers102": flowers,
    "oxford_iiit_pet": pets,
    "eurosat": in_folders("eurosat", "2750", ("AnnualCrop", "Forest", "SeaLake")),
    "resisc45": in_folders("resisc45", "NWPU-RESISC45", ("airplane", "mobile_home_park", "wetland")),
    "sun397": sun397,
    "clevr": clevr,
    "dmlab": dmlab,
    "kitti": kitti,
}

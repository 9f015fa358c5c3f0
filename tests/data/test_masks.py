"""Masks that are published beside photos are left out and named; photos of like names are not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.cases import every_case
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data

Write = Callable[[Path], None]
CLASSES = ("cat", "dog")


def photo(path: Path, seed: int) -> None:
    """Write an image of large structures, as photos have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(small).resize((48, 40), Image.Resampling.BICUBIC).save(path)


def shape(seed: int) -> np.ndarray:
    rows, columns = np.mgrid[:40, :48]
    return (rows - 20) ** 2 + (columns - 20 - seed % 8) ** 2 < 150


def binary(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(shape(seed)).save(path)


def of_parts(path: Path, seed: int) -> None:
    """Write a mask of several parts, by a palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray((shape(seed) + 2 * shape(seed + 3)).astype(np.uint8), "P")
    image.putpalette([value for colour in range(256) for value in (colour * 3 % 256, colour, 255 - colour)])
    image.save(path)


def soft(path: Path, seed: int) -> None:
    """Write a mask with softened edges."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = Image.fromarray(np.uint8(255) * shape(seed).astype(np.uint8))
    small.resize((240, 200), Image.Resampling.BICUBIC).save(path)


MASKS: dict[str, tuple[str, str, Callable[[Path, int], None]]] = {
    "another format": ("{c}/{n}.jpg", "{c}/{n}.png", binary),
    "a palette": ("{c}/{n}.jpg", "{c}/{n}.gif", of_parts),
    "softened": ("{c}/{n}.jpg", "{c}/{n}.bmp", soft),
    "masks of lossy photos": ("{c}/{n}.png", "{c}/{n}.jpg", soft),
    "in splits": ("train/{c}/{n}.jpg", "train/{c}/{n}.png", of_parts),
    "a word behind": ("{c}/{c} ({n}).png", "{c}/{c} ({n})_mask.png", binary),
    "a number behind": ("{c}/{c} ({n}).png", "{c}/{c} ({n})_mask_1.png", binary),
    "a word before": ("{c}/{n}.png", "{c}/mask-{n}.png", of_parts),
    "another word": ("{c}/ISIC_{n}.jpg", "{c}/ISIC_{n}_Segmentation.png", binary),
    "a folder beside": ("images/{c}/{n}.jpg", "masks/{c}/{n}.png", binary),
    "a folder of splits": ("train/{c}/{n}.png", "train_masks/{c}/{n}.png", binary),
    "a folder inside": ("{c}/{n}.png", "{c}/masks/{n}.png", soft),
    "folders inside": ("{c}/images/{n}.png", "{c}/SegmentationClass/{n}.png", of_parts),
    "a folder and a word": ("train/{c}/{n}.png", "ground_truth/{c}/{n}_mask.png", binary),
    "a number in common": ("images/{c}/img_{n}.png", "masks/{c}/m{n}.png", binary),
    "beside photos without labels": ("labeled/images/{c}/{n}.png", "labeled/masks/{c}/{n}.png", of_parts),
    "an end of its own": ("701_StillsRaw/{c}/Seq_{n}.png", "LabeledApproved/{c}/Seq_{n}_L.png", of_parts),
    "the cells of a photo": ("images/{c}/{n}_a.png", "masks/{c}/{n}_a_cells.png", of_parts),
    "instances": ("{c}/{n}.png", "{c}/{n}_instances.png", of_parts),
    "one folder for all": ("images/{c}/{c}{n}.png", "labels/{c}{n}.png", of_parts),
    "nnU-Net's": ("imagesTr/{c}/{c}_{n}_0000.png", "labelsTr/{c}/{c}_{n}.png", of_parts),
    "drawn by hand": ("images/{c}/{n}_training.png", "1st_manual/{c}/{n}_manual1.png", binary),
    "annotated": ("images/{c}/{n}.png", "annot/{c}/{n}.png", binary),
    "annotated splits": ("train/{c}/{n}.png", "trainannot/{c}/{n}.png", of_parts),
    "labelme's": ("{c}/JPEGImages/{n}.png", "{c}/SegmentationClassPNG/{n}.png", of_parts),
    "drawn for people": ("{c}/JPEGImages/{n}.png", "{c}/SegmentationClassVisualization/{n}.png", photo),
    "of photos in colours": ("{c}/plant{n}_rgb.png", "{c}/plant{n}_label.png", binary),
}


@every_case("case", MASKS)
def test_masks_are_left_out_and_named(tmp_path: Path, case: str) -> None:
    photos, masks, draw = MASKS[case]
    for place, name in enumerate(CLASSES):
        for number in range(8):
            photo(tmp_path / "set of masks" / photos.format(c=name, n=number), 100 * place + number)
            draw(tmp_path / "set of masks" / masks.format(c=name, n=number), number)
    archive = shutil.make_archive(str(tmp_path / "set"), "zip", tmp_path, "set of masks")
    for data in (open_data(tmp_path / "set of masks", hold_out=False), open_data(archive, hold_out=False)):
        names = [source.describe(index) for source in data.splits.values() for index in range(len(source))]
        assert data.class_names == CLASSES
        assert {name.rpartition("/set of masks/")[2].rpartition(":set of masks/")[2] for name in names} == {
            photos.format(c=name, n=number) for name in CLASSES for number in range(8)
        }
        assert len(names) == 16
        (note,) = (note for note in data.notes if "masks" in note and "left out" in note)
        assert "16 masks" in note
        assert masks.format(c="cat", n=0) in note
    for path in (tmp_path / "set of masks", archive):
        bare = open_data(f"unlabelled:{path}")
        assert sum(map(len, bare.splits.values())) == 16
        assert any("16 masks" in note for note in bare.notes)


def copies(root: Path) -> None:
    for name in CLASSES:
        for number in range(4):
            photo(root / name / f"{number}.png", number)
            shutil.copy(root / name / f"{number}.png", root / name / f"{number}.jpg")


def others_of_the_same_number(root: Path) -> None:
    for name in CLASSES:
        for number in range(4):
            photo(root / name / f"{number}.jpg", number)
            photo(root / name / f"{number}.png", 50 + number)


def drawings(root: Path) -> None:
    for name in CLASSES:
        for number in range(4):
            of_parts(root / name / f"{number}.gif", number)
            binary(root / name / f"{number}.png", number)


def faces(root: Path) -> None:
    for name in ("mask", "no_mask", "other", "labels"):
        for number in range(2):
            photo(root / name / f"{number}.jpg", number)
            photo(root / name / f"{number}_mask.jpg", 9 + number)


def masks_alone(root: Path) -> None:
    for name in CLASSES:
        for number in range(8):
            binary(root / name / f"{number}_mask.png", number)


def unreadable(root: Path) -> None:
    for name in CLASSES:
        for number in range(4):
            photo(root / name / f"{number}.jpg", number)
            (root / name / f"{number}.png").write_bytes(b"no image")


@every_case(
    "write",
    [copies, others_of_the_same_number, drawings, faces, masks_alone, unreadable],
    ids=lambda write: write.__name__,
)
def test_images_of_like_names_are_no_masks(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "set")
    data = open_data(tmp_path / "set", verify=False)
    assert sum(map(len, data.splits.values())) == 16
    assert "masks of photos" not in " ".join(data.notes)


def test_where_only_some_are_masks_each_is_looked_at(tmp_path: Path) -> None:
    for name in CLASSES:
        for number in range(40):
            photo(tmp_path / name / f"{number}.jpg", number)
            (binary if number % 3 == 0 else photo)(tmp_path / name / f"{number}.png", 500 + number)
    data = open_data(tmp_path)
    assert sum(map(len, data.splits.values())) == 2 * (40 + 26)
    assert any("28 masks" in note for note in data.notes)
    assert len(list_unlabelled(str(tmp_path))) == 160  # to predict, they are images like others

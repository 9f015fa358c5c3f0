"""The 19 tasks of VTAB-1k: dataset, splits, label and group of each (google-research/task_adaptation; facts of its code).

Which training images may not be mirrored or cropped is BiT's list (arXiv 1912.11370, supplement F).
"""

from dataclasses import dataclass
from typing import Any, Literal

from vitral.data.vtab.labels import Label, binned, clevr_count, clevr_distance, feature, kitti_distance

Group = Literal["natural", "specialised", "structured"]
GROUPS: tuple[Group, ...] = ("natural", "specialised", "structured")
PLAIN = feature("label")


@dataclass(frozen=True, kw_only=True)
class VtabTask:
    """A task.

    Attributes:
        name: ours.
        title: as the paper's Table 9 has it.
        group: one of three.
        dataset: TFDS's name, with its configuration after a slash.
        version: TFDS's major version that the splits are defined on.
        classes: how many there are.
        train: the 800 training images, in TFDS's words.
        validation: the 200 validation images.
        test: the images to score on.
        scored: how many those are.
        label: from an example to its class.
        names: of the classes, where the dataset does not name them.
        image: the feature that holds the image.
        scale: what its values are multiplied by.
        flip: whether a mirrored image keeps its class.
        crop: whether a part of an image keeps it.
        folder: its name among the community's folders (vtab-1k).
        shards: its name among the WebDataset shards (wds_vtab-*).
    """

    name: str
    title: str
    group: Group
    dataset: str
    version: int
    classes: int
    train: str = "train[:800]"
    validation: str
    test: str = "test"
    scored: int
    label: Label = PLAIN
    names: tuple[str, ...] = ()
    image: str = "image"
    scale: int = 1
    flip: bool = True
    crop: bool = True
    folder: str
    shards: str


def _bins(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


CLEVR: dict[str, Any] = {"dataset": "clevr", "version": 3, "validation": "train[63000:63200]", "test": "validation"}
DSPRITES: dict[str, Any] = {
    "dataset": "dsprites",
    "version": 2,
    "classes": 16,
    "names": _bins(16),
    "scale": 255,
    "flip": False,
}
DSPRITES |= {"validation": "train[589824:590024]", "test": "train[663552:]"}
NORB: dict[str, Any] = {"dataset": "smallnorb", "version": 2, "validation": "test[:200]", "test": "test[50%:]"}

TASKS: tuple[VtabTask, ...] = (
    VtabTask(
        name="caltech101",
        scored=6_084,
        title="Caltech101",
        group="natural",
        dataset="caltech101",
        version=3,
        classes=102,
        validation="train[2754:2954]",
        folder="caltech101",
        shards="caltech101",
    ),
    VtabTask(
        name="cifar100",
        scored=10_000,
        title="CIFAR-100",
        group="natural",
        dataset="cifar100",
        version=3,
        classes=100,
        validation="train[45000:45200]",
        folder="cifar",
        shards="cifar100",
    ),
    VtabTask(
        name="dtd",
        scored=1_880,
        title="DTD",
        group="natural",
        dataset="dtd",
        version=3,
        classes=47,
        validation="validation[:200]",
        folder="dtd",
        shards="dtd",
    ),
    VtabTask(
        name="flowers",
        scored=6_149,
        title="Flowers102",
        group="natural",
        dataset="oxford_flowers102",
        version=2,
        classes=102,
        validation="validation[:200]",
        folder="oxford_flowers102",
        shards="flowers",
    ),
    VtabTask(
        name="pets",
        scored=3_669,
        title="Pets",
        group="natural",
        dataset="oxford_iiit_pet",
        version=3,
        classes=37,
        validation="train[2944:3144]",
        folder="oxford_iiit_pet",
        shards="pets",
    ),
    VtabTask(
        name="sun397",
        scored=21_750,
        title="Sun397",
        group="natural",
        dataset="sun397/tfds",
        version=4,
        classes=397,
        validation="validation[:200]",
        folder="sun397",
        shards="sun397",
    ),
    VtabTask(
        name="svhn",
        scored=26_032,
        title="SVHN",
        group="natural",
        dataset="svhn_cropped",
        version=3,
        classes=10,
        names=_bins(10),
        validation="train[65931:66131]",
        folder="svhn",
        shards="svhn",
    ),
    VtabTask(
        name="camelyon",
        scored=32_768,
        title="Camelyon",
        group="specialised",
        dataset="patch_camelyon",
        version=2,
        classes=2,
        names=("normal", "tumour"),
        validation="validation[:200]",
        folder="patch_camelyon",
        shards="pcam",
    ),
    VtabTask(
        name="eurosat",
        scored=5_400,
        title="EuroSAT",
        group="specialised",
        dataset="eurosat/rgb",
        version=2,
        classes=10,
        validation="train[16200:16400]",
        test="train[21600:]",
        folder="eurosat",
        shards="eurosat",
    ),
    VtabTask(
        name="resisc45",
        scored=6_300,
        title="Resisc45",
        group="specialised",
        dataset="resisc45",
        version=3,
        classes=45,
        validation="train[18900:19100]",
        test="train[25200:]",
        folder="resisc45",
        shards="resisc45",
    ),
    VtabTask(
        name="retinopathy",
        scored=42_670,
        title="Retinopathy",
        group="specialised",
        dataset="diabetic_retinopathy_detection/btgraham-300",
        version=3,
        classes=5,
        names=("none", "mild", "moderate", "severe", "proliferative"),
        validation="validation[:200]",
        folder="diabetic_retinopathy_detection",
        shards="diabetic_retinopathy",
    ),
    VtabTask(
        name="clevr-count",
        scored=15_000,
        title="Clevr-Count",
        group="structured",
        classes=8,
        label=clevr_count,
        names=tuple(f"{count} objects" for count in range(3, 11)),
        crop=False,
        folder="clevr_count",
        shards="clevr_count_all",
        **CLEVR,
    ),
    VtabTask(
        name="clevr-distance",
        scored=15_000,
        title="Clevr-Dist",
        group="structured",
        classes=6,
        label=clevr_distance,
        names=("up to 8", "up to 8.5", "up to 9", "up to 9.5", "up to 10", "above 10"),
        crop=False,
        folder="clevr_dist",
        shards="clevr_closest_object_distance",
        **CLEVR,
    ),
    VtabTask(
        name="dmlab",
        scored=22_735,
        title="DMLab",
        group="structured",
        dataset="dmlab",
        version=2,
        classes=6,
        names=_bins(6),
        validation="validation[:200]",
        crop=False,
        folder="dmlab",
        shards="dmlab",
    ),
    VtabTask(
        name="dsprites-location",
        scored=73_728,
        title="dSpr-Loc",
        group="structured",
        label=binned("label_x_position", 2),
        crop=False,
        folder="dsprites_loc",
        shards="dsprites_label_x_position",
        **DSPRITES,
    ),
    VtabTask(
        name="dsprites-orientation",
        scored=73_728,
        title="dSpr-Ori",
        group="structured",
        label=binned("label_orientation", 2.5),
        folder="dsprites_ori",
        shards="dsprites_label_orientation",
        **DSPRITES,
    ),
    VtabTask(
        name="kitti-distance",
        scored=711,
        title="KITTI-Dist",
        group="structured",
        dataset="kitti",
        version=3,
        classes=4,
        label=kitti_distance,
        names=("up to 8 m", "up to 20 m", "further", "no vehicle"),
        validation="validation[:200]",
        crop=False,
        folder="kitti",
        shards="kitti_closest_vehicle_distance",
    ),
    VtabTask(
        name="smallnorb-azimuth",
        scored=12_150,
        title="sNORB-Azim",
        group="structured",
        classes=18,
        label=feature("label_azimuth"),
        names=tuple(f"{20 * number} degrees" for number in range(18)),
        flip=False,
        folder="smallnorb_azi",
        shards="smallnorb_label_azimuth",
        **NORB,
    ),
    VtabTask(
        name="smallnorb-elevation",
        scored=12_150,
        title="sNORB-Elev",
        group="structured",
        classes=9,
        label=feature("label_elevation"),
        names=tuple(f"{30 + 5 * number} degrees" for number in range(9)),
        folder="smallnorb_ele",
        shards="smallnorb_label_elevation",
        **NORB,
    ),
)

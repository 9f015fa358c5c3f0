"""Options that commands share: a command takes the dataclass whole, and the command line shows its fields as flags.

No module that defines a command imports torch before the command runs: help and slips of the keyboard are answered at once.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from vitral.data.classes import Reading
from vitral.paths import CLASSIFIER, DESCRIPTION

USUAL = Group("Usual", sort_key=1)
MORE = Group("More", sort_key=2)
Usual = Parameter(group=USUAL)
More = Parameter(group=MORE)

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
Count = Annotated[int, Parameter(validator=Number(gte=0))]
Settings = Annotated[tuple[str, ...], Parameter("--set")]
Start = Annotated[str | None, Parameter(("--from", "--source"))]
Details = Annotated[bool, Parameter(("--verbose", "-v"))]
Verbose = Annotated[bool, Parameter(("--verbose", "-v"), group=MORE)]
# None leaves out and names a few images that cannot be read.
SkipBad = Annotated[bool | None, Parameter(negative="--strict")]
WHOLE = re.compile(r"[+-]?[0-9]+")
WEIGHTS = (".npz", ".safetensors", ".pth", ".pt", ".bin", ".onnx")  # endings of files that are no data


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LabelledImages:
    """Labelled images, under the names that the functions of Python give these arguments.

    Attributes:
        data: The images, as 'finetune' takes them: class folders, .zip, .csv, .parquet, shards, hf:OWNER/NAME, "digits";
            imagenet:FOLDER, imagenet-real:, imagenet-v2:, cifar10:, cifar100:, pets:, flowers102:, tiny-imagenet: in their
            authors' form; columns:image=NAME,label=NAME:SOURCE where several columns could be meant.
        classes: The folder that names the class where folders are nested: innermost, outermost, whole path; that which fits
            if left out.
        skip_bad_images: Leave out however many images cannot be read, or stop at any (--strict); if neither is given, a
            few are left out and named: up to a tenth of the images, and no whole class.
    """

    data: str | None = field(default=None, kw_only=False)
    classes: Reading | None = None
    skip_bad_images: SkipBad = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SplitImages(LabelledImages):
    """Labelled images of one split.

    Attributes:
        split: The split: "test", "validation" or "train"; test if left out, or validation if there is no test.
    """

    split: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ValidationImages(LabelledImages):
    """Labelled images with a validation split.

    Attributes:
        data: The images that the classifier was trained on, or any with a validation split, as 'finetune' takes them.
    """

    data: str | None = field(default=None, kw_only=False)


def settle(classifier: str | None, images: LabelledImages) -> tuple[str | None, dict[str, Any]]:
    """Return which classifier is meant, and the arguments of its images; a single name is that of the data.

    Raises:
        CycloptsError: No data are named.
    """
    given = dict(vars(images))
    if images.data is None:
        if classifier is None or is_classifier(Path(classifier)):
            example = f"{classifier} photos/" if classifier else "photos/"
            raise CycloptsError(msg=f"Which data? Name a folder, file, address or built-in set, such as '{example}'.")
        classifier, given["data"] = None, classifier
    return classifier, given


def is_classifier(path: Path) -> bool:
    """Tell whether a path is named like weights, or a folder that holds a classifier."""
    return path.suffix in WEIGHTS or any((folder / DESCRIPTION).is_file() for folder in (path, path / CLASSIFIER))

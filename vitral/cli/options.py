"""Options that commands share: a command takes the dataclass whole, and the command line shows its fields as flags."""

import re
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.data.classes import Reading

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
Count = Annotated[int, Parameter(validator=Number(gte=0))]
Settings = Annotated[tuple[str, ...], Parameter("--set")]
Start = Annotated[str | None, Parameter(("--from", "--source"))]
WHOLE = re.compile(r"[+-]?[0-9]+")


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
        skip_bad_images: Leave out images that cannot be read, naming each, instead of stopping.
    """

    data: str
    classes: Reading | None = None
    skip_bad_images: bool = False


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

    data: str

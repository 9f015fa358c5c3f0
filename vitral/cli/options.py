"""Options that commands share: a command takes the dataclass whole, and the command line shows its fields as flags."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any

from cyclopts import CoercionError, Parameter, Token, convert
from cyclopts.validators import Number

from vitral.data.classes import Reading

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
Count = Annotated[int, Parameter(validator=Number(gte=0))]
Settings = Annotated[tuple[str, ...], Parameter("--set")]
Start = Annotated[str | None, Parameter(("--from", "--source"))]
WHOLE = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


def read_option(kind: Any, tokens: Sequence[Token]) -> Any:  # noqa: ANN401  # of any option, as its annotation says
    """Return an option's value from its words; a number is read only where it says what is meant.

    The library's own reading rounds 32.9 to 33, takes 0x20 for 32 and the digits of any script for ours, and "none" for an
    option that was not given.

    Raises:
        CoercionError: A word is no such value.
    """
    return convert(kind, tokens, converter=_value)


def _value(kind: type, word: str) -> Any:  # noqa: ANN401  # of that type
    if kind is int and WHOLE.fullmatch(word):
        return int(word)  # a number of thousands of digits is a ValueError
    if kind is float and DECIMAL.fullmatch(word) and math.isfinite(value := float(word)):
        return value
    if kind in (int, float):
        what = "a whole number, such as 32" if kind is int else "a number, such as 0.95"
        raise CoercionError(msg=f"'{word:.40}' is not {what}.")
    if kind is NoneType:  # one of the types of an option that may be left out
        raise CoercionError
    return convert(kind, [word])


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

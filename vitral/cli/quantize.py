"""`vitral quantize`: 8-bit integers where they are faster, and at most half a point lost."""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.chosen import name_of
from vitral.cli.console import ConsoleListener, print_result
from vitral.data.classes import Reading
from vitral.deployment.quantize import LOSS
from vitral.deployment.quantize import quantize as find


def quantize(
    *,
    data: str,
    classifier: str | None = None,
    loss: float = LOSS,
    write: Annotated[bool, Parameter(negative="")] = False,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Find how a classifier computes in 8-bit integers on a CPU, losing no more accuracy than it may.

    Args:
        data: what the classifier was trained on, or any data with a validation split, as 'finetune' takes them.
        classifier: a classifier folder or run folder; without --write also a weights file, a name or a Hub id; the newest
            run in runs/ if left out.
        loss: of accuracy that may be lost on validation images, 0 to 1; layers stay in float32 until it is no more.
        write: keep it in the classifier's folder; --precision int8 of 'predict' and 'evaluate' then computes so.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        result = find(
            name,
            data,
            loss=loss,
            write=write,
            classes=classes,
            skip_bad_images=skip_bad_images,
            listener=listener,
        )
    kept = f"Kept in {name}." if write else "Nothing was written; --write keeps it in the classifier's folder."
    print_result(result, json=json, below=[kept])

"""`vitral compare`: which of two classifiers is better?"""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.console import ConsoleListener, print_result
from vitral.data.classes import Reading
from vitral.evaluation.compare import compare as decide


def compare(
    first: str,
    second: str,
    /,
    *,
    data: str,
    split: str | None = None,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Decide between two classifiers on the same images: better, worse or not decided.

    Args:
        first: a classifier folder, run folder, weights file or name, or Hub id.
        second: the other one.
        data: class folders, .zip, .tar, .csv, .parquet, shards, hf:OWNER/NAME, "digits", as 'finetune' takes them.
        split: "test", "validation" or "train"; test if left out, or validation if there is no test.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        comparison = decide(
            first, second, data, split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
        )
    print_result(comparison, json=json, below=comparison.examples())

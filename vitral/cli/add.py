"""`vitral add`: further classes for a classifier, without training."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.options import SkipBad
from vitral.cli.process import importing
from vitral.data.classes import Reading


def add(
    data: str,
    *,
    classifier: Annotated[str | None, Parameter(("--classifier", "--to"))] = None,
    out: Path | None = None,
    classes: Reading | None = None,
    skip_bad_images: SkipBad = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Add classes to a classifier without training, and say what that costs the others.

    Args:
        data: The new images, as 'finetune' takes them: one sub-folder per class; those of its classes are further examples.
        classifier: The classifier folder or run folder, which stays as it is; the newest run in runs/ if left out.
        out: The folder for the new classifier; beside the other, with -extended in its name, if left out.
        classes: The folder that names the class where folders are nested: innermost, outermost, whole path; that which fits
            if left out.
        skip_bad_images: Leave out however many images cannot be read, or stop at any (--strict); a few are left out and named
            if neither is given.
        overwrite: Replace a classifier in --out.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.deployment.add_classes import add_classes

    with ConsoleListener() as listener:
        result = add_classes(
            data,
            name_of(classifier, listener),
            out=out,
            classes=classes,
            skip_bad_images=skip_bad_images,
            overwrite=overwrite,
            listener=listener,
        )
    print_result(result, json=json)

"""`vitral aspects`: how should images of other shapes be brought to the network?"""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_result
from vitral.data.classes import Reading
from vitral.evaluation.aspects import aspects as score


def aspects(
    *,
    data: str,
    classifier: str | None = None,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare squashing, cropping, padding and the native aspect ratio on validation images.

    Args:
        data: what the classifier was trained on, or any data with a validation split.
        classifier: a classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        result = score(source, data, classes=classes, skip_bad_images=skip_bad_images, listener=listener)
    print_result(result, json=json)

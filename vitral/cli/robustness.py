"""`vitral robustness`: how much worse may images become?"""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_result
from vitral.data.classes import Reading
from vitral.evaluation.corruptions import MOST_IMAGES
from vitral.evaluation.corruptions import robustness as score


def robustness(
    *,
    data: str,
    classifier: str | None = None,
    split: str | None = None,
    images: Annotated[int, Parameter(validator=Number(gte=1))] = MOST_IMAGES,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Score a classifier on images with noise, blur, weather and compression.

    Args:
        data: what 'finetune' and 'evaluate' take.
        classifier: a classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        split: "test", "validation" or "train"; test if left out, or validation if there is no test.
        images: at most so many, evenly spaced; each is computed 76 times.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        result = score(
            source,
            data,
            split=split,
            images=images,
            classes=classes,
            skip_bad_images=skip_bad_images,
            listener=listener,
        )
    print_result(result, json=json)

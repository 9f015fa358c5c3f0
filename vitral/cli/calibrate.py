"""`vitral calibrate`: probabilities that mean what they say, and answers that say when they are not sure."""

from typing import Annotated

from cyclopts import Parameter

from vitral.cli.chosen import name_of
from vitral.cli.console import ConsoleListener, print_result
from vitral.data.classes import Reading
from vitral.deployment.calibrate import calibrate as fit


def calibrate(
    *,
    data: str,
    classifier: str | None = None,
    accuracy: float | None = None,
    write: Annotated[bool, Parameter(negative="")] = False,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Fit a classifier's probabilities on validation images, and from where on it is sure.

    Args:
        data: what the classifier was trained on, or any data with a validation split, as 'finetune' takes them.
        classifier: a classifier folder or run folder; without --write also a weights file, a name or a Hub id; the newest
            run in runs/ if left out.
        accuracy: wanted of the answers that it is sure of, such as 0.95; if left out, what its threshold is for,
            if it has one.
        write: keep temperature and threshold in the classifier's folder; 'predict' and all others then use them.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        result = fit(
            name,
            data,
            accuracy=accuracy,
            write=write,
            classes=classes,
            skip_bad_images=skip_bad_images,
            listener=listener,
        )
    if not result.changed:
        kept = "Nothing was written."
    else:
        kept = f"Kept in {name}." if write else "Nothing was written; --write keeps it in the classifier's folder."
    print_result(result, json=json, below=[kept])

"""`vitral predict`: what is in these images?"""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_json, print_line


def predict(
    images: Annotated[list[str], Parameter(negative="")],
    /,
    *,
    classifier: str | None = None,
    top: Annotated[int, Parameter(validator=Number(gte=1))] = 3,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say what is in images, with probabilities.

    Args:
        images: files, folders, .zip, .tar, and whatever 'finetune' takes as --data; labels are ignored.
        classifier: a classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        top: how many classes to name for each image.
        skip_bad_images: skip images that cannot be read, naming each, instead of stopping.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        predictions = source.predict(images, top=top, skip_bad_images=skip_bad_images, listener=listener)
    if json:
        print_json([prediction.to_json() for prediction in predictions])
        return
    for prediction in predictions:
        ranked = "  ".join(f"{label} {probability:.1%}" for label, probability in prediction.top)
        doubt = "not sure  " if prediction.sure is False else ""
        print_line(f"{prediction.source}: {doubt}{ranked}")

"""`vitral predict`: what is in these pictures?"""

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.classifier.load import load, newest_run
from vitral.cli.console import ConsoleListener, print_json, print_line


def predict(
    pictures: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    classifier: str | None = None,
    top: Annotated[int, Parameter(validator=Number(gte=1))] = 3,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say what is in images, with probabilities.

    Args:
        pictures: files, or folders of them.
        classifier: a classifier folder, run folder, weights file or Hub id; the newest run below runs/ if left out.
        top: how many classes to name for each picture.
        skip_bad_images: go on past pictures that cannot be read, naming each, in place of stopping.
        json: print JSON for a program.
    """
    source = load(classifier or newest_run())
    with ConsoleListener() as listener:
        listener.note(source)
        predictions = source.predict(list(pictures), top=top, skip_bad_images=skip_bad_images, listener=listener)
    if json:
        print_json([dataclasses.asdict(prediction) for prediction in predictions])
        return
    for prediction in predictions:
        ranked = "  ".join(f"{label} {probability:.1%}" for label, probability in prediction.top)
        print_line(f"{prediction.source}: {ranked}")

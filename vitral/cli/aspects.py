"""`vitral aspects`: how should images of other shapes be brought to the network?"""

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_result
from vitral.cli.options import ValidationImages
from vitral.evaluation.aspects import aspects as score


def aspects(*, images: ValidationImages, classifier: str | None = None, json: bool = False) -> None:
    """Compare squashing, cropping, padding and the native aspect ratio on validation images.

    Args:
        images: The images.
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        json: Print JSON for programs.
    """
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        result = score(source, **vars(images), listener=listener)
    print_result(result, json=json)

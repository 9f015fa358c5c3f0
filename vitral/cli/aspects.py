"""`vitral aspects`: how should images of other shapes be brought to the network?"""

from vitral.cli.options import ValidationImages, settle
from vitral.cli.process import importing


def aspects(classifier: str | None = None, images: ValidationImages | None = None, *, json: bool = False) -> None:
    """Compare squashing, cropping, padding and the native aspect ratio on validation images.

    Args:
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        images: The images.
        json: Print JSON for programs.
    """
    classifier, given = settle(classifier, images or ValidationImages())
    with importing():
        from vitral.cli.chosen import choose
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.evaluation.aspects import aspects as score

    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        result = score(source, **given, listener=listener)
    print_result(result, json=json)

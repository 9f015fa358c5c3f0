"""`vitral compare`: which of two classifiers is better?"""

from vitral.cli.options import SplitImages, settle
from vitral.cli.process import importing


def compare(first: str, second: str, /, images: SplitImages | None = None, *, json: bool = False) -> None:
    """Decide between two classifiers on the same images: better, worse or not decided.

    Args:
        first: A classifier folder, run folder, weights file or name, or Hub id.
        second: The other classifier.
        images: The images.
        json: Print JSON for programs.
    """
    _, given = settle(None, images or SplitImages())
    with importing():
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.evaluation.compare import compare as decide

    with ConsoleListener() as listener:
        comparison = decide(first, second, **given, listener=listener)
    print_result(comparison, json=json, below=comparison.examples())

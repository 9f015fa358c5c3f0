"""`vitral robustness`: how much worse may images become?"""

from vitral.cli.options import Positive, SplitImages, settle
from vitral.cli.process import importing

MOST_IMAGES = 500  # as in Python


def robustness(
    classifier: str | None = None,
    source: SplitImages | None = None,
    *,
    images: Positive = MOST_IMAGES,
    json: bool = False,
) -> None:
    """Score a classifier on images with noise, blur, weather and compression.

    Args:
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        source: The images.
        images: The number of images at most, evenly spaced; each is computed 76 times.
        json: Print JSON for programs.
    """
    classifier, given = settle(classifier, source or SplitImages())
    with importing():
        from vitral.cli.chosen import choose
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.evaluation.corruptions import robustness as score

    with ConsoleListener() as listener:
        _, chosen = choose(classifier, listener)
        result = score(chosen, **given, images=images, listener=listener)
    print_result(result, json=json)

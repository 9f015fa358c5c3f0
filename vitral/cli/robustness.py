"""`vitral robustness`: how much worse may images become?"""

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_result
from vitral.cli.options import Positive, SplitImages
from vitral.evaluation.corruptions import MOST_IMAGES
from vitral.evaluation.corruptions import robustness as score


def robustness(
    *, source: SplitImages, classifier: str | None = None, images: Positive = MOST_IMAGES, json: bool = False
) -> None:
    """Score a classifier on images with noise, blur, weather and compression.

    Args:
        source: The images.
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        images: The number of images at most, evenly spaced; each is computed 76 times.
        json: Print JSON for programs.
    """
    with ConsoleListener() as listener:
        _, chosen = choose(classifier, listener)
        result = score(chosen, **vars(source), images=images, listener=listener)
    print_result(result, json=json)

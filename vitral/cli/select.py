"""`vitral select`: which images to label next?"""

from pathlib import Path

from vitral.cli.options import Positive, SkipBad
from vitral.cli.process import importing


def select(
    images: list[str],
    /,
    *,
    classifier: str | None = None,
    count: Positive = 50,
    out: Path | None = None,
    skip_bad_images: SkipBad = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Choose the images to label next, and say how many more one point of accuracy takes.

    Args:
        images: Image files and folders, without labels.
        classifier: A classifier folder or run folder; the newest run in runs/ if left out.
        count: The number of images to choose.
        out: The .csv file to fill in, for 'finetune'; if left out, the first are printed only.
        skip_bad_images: Stop at an image that cannot be read (--strict); each is left out and named if left out.
        overwrite: Replace a file at --out.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.cli.chosen import choose
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.deployment.select_images import select_images

    with ConsoleListener() as listener:
        _, source = choose(classifier, listener, tuned=False)
        result = select_images(
            images,
            source,
            count=count,
            out=out,
            skip_bad_images=skip_bad_images,
            overwrite=overwrite,
            listener=listener,
        )
    print_result(result, json=json)

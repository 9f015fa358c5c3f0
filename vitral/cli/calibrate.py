"""`vitral calibrate`: probabilities that mean what they say, and answers that say when they are not sure."""

from vitral.cli.options import ValidationImages, settle
from vitral.cli.process import importing


def calibrate(
    classifier: str | None = None,
    images: ValidationImages | None = None,
    *,
    accuracy: float | None = None,
    write: bool = False,
    json: bool = False,
) -> None:
    """Fit a classifier's probabilities on validation images, and from where on it is sure.

    Args:
        classifier: A classifier folder or run folder; without --write also a weights file, a name or a Hub id; the newest
            run in runs/ if left out.
        images: The images.
        accuracy: The accuracy that sure answers must have, such as 0.95; if left out, the one that the classifier's
            threshold was fitted for, if it has one.
        write: Keep temperature and threshold in the classifier's folder; 'predict' and all others then use them.
        json: Print JSON for programs.
    """
    classifier, given = settle(classifier, images or ValidationImages())
    with importing():
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.deployment.calibrate import calibrate as fit

    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        result = fit(name, **given, accuracy=accuracy, write=write, listener=listener)
    written = f"Saved in {name}." if write else "Nothing was written; --write saves it in the classifier's folder."
    print_result(result, json=json, below=[written if result.changed else "Nothing was written."])

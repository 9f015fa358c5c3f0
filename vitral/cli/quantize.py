"""`vitral quantize`: 8-bit integers where they are faster, and at most half a point lost."""

from vitral.cli.options import ValidationImages, settle
from vitral.cli.process import importing

LOSS = 0.005  # of the headline figure; as in Python


def quantize(
    classifier: str | None = None,
    images: ValidationImages | None = None,
    *,
    loss: float = LOSS,
    write: bool = False,
    json: bool = False,
) -> None:
    """Find how a classifier computes in 8-bit integers on a CPU, losing no more accuracy than it may.

    Args:
        classifier: A classifier folder or run folder; without --write also a weights file, a name or a Hub id; the newest
            run in runs/ if left out.
        images: The images.
        loss: The accuracy that may be lost on validation images, 0 to 1; layers stay in float32 until no more is lost.
        write: Keep the form in the classifier's folder; --precision int8 of 'predict' and 'evaluate' then computes by it.
        json: Print JSON for programs.
    """
    classifier, given = settle(classifier, images or ValidationImages())
    with importing():
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.deployment.quantize import quantize as find

    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        result = find(name, **given, loss=loss, write=write, listener=listener)
    written = f"Saved in {name}." if write else "Nothing was written; --write saves it in the classifier's folder."
    print_result(result, json=json, below=[written])

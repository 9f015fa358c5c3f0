"""How a classifier is shown: in a few lines of text, and as a table in a notebook."""

from collections.abc import Sequence

from vitral.classifier.provenance import Provenance
from vitral.inference.predictor import Predictor
from vitral.notebook import table

SHOWN_NAMES, SHOWN_IN_A_TABLE, LONGEST_NAME = 4, 12, 24  # of classes, where there is room for a line
TOP1 = "/top1"
HEADLINES = (TOP1, "/map")  # how the one score ends by which networks are compared


def text(predictor: Predictor, class_names: Sequence[str], provenance: Provenance, *, kind: str) -> str:
    """Return what a classifier is in a few lines.

    Args:
        predictor: what computes.
        class_names: one a logit, in order.
        provenance: where it came from.
        kind: what the logits stand for, such as "classes".
    """
    height, width = predictor.image_size
    scores = "".join(
        f", {value:.1%} of its {name.removesuffix(TOP1)} images right"
        for name, value in provenance.scores.items()
        if name.endswith(TOP1)
    )
    return (
        f"Classifier: {predictor.describe()}, images of {height}x{width} pixels, {len(class_names)} {kind} "
        f"({some_of(class_names)})\nfrom {provenance.source}{scores}"
    )


def html(predictor: Predictor, class_names: Sequence[str], provenance: Provenance, *, kind: str) -> str:
    """Return what a notebook shows of a classifier; the arguments are those of `text`."""
    height, width = predictor.image_size
    return table(
        "Classifier",
        [
            ("Network", f"{predictor.describe()}, {predictor.num_parameters:,} parameters"),
            (kind.capitalize(), f"{len(class_names):,}: {some_of(class_names, SHOWN_IN_A_TABLE)}"),
            ("Images", f"{height}x{width} pixels"),
            ("Started from", provenance.source),
            *((name, f"{value:.1%}") for name, value in provenance.scores.items() if name.endswith(HEADLINES)),
            ("Beware", provenance.doubt() or provenance.shortfall()),
        ],
    )


def some_of(names: Sequence[str], most: int = SHOWN_NAMES) -> str:
    """Return the first of some names, and a sign that there are more."""
    shown = ", ".join(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, …"

"""How a classifier is shown: in a few lines of text, and as a table in a notebook."""

from collections.abc import Iterator, Sequence

from vitral.advice import counted
from vitral.classifier.metadata import Provenance
from vitral.inference.predictor import Predictor
from vitral.notebook import table
from vitral.tasks.shown import images_of
from vitral.tasks.task import Task

NAMES_IN_A_LINE = 4  # of classes
NAMES_IN_A_TABLE = 12
LONGEST_NAME = 24  # characters


def text(predictor: Predictor, class_names: Sequence[str], provenance: Provenance, *, task: Task) -> str:
    """Return what a classifier is in a few lines."""
    height, width = predictor.image_size
    scores = "".join(
        f", {task.headline.title} {task.headline.text(value)} on its {images_of(split)}"
        for split, value in _headlines(provenance, task)
    )
    classes = counted(len(class_names), "class", task.noun)
    return (
        f"Classifier: {predictor.describe()}, images of {height}x{width} pixels, {classes} "
        f"({some_of(class_names)})\nfrom {provenance.source}{scores}"
    )


def html(predictor: Predictor, class_names: Sequence[str], provenance: Provenance, *, task: Task) -> str:
    """Return what a notebook shows of a classifier; the arguments are those of `text`."""
    height, width = predictor.image_size
    figure = task.headline
    return table(
        "Classifier",
        [
            ("Network", f"{predictor.describe()}, {predictor.num_parameters:,} parameters"),
            (task.noun.capitalize(), f"{len(class_names):,}: {some_of(class_names, NAMES_IN_A_TABLE)}"),
            ("Images", f"{height}x{width} pixels"),
            ("Started from", provenance.source),
            *((f"{split}/{figure.name}", figure.text(value)) for split, value in _headlines(provenance, task)),
            ("Beware", provenance.doubt() or provenance.shortfall()),
        ],
    )


def _headlines(provenance: Provenance, task: Task) -> Iterator[tuple[str, float]]:
    """Give each split that a classifier was scored on, and its headline figure there."""
    ending = f"/{task.headline.name}"
    for name, value in provenance.scores.items():
        if name.endswith(ending):
            yield name.removesuffix(ending), value


def some_of(names: Sequence[str], most: int = NAMES_IN_A_LINE) -> str:
    """Return the first of some names, and a sign that there are more."""
    shown = ", ".join(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, …"

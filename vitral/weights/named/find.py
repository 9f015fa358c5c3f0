"""From a name, perhaps mistyped, to a row of the table."""

import difflib

from vitral.advice import function
from vitral.errors import WeightsError
from vitral.weights.named.row import LICENCES, NAME, SEPARATOR, PublishedWeights, rows

OFFERED = 4  # names in a line
# Well-known families whose networks are not here, by the beginnings of the names that people know them by.
ELSEWHERE = {
    "beit": "BEiT",
    "convnext": "ConvNeXt",
    "densenet": "DenseNet",
    "dpn": "DPN",
    "eupe": "EUPE",
    "hiera": "Hiera",
    "ijepa": "I-JEPA",
    "levit": "LeViT",
    "maxvit": "MaxViT",
    "mixer": "MLP-Mixer",
    "mlp-mixer": "MLP-Mixer",
    "mobileclip": "MobileCLIP",
    "mobilenet": "MobileNet",
    "mobilevit": "MobileViT",
    "pe-core": "Perception Encoder",
    "pvt": "PVT",
    "regnet": "RegNet",
    "sam-": "Segment Anything",
    "swin": "Swin",
    "tips": "TIPS",
    "vgg": "VGG",
}


def is_named(name: str) -> bool:
    """Tell whether a text has the form of a name of published weights, MODEL@TRAINING."""
    return NAME.fullmatch(name.lower()) is not None


def find(name: str) -> PublishedWeights:
    """Return the row of a name.

    Raises:
        WeightsError: there is none; the nearest names are proposed, or the family is named that is not here.
    """
    row = rows().get(name)
    if row is None:
        raise WeightsError(f"There are no published weights '{name}'.{_advice(name)}")
    return row


def of_model(model: str) -> list[str]:
    """Return the names of a model's published weights: those of the catalog's model, and those that are called by its name."""
    return [row.name for row in rows().values() if model in (row.model, row.name.partition(SEPARATOR)[0])]


def offer(model: str) -> str:
    """Return in one sentence which published weights a model has; empty where there are none."""
    names = of_model(model)
    if not names:
        return ""
    more = f", and {len(names) - OFFERED} more" if len(names) > OFFERED else ""
    return f"Published weights of {model}: {', '.join(names[:OFFERED])}{more}."


def row_of(source: str) -> PublishedWeights | None:
    """Return the row of the weights that a classifier started from; None for any others.

    Args:
        source: The source in its provenance: the row's name, after which a commit may follow.
    """
    return rows().get(source.partition(" ")[0])


def licence_of(source: str) -> str:
    """Return in one sentence the licence of the weights that a classifier started from; empty for any others.

    Args:
        source: The source in its provenance.
    """
    row = row_of(source)
    return (
        f"{row.name}, from {row.link}, is licensed under {row.licence} ({LICENCES[row.licence].link})." if row else ""
    )


def _advice(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), list(rows()), n=3)
    model, _, training = name.lower().partition(SEPARATOR)
    elsewhere = {title for start, title in ELSEWHERE.items() if model.startswith(start) or training.startswith(start)}
    if elsewhere:
        return f" {elsewhere.pop()} is a family that Vitral does not have."
    if names := of_model(model):
        near = list(dict.fromkeys([*(name for name in near if name in names), *names]))[:OFFERED]
        return f" Of {model} there are: {', '.join(near)}."
    if near:
        return f" Did you mean {' or '.join(map(repr, near))}?"
    return f" {function('list_models')} lists the models, with the names of their weights."

"""The text beside an exported file: what goes in, what comes out, and how it is used without Vitral."""

import json
from collections.abc import Mapping

from vitral.classifier.classifier import Classifier
from vitral.inference.exported.format import ExportFormat, Sample
from vitral.printable import in_markdown, printable


def readme(classifier: Classifier, kind: ExportFormat, metadata: Mapping[str, str]) -> str:
    """Return the text as Markdown.

    Args:
        classifier: The classifier in the file.
        kind: The format.
        metadata: What the file says of itself.
    """
    threshold = json.loads(metadata.get("threshold", "null"))
    sure = f" Answers below {threshold:.1%} are not sure." if threshold is not None else ""
    lines = [
        f"# {kind.files[0]}",
        "",
        f"An image classifier as {kind.title}, written by Vitral: {in_markdown(metadata['network'])}, "
        f"{len(classifier.class_names)} {classifier.task.noun}. It needs neither Vitral nor any preprocessing: it "
        "resizes, crops and normalises images itself.",
        "",
        *([kind.warning] if kind.warning else []),
        "| | name | type | axes |",
        "|---|---|---|---|",
        "| in | `images` | uint8 | batch, height, width, 3: red, green, blue; any size, the same for all of a batch |",
        f"| out | `probabilities` | float32 | batch, classes: {classifier.task.meaning}.{sure} |",
        "| out | `logits` | float32 | batch, classes: what the network gives |",
        *kind.outputs,
        "",
        "Photographs have to be turned upright by their EXIF orientation first, as the Python below does.",
        "",
        *(line for sample in kind.samples for line in _block(sample)),
        "## What the file says of itself",
        "",
        f"Its metadata have the entries {', '.join(f'`{name}`' for name in metadata)}; all but plain texts are JSON.",
        f"Licence of the weights it started from: {in_markdown(metadata['license'])}",
        "",
        "## Classes, in order",
        "",
        *(f"{index}. {in_markdown(label)}" for index, label in enumerate(classifier.class_names)),
        "",
    ]
    return printable("\n".join(lines), lines=True)


def _block(sample: Sample) -> list[str]:
    return [f"## {sample.title}", "", f"```{sample.language}", sample.code, "```", ""]

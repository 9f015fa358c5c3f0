"""The model card, written from what the classifier knows of itself."""

import json
from collections.abc import Mapping

from vitral.classifier.classifier import Classifier
from vitral.models.cost import count_parameters
from vitral.models.naming import describe
from vitral.printable import in_markdown, printable
from vitral.weights.named.find import licence_of


def model_card(classifier: Classifier, *, name: str) -> str:
    """Return the card as Markdown, with the front matter that the Hugging Face Hub reads."""
    model = classifier.model
    architecture = describe(model.config)
    height, width = model.image_size
    found = (classifier.calibration, classifier.quantization, classifier.setting)
    lines = [
        *("---", "library_name: vitral", "pipeline_tag: image-classification", "tags: [vit, vitral]", "---", ""),
        f"# {name}",
        "",
        f"An image classifier: {architecture}, {count_parameters(model):,} parameters, images of {height}x{width} "
        f"pixels, {len(classifier.class_names)} {classifier.task.noun}. Started from {classifier.provenance.source}.",
        "",
        *(f"{licence}\n" for licence in (licence_of(classifier.provenance.source),) if licence),
        *(f"> **{in_markdown(doubt)}**\n" for doubt in (classifier.doubt() or classifier.shortfall(),) if doubt),
        *_scores(classifier),
        *(f"{in_markdown(part.sentence())}\n" for part in found if part is not None),
        "## Use",
        "",
        "```python",
        "import vitral",
        "",
        'classifier = vitral.load("path/to/this/folder")',
        'print(classifier.predict("photo.jpg")[0].label)',
        "```",
        "",
        "## Classes, in order",
        "",
        *(f"{index}. {in_markdown(label)}" for index, label in enumerate(classifier.class_names)),
        "",
        "## Preprocessing",
        "",
        "```json",
        json.dumps(classifier.preprocessing.to_json(), indent=2),
        "```",
        "",
        *_training(classifier),
    ]
    return printable("\n".join(lines), lines=True)


def _scores(classifier: Classifier) -> list[str]:
    provenance = classifier.provenance
    scores = provenance.scores
    if not scores:
        return []
    rows = [f"| {name} | {value if isinstance(value, int) else f'{value:.4f}'} |" for name, value in scores.items()]
    choice = provenance.training.get("choice")
    tried = choice.get("sentence", "") if isinstance(choice, Mapping) else ""
    sentence = [in_markdown(str(tried)), ""] if tried else []
    return ["## Scores", "", *sentence, "| figure | value |", "|---|---|", *rows, ""]


def _training(classifier: Classifier) -> list[str]:
    training = classifier.provenance.training
    if not training:
        return []
    return ["## Training", "", "```json", json.dumps(training, indent=2, ensure_ascii=False, default=str), "```", ""]

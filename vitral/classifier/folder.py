"""The classifier folder: weights.safetensors, classifier.json, README.md (the model card); read without ever unpickling."""

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

from vitral.advice import counted, in_markdown, printable
from vitral.classifier.classifier import Classifier, Tuning
from vitral.classifier.metadata import (
    CLASS_IMAGES,
    CLASS_WEIGHTS,
    LOGIT_ADJUSTMENT,
    RARE_CLASSES,
    Calibration,
    check_plugins,
    read_class_names,
    read_provenance,
    required_plugins,
)
from vitral.classifier.novelty import KnownImages, Novelty
from vitral.errors import VitralError, WeightsError
from vitral.files import new_file, new_folder, restore_swapped, sha256, sync_file, text_of, write_file, write_through
from vitral.images.preprocessing import Preprocessing
from vitral.inference.quantization import Quantization
from vitral.models.families import build, config_from_json, config_to_json, count_parameters, describe, family
from vitral.models.model import Model
from vitral.paths import CARD, CLASSIFIER, CLASSIFIER_FILES, DESCRIPTION, FEATURES, WEIGHTS, is_regular
from vitral.tasks.class_sizes import ClassSizes
from vitral.tasks.registry import described_task
from vitral.weights.containers import assign, open_container, read_tensors, write_safetensors
from vitral.weights.named.table import licence_of

# Entries of a classifier that has such.
CALIBRATION = "calibration"
INT8 = "int8"
SETTING = "setting"
NOVELTY = "novelty"
# Entries of what training was whose sentences stand above the scores.
TOLD = ("choice", CLASS_WEIGHTS, LOGIT_ADJUSTMENT, RARE_CLASSES)
FORMAT = "vitral-classifier"
FORMAT_VERSION = 3  # which says the task by name; a folder of version 1 can be read, and says whether it is multi-label
OLDEST_VERSION = 1


def model_card(classifier: Classifier, *, name: str) -> str:
    """Return the card as Markdown, with the front matter that the Hugging Face Hub reads."""
    model, task = classifier.model, classifier.task
    architecture = describe(model.config)
    height, width = model.image_size
    what = f"A classifier for photos that {task.labelled}" if task.dense else "An image classifier"
    call = 'find_regions("photo.jpg")[0].labels' if task.dense else 'predict("photo.jpg")[0].label'
    found = (classifier.calibration, classifier.quantization, classifier.setting, classifier.novelty)
    lines = [
        *("---", "library_name: vitral", f"pipeline_tag: {task.pipeline}", "tags: [vit, vitral]", "---", ""),
        f"# {name}",
        "",
        f"{what}: {architecture}, {count_parameters(model):,} parameters, images of {height}x{width} "
        f"pixels, {counted(len(classifier.class_names), 'class', task.noun)}. Started from {classifier.provenance.source}.",
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
        f"print(classifier.{call})",
        "```",
        "",
        "## Classes, in order",
        "",
        *_classes(classifier),
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


def _classes(classifier: Classifier) -> list[str]:
    """Return the classes in order; where they were unequal in training, each with its number of images."""
    sizes = ClassSizes(classifier.provenance.class_images)
    counts = [f" ({count:,} training images)" for count in sizes.images] if sizes.unequal else repeat("")
    named = zip(classifier.class_names, counts, strict=False)
    return [f"{index}. {in_markdown(label)}{count}" for index, (label, count) in enumerate(named)]


def _scores(classifier: Classifier) -> list[str]:
    provenance = classifier.provenance
    scores = provenance.scores
    if not scores:
        return []
    rows = [f"| {name} | {value if isinstance(value, int) else f'{value:.4f}'} |" for name, value in scores.items()]
    entries = (provenance.training.get(name) for name in TOLD)
    told = [entry.get("sentence", "") for entry in entries if isinstance(entry, Mapping)]
    sentences = [line for sentence in told if sentence for line in (in_markdown(str(sentence)), "")]
    return ["## Scores", "", *sentences, "| figure | value |", "|---|---|", *rows, ""]


def _training(classifier: Classifier) -> list[str]:
    provenance = classifier.provenance
    training = {name: value for name, value in provenance.training.items() if name != CLASS_IMAGES}
    if not training:
        return []
    return ["## Training", "", "```json", json.dumps(training, indent=2, ensure_ascii=False, default=str), "```", ""]


def save(classifier: Classifier, folder: str | Path) -> Path:
    """Write a classifier folder at once: an interrupted save leaves the older folder as it was.

    Other files in the folder stay.

    Raises:
        StorageError: the folder cannot be written.
    """
    path = Path(folder)
    with new_folder(path, own=CLASSIFIER_FILES) as partial:
        tensors = {name: tensor.detach().cpu() for name, tensor in classifier.model.state_dict().items()}
        write_safetensors(tensors, partial / WEIGHTS)
        sync_file(partial / WEIGHTS)
        weights = sha256(partial / WEIGHTS)
        if classifier.quantization is not None and classifier.quantization.weights not in ("", weights):
            classifier.quantization = None  # of weights that are no longer these
        if classifier.known_images is not None:
            _write_features(classifier.known_images, weights, partial / FEATURES)
            sync_file(partial / FEATURES)
        text = _described(classifier, weights)
        write_through(partial / DESCRIPTION, text.encode())
        write_through(partial / CARD, model_card(classifier, name=path.name).encode())
    return path


def _write_features(known: KnownImages, weights: str, path: Path) -> None:
    write_safetensors(known.tensors(), path, {WEIGHTS: weights})


def write_known_images(classifier: Classifier, folder: Path) -> None:
    """Write what is now known of a classifier into its folder, with the images that it remembers; the weights stay.

    Raises:
        WeightsError: The folder holds no classifier.
        StorageError: It cannot be written.
    """
    if (known := classifier.known_images) is not None:
        with new_file(folder / FEATURES) as partial:
            _write_features(known, weights_hash(folder), partial)
    update_provenance(classifier, folder)


def weights_hash(folder: Path) -> str:
    """Return the hash of a classifier folder's weights file, as its description has it.

    Raises:
        WeightsError: it is damaged.
    """
    return str(_description(folder / DESCRIPTION)["weights_sha256"])


def update_provenance(classifier: Classifier, folder: Path) -> None:
    """Write what is now known of a classifier, such as its scores, into its folder; the weights stay.

    Raises:
        WeightsError: the folder holds no classifier.
        StorageError: it cannot be written.
    """
    write_file(folder / DESCRIPTION, _described(classifier, weights_hash(folder)))
    write_file(folder / CARD, model_card(classifier, name=folder.name))


def folder_that_keeps(classifier: Classifier | str | Path, what: str) -> Path:
    """Return the classifier folder that is named, itself or by the run folder around it; an error says what it is to keep.

    Raises:
        WeightsError: it names none.
    """
    if not isinstance(classifier, Classifier) and (folder := classifier_in(Path(classifier))) is not None:
        return folder
    raise WeightsError(f"Only a classifier folder, or the run folder around one, can keep {what}; name one.")


def _described(classifier: Classifier, weights: str) -> str:
    description = {
        "format": FORMAT,
        "version": classifier.task.folder_version,
        "architecture": config_to_json(classifier.model.config),
        **required_plugins(family(classifier.model.config), classifier.task.name),
        "preprocessing": classifier.preprocessing.to_json(),
        "class_names": list(classifier.class_names),
        "task": classifier.task.name,
        **classifier.task.described(),
        **({} if classifier.calibration is None else {CALIBRATION: classifier.calibration.to_json()}),
        "weights_sha256": weights,
        "provenance": dataclasses.asdict(classifier.provenance),
        **({} if classifier.quantization is None else {INT8: classifier.quantization.to_json()}),
        **({} if classifier.setting is None else {SETTING: classifier.setting.to_json()}),
        **({} if classifier.novelty is None else {NOVELTY: classifier.novelty.to_json()}),
    }
    return json.dumps(description, indent=2, allow_nan=False, default=str)


def is_classifier(folder: Path) -> bool:
    """Tell whether a folder holds a classifier."""
    with contextlib.suppress(OSError, ValueError):  # a name that no system takes, or a disk that is read only
        restore_swapped(folder)
    return is_regular(folder / DESCRIPTION)


def classifier_in(path: Path) -> Path | None:
    """Return the classifier folder that a path names, itself or by the run folder around it; None if it names none."""
    return next((folder for folder in (path, path / CLASSIFIER) if is_classifier(folder)), None)


def state_of_files(source: str) -> tuple[tuple[str, int, int, int], ...]:
    """Return name, size, time and number of a classifier's files; nothing for one that is no file and no folder."""
    path = Path(source)
    try:
        folder = classifier_in(path) or path
        files = sorted(folder.iterdir()) if folder.is_dir() else sorted(path.parent.glob(f"{path.stem}.*"))
        stats = [(file.name, file.stat()) for file in files if file.is_file()]
    except (OSError, ValueError):  # it is being replaced just now, or is a name
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


def read(folder: Path) -> Classifier:
    """Read a classifier folder.

    Raises:
        WeightsError: a file is missing, damaged or does not fit the others; the message names it.
        PluginError: it needs a plugin that was not loaded.
    """
    path = folder / DESCRIPTION
    description = _description(path)
    check_plugins(description, folder)
    try:
        config = config_from_json(description["architecture"])
        preprocessing = Preprocessing.from_json(description["preprocessing"])
        provenance = read_provenance(description["provenance"])
        names = read_class_names(description["class_names"])
        task = described_task(description)
        model = build(config, seed=None)
        _check_weights(folder / WEIGHTS, description["weights_sha256"])
        assign(model, read_tensors(folder / WEIGHTS), str(folder / WEIGHTS))
        classifier = Classifier(
            model,
            preprocessing,
            names,
            provenance=provenance,
            calibration=Calibration.from_json(description.get(CALIBRATION)),
            quantization=_form(description, model),
            task=task,
        )
        classifier.setting = Tuning.from_json(description.get(SETTING))
        classifier.remember(*_remembered(folder, description, model))
        classifier.folder = folder
        return classifier
    except KeyError as error:
        raise WeightsError(f"'{path}' lacks the entry {error}; save the classifier again.") from error
    except (TypeError, AttributeError) as error:
        raise WeightsError(f"'{path}' has an entry of the wrong type ({error}); save the classifier again.") from error
    except WeightsError:
        raise
    except VitralError as error:
        raise WeightsError(f"'{path}' cannot be used: {error}") from error
    except (ArithmeticError, RuntimeError, ValueError) as error:  # a network that its numbers cannot make
        what = " ".join(str(error).split("\n")[0].split())
        raise WeightsError(f"'{path}' describes no network ({what}); save the classifier again.") from error


def _form(description: Mapping[str, Any], model: Model) -> Quantization | None:
    """Return the int8 form of a folder; None for one that is damaged or of other weights, and int8 says how one is found."""
    if description.get(INT8) is None:
        return None
    try:
        form = Quantization.from_json(description[INT8])
        if form is None or (form.weights and form.weights != description["weights_sha256"]):
            return None
        form.check(model)
    except VitralError:
        return None
    return form


def _remembered(
    folder: Path, description: Mapping[str, Any], model: Model
) -> tuple[KnownImages | None, Novelty | None]:
    """Return the images that a folder's network knows, and its limit; None for those of other weights, or damaged ones.

    Nothing but they would be lost with them, so that they are no reason to refuse a classifier.
    """
    path = folder / FEATURES
    if not is_regular(path):
        return None, None
    try:
        with open_container(path) as container:
            if container.metadata.get(WEIGHTS) != description["weights_sha256"]:
                return None, None
            tensors = {name: container.read(name) for name in container.shapes}
        return (
            KnownImages.of(tensors, width=model.num_features, classes=model.num_classes),
            Novelty.from_json(description.get(NOVELTY)),
        )
    except VitralError:
        return None, None


def setting_of(source: str | Path) -> Tuning | None:
    """Return the setting of a classifier folder, or of a run folder around one; None where there is none.

    Raises:
        WeightsError: the folder's description is damaged.
    """
    folder = classifier_in(Path(source))
    if folder is None:
        return None
    path = folder / DESCRIPTION
    description = _description(path)
    try:
        return Tuning.from_json(description.get(SETTING))
    except VitralError as error:
        raise WeightsError(f"'{path}' cannot be used: {error}") from error


def _description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(text_of(path))
    except OSError as error:
        raise WeightsError(f"'{path}' cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"'{path}' cannot be read as JSON ({error}); save the classifier again.") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise WeightsError(f"'{path}' does not describe a Vitral classifier.")
    if description.get("version") not in range(OLDEST_VERSION, FORMAT_VERSION + 1):
        raise WeightsError(
            f"'{path}' has format version {description.get('version')}, and this Vitral reads up to {FORMAT_VERSION}; "
            "update Vitral."
        )
    return description


def _check_weights(path: Path, expected: str) -> None:
    if not path.is_file():
        raise WeightsError(f"'{path}' is missing; the folder needs it beside {DESCRIPTION}.")
    if sha256(path) != expected:
        raise WeightsError(f"'{path}' is damaged or of another classifier: it does not match {DESCRIPTION}.")

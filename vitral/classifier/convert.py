"""From any classifier to another library's files, to a classifier folder, or to the Hugging Face Hub."""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.classifier import folder
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load, resized
from vitral.classifier.space import write_space
from vitral.described import override
from vitral.errors import WeightsError, did_you_mean
from vitral.events import Listener, Message, show
from vitral.outputs import check_file, check_folder
from vitral.paths import CLASSIFIER_FILES
from vitral.weights.hub import check_name, upload
from vitral.weights.recognize import MARK, description_path
from vitral.weights.save import TRANSFORMERS_FILES, WrittenWeights, write_weights

VITRAL = "vitral"
TRANSFORMERS = "transformers"
# The formats that are folders, and what is in them.
FOLDERS = {VITRAL: CLASSIFIER_FILES, TRANSFORMERS: TRANSFORMERS_FILES}
FORMATS = (VITRAL, "original", "big_vision", "timm", TRANSFORMERS)
HUB_FORMATS = (VITRAL, "transformers")


def convert(
    source: Classifier | str | Path,
    target: str | Path,
    *,
    format: str,  # what every tool calls it
    image_size: int | tuple[int, int] | None = None,
    architecture: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    listener: Listener = show,
) -> WrittenWeights:
    """Write a classifier in another format; what belongs to it is kept, or a note says what is not.

    Preprocessing, class names and calibration go into the format where it has a place for them, and else into a small file
    next to it (NAME.vitral.json), which `load` finds again and a note names. In the format "transformers" the calibration has
    no place, which a note says.

    Args:
        source: The classifier, or whatever `load` takes.
        target: a folder for "vitral" and "transformers", a file for the others.
        format: "vitral" (a classifier folder), "original" (the official code's own: .npz of vision_transformer, V-MoE and
            BiT; state_dicts of DeiT, T2T-ViT, CvT and torchvision), "big_vision", "timm" or "transformers".
        image_size: Size of images, pixels, to which the position embedding is resized. None: as it was.
        architecture: Fields of the network's config that a weights file cannot say.
        overwrite: replace what stands at `target`, at once; never the source, nor a folder that holds anything else.
        listener: receives what is fetched, if the source is; it is written to the screen if left out.

    Returns:
        Where it went, the line of Python that opens it there, and what its library does otherwise.

    Raises:
        WeightsError: the source cannot be read, or the format cannot hold its network.
        ModelError: the network cannot take `image_size`, or has no such field.
        StorageError: the target cannot be written, or something stands there that would be lost.
    """
    if format not in FORMATS:
        raise WeightsError(
            f"There is no format '{format}'.{did_you_mean(format, FORMATS)} There are: {', '.join(FORMATS)}."
        )
    _check_target(Path(target), format, source, overwrite=overwrite)
    classifier = _loaded(source, image_size, architecture, listener)
    if format == VITRAL:
        path = folder.save(classifier, target)
        return WrittenWeights(path, f"vitral.load({str(path)!r})")
    calibration = classifier.calibration
    written = write_weights(
        classifier.model,
        classifier.preprocessing,
        classifier.class_names,
        target,
        format,
        task=classifier.task,
        calibration=None if calibration is None else calibration.to_json(),
        overwrite=overwrite,
    )
    return replace(written, notes=(*written.notes, *kept_notes(classifier, format)))


def kept_notes(classifier: Classifier, format_name: str) -> list[str]:
    """Return what another library's format makes of what a classifier has beside its weights, a sentence each."""
    notes = []
    if (calibration := classifier.calibration) is not None:
        kept = "Vitral alone applies the calibration to what it reads from there"
        lost = "The format cannot hold the calibration, which is left out"
        notes.append(f"{lost if format_name == TRANSFORMERS else kept}: {calibration.sentence()}")
    parts = {
        "int8 form": classifier.quantization,
        "setting": classifier.setting,
        "limit for none of the classes": classifier.novelty,
    }
    for name, part in parts.items():
        if part is not None:
            notes.append(f"The format has no place for the {name}, which is left out: {part.sentence()}")
    return notes


def _loaded(
    source: Classifier | str | Path,
    size: int | tuple[int, int] | None,
    architecture: Mapping[str, Any] | None,
    listener: Listener,
) -> Classifier:
    if not isinstance(source, Classifier):
        return load(source, image_size=size, architecture=architecture, tuned=False, listener=listener)
    if architecture:
        raise WeightsError("A classifier says its own architecture; only a weights file's can be changed.")
    return source if size is None else resized(copy.deepcopy(source), size, listener)


def _check_target(target: Path, format_name: str, source: Classifier | str | Path, *, overwrite: bool) -> None:
    origin = source.folder if isinstance(source, Classifier) else source
    inputs = [] if origin is None else [origin]
    if format_name in FOLDERS:
        check_folder(target, own=FOLDERS[format_name], inputs=inputs, overwrite=overwrite)
    else:
        check_file(target, inputs=inputs, overwrite=overwrite)
        check_file(description_path(target), inputs=inputs, mark=MARK, overwrite=overwrite)


def settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE changes of an architecture as the nested mapping that `load` takes.

    Raises:
        WeightsError: one is no such change, or contradicts another.
    """
    changes: dict[str, Any] = {}
    for change in overrides:
        override(changes, change, error=WeightsError, example="num_heads=8")
    return changes


def push(
    source: Classifier | str | Path,
    name: str,
    *,
    format: str = VITRAL,
    private: bool = False,
    space: bool = False,
    listener: Listener = show,
) -> str:
    """Put a classifier on the Hub and return its address; `load("hf:owner/name")` fetches it again, unless it is a Space.

    Args:
        source: The classifier, or whatever `load` takes.
        name: "owner/name" or "hf:owner/name"; made if it is not there.
        format: "vitral", the classifier folder with its card, or "transformers", which its own library opens.
        private: whether a new repository is for its owner's eyes alone.
        space: whether it becomes a Space: a server of the classifier, with its page, that the Hub builds and runs.
        listener: receives what is fetched, if the source is, and what the format does not keep, as warnings; they are written
            to the screen if left out.

    Raises:
        WeightsError: the source cannot be read, the format cannot hold it, or the Hub refuses.
    """
    if format not in HUB_FORMATS:
        raise WeightsError(f"The Hub takes the formats {' and '.join(HUB_FORMATS)}, not '{format}'.")
    if space and format != VITRAL:
        raise WeightsError(f"A Space serves the format {VITRAL}, not '{format}'; leave the format out.")
    check_name(name)
    with tempfile.TemporaryDirectory() as temporary:
        short = name.rpartition("/")[2]
        place = Path(temporary) / short
        written = convert(source, place / short if space else place, format=format, listener=listener)
        for note in written.notes:
            listener(Message(note, warning=True))
        if space:
            write_space(place, short)
        return upload(place, name, private=private, kind="space" if space else "model")

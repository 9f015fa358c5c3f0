"""From whatever names a classifier to the classifier."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.advice import call, function
from vitral.classifier import exported, folder
from vitral.classifier.classifier import Classifier, Tuning
from vitral.classifier.metadata import RANDOM, Calibration, Provenance
from vitral.described import read_object
from vitral.errors import ModelError, VitralError, WeightsError
from vitral.events import Listener, Message, show
from vitral.images.preprocessing import PHOTOS
from vitral.inference.choice import can_compute, predictor_in, predictor_of
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.inference.exported.open import exported_in, format_of, is_exported
from vitral.machine import processor_name
from vitral.models.catalog import instead_of, list_models
from vitral.models.families import build, configure
from vitral.paths import DESCRIPTION, RUN_FILE, RUNS, is_folder, look_at, nearest_path
from vitral.weights.containers import some
from vitral.weights.hub import download
from vitral.weights.load import read_weights
from vitral.weights.named.fetch import fetch, origin
from vitral.weights.named.table import find, is_named, offer
from vitral.weights.recognize import checkpoint_in, is_state, weights_in

HUB_ID = re.compile(r"(hf:)?[\w.-]+/[\w.-]+")
WEIGHT_SUFFIXES = (".npz", ".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".pth.tar")


def load(
    source: str | Path,
    *,
    image_size: int | tuple[int, int] | None = None,
    architecture: Mapping[str, Any] | None = None,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    merge: int | None = None,
    tuned: bool = True,
    backbone: str | Path | None = None,
    listener: Listener = show,
) -> Classifier:
    """Return a classifier, ready to predict; nothing is ever unpickled.

    Args:
        source: a classifier folder or the run folder around one; a weights file of the original ("ViT-B_16.npz"), of
            big_vision, timm, transformers or another library, or the folder around it; the name of published weights
            ("vit-b16@augreg-in21k"), which are fetched once; a variant's name for random weights ("vit-b16"); a Hub id
            ("hf:owner/name"); or what `export` wrote for ONNX Runtime or OpenVINO, which that computes, preprocessing included.
        image_size: pixels, an int or (height, width): the position embedding is resized to it. None: as it was trained. A
            folder that `tune` has written a setting into is loaded by that, where neither a size nor anything of engine,
            precision and merge is given.
        architecture: Fields of the network's config to change, for a weights file or a name: what the file cannot say, such
            as {"num_heads": 8} or {"experts": {"capacity_factor": 4.0}}.
        engine: what computes predictions: "torch"; "packed", weights sorted once for the CPU; "compiled" by torch.compile;
            "openvino" or "onnxruntime" (in fp32), extras, which convert the network in seconds; "auto" for the fastest but
            "compiled", measured once for a machine and a network. None: the network itself in fp32, else "auto".
        precision: The precision of predictions: "fp32", exactly, which None stands for; "bf16"; "int8" of a folder that
            `quantize` has found the ranges for; "auto" for bf16 where the hardware has it and it is faster, which the
            listener is told. Features are computed with the predictions; training and explanations are in fp32 in any case.
            In a job of several processes all of them call `load` where an "auto" leaves a choice: the first measures for all.
        merge: tokens that each block of a Vision Transformer but the last is to have fewer (ToMe, arXiv 2210.09461): faster,
            and other answers, which `evaluate` sets beside the network's own. None or 0 for none.
        tuned: whether a setting of the folder's is taken; without it the network is as it was trained.
        backbone: The network, by whatever `source` may be, that the head of a weights file stands on which holds nothing else,
            such as PMT's decoders; a name of published weights says its own.
        listener: receives what is fetched, by name, and the progress; they are written to the screen if left out.

    Raises:
        WeightsError: there is no such thing, or it cannot be read or fetched; the message names file and tensor.
        ModelError: the network cannot take `image_size`, or has no such field; or an engine that is not there.
    """
    if (file := _exported(Path(source))) is not None:
        if image_size is not None or architecture or merge:
            raise WeightsError(
                f"'{file}' is fixed as it was written; change the classifier that it was made from, and export it again."
            )
        return exported.read(file, engine=engine, precision=precision, listener=listener)
    size = _pair(image_size)
    if backbone is None:
        classifier = _load(source, architecture or {}, size, listener)
    else:
        classifier = _from_weights(Path(source), architecture or {}, size, backbone=load(backbone, listener=listener))
    if classifier.setting is not None:
        if size is None and engine is None and precision is None and merge is None:
            return _by_setting(classifier, classifier.setting, listener) if tuned else classifier
        listener(Message(f"Left aside, since another setting is asked for: {classifier.setting.sentence()}"))
        classifier.setting = None
    resized(classifier, size, listener)
    if classifier.task.dense and not merge:
        _check_found_by(engine, precision)
        return classifier
    classifier.predictor = predictor_of(
        classifier.model, engine, precision or "fp32", listener, classifier.quantization, merge or 0
    )
    return _note_untold(classifier, listener)


def _check_found_by(engine: EngineChoice | None, precision: PrecisionChoice | None) -> None:
    """Refuse to let regions be found by anything but the network itself in fp32, which "auto" stands for.

    Raises:
        ModelError: Something else is named.
    """
    if engine not in (None, "auto", "torch") or precision not in (None, "auto", "fp32"):
        raise ModelError("Regions are found by the network itself in fp32; leave engine and precision out.")


def _note_untold(classifier: Classifier, listener: Listener) -> Classifier:
    """Say that a classifier which computes in another way does not tell images of none of its classes; return it."""
    if classifier.novelty is not None and not classifier.tells_novelty:
        listener(Message("Images of none of its classes are not told so: int8 and merged tokens have other features."))
    return classifier


def _pair(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if isinstance(size, str | float):
        raise ModelError(f"An image size is a whole number of pixels, or a height and a width, not {size!r}.")
    return (size, size) if isinstance(size, int) else size


def resized(classifier: Classifier, size: int | tuple[int, int] | None, listener: Listener) -> Classifier:
    """Return a classifier at another size, without what was found at other sizes than its new one; in place."""
    own, model, pair = classifier.preprocessing.image_size, classifier.model, _pair(size)
    novelty = classifier.novelty
    if pair is not None:
        model.resize(pair)
        classifier.preprocessing = classifier.preprocessing.with_size(model.image_size)
    calibration = classifier.calibration
    if calibration is not None and (calibration.image_size or own) != model.image_size:
        listener(Message(f"Fitted at another image size, and left out: {calibration.sentence()}", warning=True))
        classifier.calibration = None
    if own != model.image_size:
        classifier.remember(None)
        if novelty is not None:
            listener(Message(f"Set at another image size, and left out: {novelty.sentence()}", warning=True))
    if classifier.quantization is not None and classifier.quantization.image_size != model.image_size:
        classifier.quantization = None  # other tokens have other ranges; int8 says that it has none
    return classifier


def _by_setting(classifier: Classifier, setting: Tuning, listener: Listener) -> Classifier:
    """Return a classifier as it was tuned; on another machine by what is the fastest there of the same size and merging."""
    try:
        resized(classifier, setting.image_size, listener)
        if setting.machine == processor_name() and can_compute(setting.way, classifier.quantization):
            classifier.predictor = predictor_in(classifier.model, setting.way, classifier.quantization)
            listener(Message(setting.sentence()))
            return _note_untold(classifier, listener)
        listener(
            Message(
                f"{setting.sentence()} This is another machine, or lacks what computed there: taken by its size and merging; "
                f"{function('tune')} finds what is best here.",
                warning=True,
            )
        )
        classifier.predictor = predictor_of(classifier.model, "auto", "auto", listener, merge=setting.merge)
    except ModelError as error:
        raise WeightsError(f"'{classifier.folder}' has a setting that its network cannot take: {error}") from error
    return classifier


def _exported(path: Path) -> Path | None:
    """Return the exported file that a path names, itself or by a folder that holds neither a classifier nor weights."""
    if is_exported(path):
        return path
    if not is_folder(path) or folder.classifier_in(path) is not None or weights_in(path):
        return None
    return exported_in(path)


def holds_classifier(path: Path) -> bool:
    """Tell whether a folder is one that `load` reads: a classifier's or a run's, or one around weights or an export."""
    inside = (folder.classifier_in, weights_in, exported_in, checkpoint_in)
    return any(find(path) is not None for find in inside)


def as_classifier(classifier: Classifier | str | Path, listener: Listener = show, *, tuned: bool = True) -> Classifier:
    """Return a classifier that is given as itself or by whatever `load` takes; the arguments are those of `load`.

    Raises:
        WeightsError: there is no such thing, or it cannot be read.
    """
    return classifier if isinstance(classifier, Classifier) else load(classifier, tuned=tuned, listener=listener)


def _load(
    source: str | Path, architecture: Mapping[str, Any], size: tuple[int, int] | None, listener: Listener
) -> Classifier:
    path = Path(source)
    if (named := folder.classifier_in(path)) is not None:
        if architecture:
            raise WeightsError(f"'{named}' says its own architecture; only a weights file's can be changed.")
        return folder.read(named)
    if is_folder(path):
        weights = weights_in(path)
        if weights is None and (checkpoint := checkpoint_in(path)):
            classifier = _load(checkpoint[0], architecture, size, listener)
            note = f"Read of the checkpoints in '{path}': {checkpoint[0].name}, {checkpoint[1]}."
            classifier.provenance = replace(classifier.provenance, notes=(note, *classifier.provenance.notes))
            return classifier
        return _from_weights(weights or _only_weights(path), architecture, size)
    if look_at(path) is not None:
        return _from_weights(path, architecture, size)
    return _named(str(source), architecture, size, listener)


def _only_weights(folder: Path) -> Path:
    """Return the weights file of a folder that no library wrote, by its ending.

    Raises:
        WeightsError: there is none, or several.
    """
    ending = sorted(file for file in folder.iterdir() if file.name.endswith(WEIGHT_SUFFIXES))
    files = [file for file in ending if not is_state(file.name)]
    if len(files) == 1:
        return files[0]
    several = f"; name one of its files: {some([file.name for file in files])}" if files else ""
    if not files and (folder / RUN_FILE).is_file():
        begun = "pretrain" if read_object(folder / RUN_FILE).get("kind") == "pre-train" else "finetune"
        again = call(f"vitral.{begun}(resume=True, out={str(folder)!r})")
        raise WeightsError(f"The run in '{folder}' has made no classifier yet; {again} continues it.")
    raise WeightsError(
        f"'{folder}' is no classifier folder: it holds no {DESCRIPTION}, and no single weights file{several}."
    )


def _from_weights(
    path: Path,
    architecture: Mapping[str, Any],
    size: tuple[int, int] | None,
    *,
    published: bool = False,
    backbone: Classifier | None = None,
) -> Classifier:
    below = None if backbone is None else backbone.model
    loaded = read_weights(path, architecture=architecture, image_size=size, backbone=below)
    notes = loaded.notes if published else (*loaded.notes, *loaded.assumed)  # published ones are known to be so
    provenance = Provenance(loaded.source, notes=notes)
    return Classifier(
        loaded.model,
        loaded.preprocessing,
        loaded.class_names,
        provenance=provenance,
        calibration=_calibration(path, loaded.calibration),
        task=loaded.task,
    )


def _calibration(path: Path, values: object) -> Calibration | None:
    try:
        return Calibration.from_json(values)
    except VitralError as error:
        raise WeightsError(f"The description of '{path}' is damaged: {error}") from error


def _named(name: str, architecture: Mapping[str, Any], size: tuple[int, int] | None, listener: Listener) -> Classifier:
    refuse_unknown(name)
    if name in list_models():
        model = build(configure(name, architecture))
        random = Provenance(source=f"{RANDOM} ({name})")
        provenance = replace(random, notes=tuple(filter(None, (random.doubt(), offer(name)))))
        return Classifier(model, PHOTOS.with_size(model.image_size), provenance=provenance)
    if is_named(name) and not _is_path(name):
        row = find(name)
        file = fetch(row, listener)
        backbone = resized(_named(row.backbone, {}, None, listener), row.image_size, listener) if row.backbone else None
        merged = {**row.architecture, **architecture}
        classifier = _from_weights(file, merged, size, published=True, backbone=backbone)
        classifier.provenance = replace(classifier.provenance, source=origin(row, file))
        return classifier
    return _load(download(name), architecture, size, listener)


def refuse_unknown(source: str | Path) -> None:
    """Refuse what `load` could make nothing of, without reading or fetching anything.

    What lies under a path, and whether the Hub has a repository, is not looked at.

    Raises:
        WeightsError: there is no such thing; the message proposes the nearest name.
    """
    name = str(source)
    if look_at(Path(name)) is not None or name in list_models():
        return
    if _is_path(name):
        hub = f"; for a Hub id write hf:{name}" if HUB_ID.fullmatch(name) else ""
        if "/" in name:
            raise WeightsError(f"There is no file or folder '{name}'{hub}.{nearest_path(name)}")
    elif is_named(name):
        find(name)
        return
    elif HUB_ID.fullmatch(name):
        return
    raise WeightsError(f"'{name}' is no file, no classifier folder, no model name and no Hub id.{instead_of(name)}")


def _is_path(name: str) -> bool:
    """Tell whether a name is meant as a path: by its form, or because the folder that it would lie in is there."""
    if name.startswith("hf:"):
        return False
    if name.endswith((*WEIGHT_SUFFIXES, "/")) or name.startswith((".", "/", "~")) or format_of(Path(name)):
        return True
    start = name.partition("/")[0]
    return start == str(RUNS) or is_folder(start)

"""Writing a model and its preprocessing as another library's file or folder, which gives the same logits there."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.errors import WeightsError
from vitral.files import new_file, new_folder, sync_file, write_through
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import config_to_json
from vitral.models.model import Model
from vitral.outputs import check_folder
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.containers import ARCHITECTURE, COUNTER, write_architecture, write_safetensors, write_torch
from vitral.weights.dialect import DESCRIPTION, self_description
from vitral.weights.layouts import Rule, written
from vitral.weights.names import timm, transformers
from vitral.weights.proof import Proof, prove
from vitral.weights.recognize import CONFIG, PREPROCESSOR, WEIGHT_FILES, write_description

TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".tar")

TRANSFORMERS_FILES = (WEIGHT_FILES[0], CONFIG, PREPROCESSOR)


@dataclass(frozen=True)
class WrittenWeights:
    """What was written.

    Attributes:
        path: the file or folder.
        how: a line of Python that opens it in its library.
        notes: where its library computes differently from ours, one line each.
    """

    path: Path
    how: str
    notes: tuple[str, ...] = ()


def write_weights(
    model: Model,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    target: str | Path,
    format_name: str,
    *,
    task: Task = SINGLE_LABEL,
    calibration: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> WrittenWeights:
    """Write a model for another library; an interrupted write leaves what was there before.

    Args:
        model: The model.
        preprocessing: The preprocessing of images: stored in transformers' folder, or in the metadata of a .safetensors file,
            which other libraries ignore. For the other files it goes into a file next to them, which Vitral reads and a
            note names.
        class_names: The class names in order, which are stored in the same way.
        target: a folder for "transformers", a file for the others: .npz for the original's and big_vision's formats,
            .safetensors or .pth for those of torch.
        format_name: "original", "big_vision", "timm" or "transformers".
        task: The task, which says what a label is; stored in the same way.
        calibration: The calibration as JSON values, stored in the same way; transformers' folder has no entry for it.
        overwrite: replace a folder that holds nothing but files of these names; a file is always replaced.

    Raises:
        WeightsError: the format cannot hold this model, or `target` has the wrong suffix.
        StorageError: it cannot be written.
    """
    path = Path(target)
    proof = prove(model.config, format_name)
    dialect = proof.dialect
    if dialect.describe is not None:
        if path.suffix in (".npz", ".safetensors", *TORCH_SUFFIXES):
            raise WeightsError(f"'{path}' must be a folder for the format 'transformers'.")
        check_folder(path, own=TRANSFORMERS_FILES, overwrite=overwrite)
        return _write_transformers(model, preprocessing, class_names, path, proof, task=task)
    numpy = dialect.numpy
    _check_target(path, numpy=numpy)
    result = WrittenWeights(path, f"vitral.load({str(path)!r})", _epsilons(proof.epsilons))
    if format_name == "timm":
        how, notes = timm.describe(model.config, path, proof.epsilons)
        fixed = _epsilons({name: values for name, values in proof.epsilons.items() if name == "weight_eps"})
        result = WrittenWeights(path, how, (*fixed, *notes, timm.describe_preprocessing(preprocessing)))
    tensors = _theirs(model, proof.rules, counters=not numpy)
    description = self_description(proof.config, preprocessing, class_names, task=task, calibration=calibration)
    with new_file(path) as partial:
        if numpy:
            with open(partial, "wb") as file:  # an open file keeps numpy from adding its own suffix
                np.savez(file, **{name: tensor.numpy() for name, tensor in tensors.items()})  # type: ignore[arg-type]
        elif path.suffix == ".safetensors":
            write_safetensors(tensors, partial, {DESCRIPTION: description})
        else:
            write_torch({dialect.wrapper: tensors} if dialect.wrapper else tensors, partial)
        if path.suffix != ".safetensors":
            write_architecture(partial, json.dumps({ARCHITECTURE: config_to_json(proof.config)}))
    if path.suffix == ".safetensors":
        return result
    return _with_description(result, description, calibrated=calibration is not None)


def _with_description(written: WrittenWeights, description: str, *, calibrated: bool) -> WrittenWeights:
    """Write what a file cannot hold next to it, and say so in a note."""
    path = write_description(written.path, description)
    held = "class names, preprocessing and calibration" if calibrated else "class names and preprocessing"
    note = f"The format cannot hold {held}; they are in '{path}', keep it next to the file."
    return dataclasses.replace(written, notes=(*written.notes, note))


def _check_target(path: Path, *, numpy: bool) -> None:
    allowed = (".npz",) if numpy else (".safetensors", *TORCH_SUFFIXES)
    if path.suffix not in allowed:
        raise WeightsError(f"'{path}' must end in {' or '.join(allowed[:2])} for this format.")
    if path.is_dir():
        raise WeightsError(f"'{path}' is a folder; name a file.")


def _theirs(model: Model, rules: Sequence[Rule], *, counters: bool) -> dict[str, Tensor]:
    ours = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    tensors = written(rules, ours)
    if counters:
        means = [name for name in tensors if name.endswith("running_mean")]
        tensors |= {name.replace("running_mean", COUNTER): torch.zeros((), dtype=torch.int64) for name in means}
    # torch would store the whole tensor of a slice, and safetensors refuses slices.
    return {name: tensor.clone() if tensor._is_view() else tensor for name, tensor in tensors.items()}


def _write_transformers(
    model: Model,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    path: Path,
    proof: Proof,
    *,
    task: Task,
) -> WrittenWeights:
    assert proof.dialect.describe is not None
    described = proof.dialect.describe(model.config)
    config = {
        **described,
        **({DESCRIPTION: {ARCHITECTURE: config_to_json(proof.config)}} if proof.epsilons else {}),
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
        **({"problem_type": transformers.problem_type(task)} if proof.dialect.prepare is None else {}),
        "dtype": "float32",
    }
    processor = (proof.dialect.prepare or transformers.whole_preprocessing)(preprocessing)
    with new_folder(path) as partial:
        write_safetensors(_theirs(model, proof.rules, counters=True), partial / WEIGHT_FILES[0])
        sync_file(partial / WEIGHT_FILES[0])
        write_through(partial / CONFIG, json.dumps(config, indent=2).encode())
        write_through(partial / PREPROCESSOR, json.dumps(processor, indent=2).encode())
    note = transformers.images_note(preprocessing)
    kind = described["architectures"][0]
    opener = "AutoModelForImageClassification" if "ForImageClassification" in kind else kind
    how = f"transformers.{opener}.from_pretrained({str(path)!r})"
    return WrittenWeights(path, how, (*_epsilons(proof.epsilons), *(() if note is None else (note,))))


def _epsilons(epsilons: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Return a note where the library computes with other epsilons than the network."""
    differing = [f"{name} {theirs:g} instead of {ours:g}" for name, (theirs, ours) in epsilons.items()]
    return (
        (f"The format's library computes with {' and '.join(differing)}: slightly other logits.",) if differing else ()
    )

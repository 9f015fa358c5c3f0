"""From a network with its preprocessing to another library's file or folder, opened there with our logits."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.errors import WeightsError
from vitral.files import new_file, new_folder, sync_file, write_through
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import FAMILIES, family
from vitral.models.model import Model
from vitral.outputs import check_folder
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.beside import describe_beside
from vitral.weights.containers import COUNTER, write_safetensors, write_torch
from vitral.weights.dialect import DESCRIPTION, Dialect, self_description
from vitral.weights.names import bit, cvt, timm, transformers, vit_torch, vit_transformers
from vitral.weights.recognize import CONFIG, DIALECTS, PREPROCESSOR, WEIGHT_FILES

NUMPY_FAMILIES = ("vit", "bit")  # whose original files are .npz; the others' are torch's
TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".tar")
# DeiT's own files keep the network under an entry of this name.
DEIT_WRAPPER = "model"

TRANSFORMERS_FILES = (WEIGHT_FILES[0], CONFIG, PREPROCESSOR)
DESCRIPTIONS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "vit": vit_transformers.describe,
    "bit": bit.describe,
    "cvt": cvt.describe,
}


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        path: the file or folder.
        how: a line of Python that opens it in its library.
        notes: where its library computes something else than we do, one line each.
    """

    path: Path
    how: str
    notes: tuple[str, ...] = ()


def formats_of(model: Model) -> list[str]:
    """Return the formats that a network of this family can be written in."""
    name = family(model.config)
    return sorted({dialect.name for dialect in DIALECTS if dialect.family == name})


def write_weights(
    model: Model,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    target: str | Path,
    format_name: str,
    *,
    task: Task = SINGLE_LABEL,
) -> Written:
    """Write a network for another library; an interrupted write leaves what stood there before.

    Args:
        model: the network.
        preprocessing: what belongs to it; transformers' folder carries it, and so does text beside the tensors of a
            .safetensors file, which Vitral reads again and others pass over. The other files have no place for it: it
            goes into a file beside them, which Vitral reads again and a note names.
        class_names: in order; likewise.
        target: a folder for "transformers", a file for the others: .npz for the original's and big_vision's formats,
            .safetensors or .pth for those of torch.
        format_name: "original", "big_vision", "timm" or "transformers".
        task: what a label is; like the preprocessing.

    Raises:
        WeightsError: the format cannot hold this network, or `target` has the wrong kind of name.
        StorageError: it cannot be written.
    """
    path = Path(target)
    deit = format_name == "original" and _is_deit(model)  # whose own files have timm's names
    dialect = _dialect(model, "timm" if deit else format_name)
    rules = (vit_torch.own_rules if deit else dialect.rules)(model.config)
    if format_name == "transformers":
        return _write_transformers(model, preprocessing, class_names, path, rules, task=task)
    numpy = dialect.name in ("original", "big_vision") and dialect.family in NUMPY_FAMILIES
    _check_target(path, numpy=numpy)
    written = Written(path, f"vitral.load({str(path)!r})")
    if format_name == "timm":
        how, notes = timm.describe(model.config, path)
        written = Written(path, how, (*notes, timm.describe_preprocessing(preprocessing)))
    tensors = _theirs(model, rules, counters=not numpy)
    said = self_description(model.config, preprocessing, class_names, task=task)
    with new_file(path) as partial:
        if numpy:
            with open(partial, "wb") as file:  # an open file keeps numpy from adding its own suffix
                np.savez(file, **{name: tensor.numpy() for name, tensor in tensors.items()})  # type: ignore[arg-type]
        elif path.suffix == ".safetensors":
            write_safetensors(tensors, partial, {DESCRIPTION: said})
        else:
            write_torch({DEIT_WRAPPER: tensors} if deit else tensors, partial)
    return written if path.suffix == ".safetensors" else _described(written, said)


def _described(written: Written, said: str) -> Written:
    """Write beside a file what it has no place for, and say so."""
    path = describe_beside(written.path, said)
    note = f"The format has no place for class names and preprocessing; they are in '{path}', keep it beside the file."
    return dataclasses.replace(written, notes=(*written.notes, note))


def _dialect(model: Model, format_name: str) -> Dialect:
    name = family(model.config)
    found = next((dialect for dialect in DIALECTS if (dialect.family, dialect.name) == (name, format_name)), None)
    if found is None:
        known = ", ".join(formats_of(model))
        raise WeightsError(f"{FAMILIES[name].title} cannot be written as '{format_name}'; its formats are: {known}.")
    return found


def _is_deit(model: Model) -> bool:
    """Tell whether a Vision Transformer is DeiT's, whose own format is a torch file."""
    config = model.config
    return family(config) == "vit" and (config.distilled or config.gelu == "exact")


def _check_target(path: Path, *, numpy: bool) -> None:
    allowed = (".npz",) if numpy else (".safetensors", *TORCH_SUFFIXES)
    if path.suffix not in allowed:
        raise WeightsError(f"'{path}' must end in {' or '.join(allowed[:2])} for this format.")
    if path.is_dir():
        raise WeightsError(f"'{path}' is a folder; name a file.")


def _theirs(model: Model, rules: Sequence[Any], *, counters: bool) -> dict[str, Tensor]:
    ours = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    tensors: dict[str, Tensor] = {}
    for rule in rules:
        tensors |= zip(rule.theirs, rule.layout.write([ours[name] for name in rule.ours]), strict=True)
    if counters:
        means = [name for name in tensors if name.endswith("running_mean")]
        tensors |= {name.replace("running_mean", COUNTER): torch.zeros((), dtype=torch.int64) for name in means}
    # Slices of one tensor would be stored whole by torch, and are refused by safetensors.
    return {name: tensor.clone() if tensor._is_view() else tensor for name, tensor in tensors.items()}


def _write_transformers(
    model: Model,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    path: Path,
    rules: Sequence[Any],
    *,
    task: Task,
) -> Written:
    if path.suffix in (".npz", ".safetensors", *TORCH_SUFFIXES):
        raise WeightsError(f"'{path}' must be a folder for the format 'transformers'.")
    check_folder(path, own=TRANSFORMERS_FILES, replace=True)
    config = {
        **DESCRIPTIONS[family(model.config)](model.config),
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
        "problem_type": transformers.problem_type(task),
        "dtype": "float32",
    }
    processor = transformers.whole_preprocessing(preprocessing)
    with new_folder(path) as partial:
        write_safetensors(_theirs(model, rules, counters=True), partial / WEIGHT_FILES[0])
        sync_file(partial / WEIGHT_FILES[0])
        write_through(partial / CONFIG, json.dumps(config, indent=2).encode())
        write_through(partial / PREPROCESSOR, json.dumps(processor, indent=2).encode())
    note = transformers.images_note(preprocessing)
    how = f"transformers.AutoModelForImageClassification.from_pretrained({str(path)!r})"
    return Written(path, how, () if note is None else (note,))

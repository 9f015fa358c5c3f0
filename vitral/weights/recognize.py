"""Recognising a file's dialect and architecture from its tensors' names and shapes alone, and what stands beside the file.

What a weights file cannot hold lies in a small file next to it: preprocessing, class names and calibration.

ViT-B_16.npz                 the tensors, in another library's names
ViT-B_16.npz.vitral.json     what `vitral.load` needs, with the checksum of the weights file
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.advice import function
from vitral.errors import WeightsError
from vitral.files import sha256, text_of, write_file
from vitral.models.model import ModelConfig
from vitral.weights.containers import (
    ARCHITECTURE,
    Container,
    Shape,
    Shards,
    check_file,
    open_container,
    some,
    weights_errors,
)
from vitral.weights.dialect import BROKEN, DESCRIPTION, Dialect, Reading, Stored, broken, described
from vitral.weights.heads import BESIDE, of_two_classes, with_head_beside
from vitral.weights.names import (
    bit,
    clip,
    coatnet,
    cvt,
    dinov2,
    dinov3,
    efficientnet,
    eomt,
    eomt_own,
    eva02,
    pmt,
    resnet,
    rf_detr,
    t2t,
    timm,
    tinyvit,
    transformers,
    vit,
    vit_torch,
    vit_transformers,
)
from vitral.weights.places import TensorLocation, beside, meant, places, plain_names
from vitral.weights.unpickled import STATES
from vitral.weights.vmoe_shards import VMoEShards, is_shard_index

SUFFIX = ".vitral.json"
FORMAT = "vitral-weights-description"
MARK = FORMAT.encode()  # a file with this mark was written here, and may be replaced
SIZE_LIMIT = 32 << 20  # bytes: no description is larger
NAMES = (
    *(vit, bit, t2t, cvt, clip, eva02, eomt, eomt_own, pmt, dinov3),
    dinov2,  # whose names contain those of the two that follow
    *(vit_transformers, vit_torch, efficientnet, coatnet, tinyvit, resnet, rf_detr),
)
DIALECTS: tuple[Dialect, ...] = tuple(dialect for names in NAMES for dialect in names.DIALECTS)

# The names of weights files in other libraries' folders, in the order in which they are tried.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
ADAPTED = re.compile(r"(?<![^.])(?:lora_[AB]|base_layer)(?![^.])")  # parts of the names of low-rank changes
CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,12})")  # a folder of a Trainer's, and its step
TRAINER_STATE = "trainer_state.json"
CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
OPEN_CLIP = "open_clip_config.json"
PROCESSORS = "processor_config.json"  # transformers' of images and texts, which holds that of images
FOREIGN_CONFIGS = ("architectures", "model_type", "architecture", "pretrained_cfg")  # keys of other libraries' configs
CONFIG_LIMIT = 32 << 20  # bytes: no config is larger


def description_path(weights: Path) -> Path:
    """Return the path of a weights file's description."""
    return weights.with_name(f"{weights.name}{SUFFIX}")


def write_description(weights: Path, description: str) -> Path:
    """Write a weights file's description next to it and return its path, or raise StorageError if it cannot be written."""
    path = description_path(weights)
    write_file(
        path, json.dumps({"format": FORMAT, "weights_sha256": sha256(weights), **json.loads(description)}, indent=2)
    )
    return path


def read_description(weights: Path) -> tuple[str | None, str]:
    """Return the description next to a weights file if it is about this very file; otherwise a note.

    Raises:
        ValueError: it exists and cannot be read.
    """
    path = description_path(weights)
    if not path.is_file():
        return None, ""
    if path.stat().st_size > SIZE_LIMIT:
        raise ValueError(f"'{path}' next to it has {path.stat().st_size:,} bytes")
    text = text_of(path)
    description = json.loads(text)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        return None, f"'{path}' is not a description of weights and was ignored."
    if description.get("weights_sha256") != sha256(weights):
        return None, f"'{path}' is about another file and was ignored: class names and preprocessing are a guess."
    return text, ""


@dataclass(frozen=True)
class Recognized:
    """A recognised file: what is known before any tensor is read, its content, and where each tensor is, without prefix."""

    dialect: Dialect
    stored: Stored
    reading: Reading
    locations: Mapping[str, TensorLocation]


def weights_in(folder: Path) -> Path | None:
    """Return the weights file of a folder that transformers or timm wrote, its index, or its only one; None if it has none."""
    known = [folder / name for name in WEIGHT_FILES if (folder / name).is_file()]
    if known:
        return known[0]
    patterns = ("*.npz", "*.safetensors", "*.index", "*.pth", "*.ckpt")
    single = [path for pattern in patterns for path in folder.glob(pattern) if not is_state(path.name)]
    return single[0] if len(single) == 1 else None


def is_state(name: str) -> bool:
    """Tell whether a file is what a training keeps beside the weights, by its name."""
    return bool(STATES.search(name)) or name == "training_args.bin"


def checkpoint_in(folder: Path) -> tuple[Path, str] | None:
    """Return the checkpoint that a Trainer's output folder stands for, and why: the best by its own record, else the last.

    Raises:
        WeightsError: the record cannot be read as JSON.
    """
    steps = {int(match[1]): path for path in folder.iterdir() if (match := CHECKPOINT.fullmatch(path.name))}
    with_weights = [steps[step] for step in sorted(steps) if steps[step].is_dir() and weights_in(steps[step])]
    if not with_weights:
        return None
    record = read_config(with_weights[-1] / TRAINER_STATE) or read_config(folder / TRAINER_STATE)
    best = re.split(r"[/\\]", str(record.get("best_model_checkpoint") or "").rstrip("/\\"))[-1]
    known = [path for path in with_weights if path.name == best]
    return (known[0], f"the best by its {TRAINER_STATE}") if known else (with_weights[-1], "the last")


@contextmanager
def open_weights(path: Path) -> Iterator[Container]:
    """Open a weights file, or the index of several; their content decides, but of an index of safetensors or torch files.

    Raises:
        WeightsError: it cannot be read, or a part is missing.
    """
    if not path.name.endswith(".index.json"):
        check_file(path)
        if is_shard_index(path):
            with weights_errors(path):
                checkpoint = VMoEShards(path)
            yield checkpoint
            return
        with open_container(path) as container:
            yield container
        return
    parts = read_json(path).get("weight_map")
    if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts.values()):
        raise WeightsError(f"'{path}' is not an index of weights: it lacks the entry 'weight_map'.")
    with ExitStack() as stack:
        names = sorted(set(parts.values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise WeightsError(f"'{path}' points outside its folder, to '{outside[0]}'.")
        yield Shards(path, [stack.enter_context(open_container(path.parent / name)) for name in names])


def recognize(
    container: Container, given: Mapping[str, Any] | None = None, backbone: ModelConfig | None = None
) -> Recognized:
    """Recognise the architecture and the library; the caller may give fields of the config, and a head's backbone.

    Raises:
        WeightsError: the names or shapes belong to no known architecture, or are incomplete; or the file holds several
            networks, or one that answers with numbers.
    """
    if adapted := next(filter(ADAPTED.search, container.shapes), ""):
        raise WeightsError(
            f"'{container.path}' holds changes by LoRA ('{adapted}') beside a network, or alone; merge them into it where it "
            "was made (peft: model.merge_and_unload()), and save the whole."
        )
    locations, shapes = plain_names(container.shapes)
    stored = Stored(
        source=str(container.path),
        file_name=container.path.name,
        shapes=shapes,
        config=_config_of(container),
        preprocessor=foreign_preprocessor(container.path.parent),
        given=given or {},
        backbone=backbone,
    )
    found: dict[str, tuple[Dialect, Stored]] = {}

    def is_network(place: str, inside: Mapping[str, Shape]) -> bool:
        entry = place.partition(".")[0]
        wrapper = entry.removesuffix("_ema") if entry in container.entries else ""
        part = replace(stored, shapes=inside, wrapper=wrapper)
        dialect = next((dialect for dialect in DIALECTS if dialect.matches(part)), None)
        if dialect is not None:
            found[place] = dialect, part
        return dialect is not None

    if not (listed := places(shapes, is_network)):
        raise WeightsError(
            f"'{stored.source}' holds no known architecture (its tensors: {some(container.shapes)}); "
            f"{function('list_models')} lists what is, and in whose formats."
        )
    place = meant(listed, shapes, container, locations)
    dialect, stored = found[place]
    transformers.check_answers_with_classes(stored.config, stored.source)
    try:
        content, inside = _content(container, dialect, stored, place, beside(place, listed, shapes))
    except BROKEN as error:
        raise broken(stored, error) from error
    names = {name: name.removeprefix(BESIDE) if name.startswith(BESIDE) else f"{place}{name}" for name in inside}
    located = {name: locations[full] for name, full in names.items()}
    return Recognized(dialect, replace(stored, shapes=inside), content, located)


def _content(
    container: Container, dialect: Dialect, stored: Stored, place: str, outside: Mapping[str, Shape]
) -> tuple[Reading, Mapping[str, Shape]]:
    """Return a file's content, and the shapes of the tensors that it is made of."""
    text, note = _description(container, stored)
    description = {} if text is None else json.loads(text)
    if text is not None:
        # Which says all that a config.json would, but what transformers' tensors are of.
        config = stored.config if dialect.describe else {}
        stored = replace(stored, config=config, given={**description[ARCHITECTURE], **stored.given})
    content = dialect.read(stored)
    if content.config.region_head is not None:
        content = content if text is None else described(content, text)
        return replace(content, notes=(*content.notes, note)) if note else content, stored.shapes
    content = replace(content, task=transformers.task_of_problem(stored.config))
    read = {name for rule in content.rules for name in rule.theirs}
    extra = {name: shape for name, shape in stored.shapes.items() if content.absent and name not in read}
    outside = {**outside, **{f"{place}{name}": shape for name, shape in extra.items()}}
    content = with_head_beside(content, stored.shapes, outside)
    if text is not None:
        content = described(content, text)
    if "class_names" not in description:
        content = of_two_classes(content)
    inside = stored.shapes
    if any(name.startswith(BESIDE) for rule in content.rules for name in rule.theirs):
        inside = {name: shape for name, shape in inside.items() if name not in extra}
        inside |= {f"{BESIDE}{name}": shape for name, shape in outside.items()}
    return replace(content, notes=(*content.notes, note)) if note else content, inside


def _description(container: Container, stored: Stored) -> tuple[str | None, str]:
    """Return what Vitral wrote about a file, the fullest text, and a note; None where it wrote nothing."""
    if (text := container.metadata.get(DESCRIPTION)) is not None:
        return text, ""
    text, note = read_description(container.path)
    within = stored.config.get(DESCRIPTION)  # in a config.json
    return text or container.metadata.get(ARCHITECTURE) or (None if within is None else json.dumps(within)), note


def _config_of(container: Container) -> Mapping[str, Any]:
    """Return what its library says of a file, next to it or within."""
    folder = container.path.parent
    own = clip.open_clip_config(read_config(folder / OPEN_CLIP)) if container.path.name.startswith("open_clip") else {}
    return own or foreign_config(folder) or timm.config_of_training(container.said)


def foreign_config(folder: Path) -> Mapping[str, Any]:
    """Return the config.json in a folder if timm or transformers wrote it; any other is not about the weights."""
    config = read_config(folder / CONFIG)
    return config if any(key in config for key in FOREIGN_CONFIGS) else {}


def foreign_preprocessor(folder: Path) -> Mapping[str, Any]:
    """Return what the files in a folder say of transformers' image processor; empty if there are none."""
    within = read_config(folder / PROCESSORS).get("image_processor")
    return within if isinstance(within, Mapping) else read_config(folder / PREPROCESSOR)


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one where there is no file.

    Raises:
        WeightsError: it cannot be read as JSON.
    """
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file, or raise WeightsError if it cannot be read as JSON, or is not an object."""
    try:
        if path.stat().st_size > CONFIG_LIMIT:
            raise ValueError(f"it has {path.stat().st_size:,} bytes")
        content = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"'{path}' cannot be read as JSON ({error}); fetch it again.") from error
    if not isinstance(content, dict):
        raise WeightsError(f"'{path}' is not a JSON object; fetch it again.")
    return content

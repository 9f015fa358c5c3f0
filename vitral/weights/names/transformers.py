"""transformers' description of a model: config.json and preprocessor_config.json, reading and writing."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vitral.errors import VitralError, WeightsError
from vitral.images.preprocessing import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD, Preprocessing, Resize
from vitral.models.foundations import DINOV3_RESCALE
from vitral.models.layers import Gelu
from vitral.models.vit_config import ViTConfig
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.dialect import NotComputed, Stored, Usage

GELUS: dict[str, Gelu] = {
    "gelu": "exact",
    "gelu_python": "exact",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "gelu_fast": "tanh",
    "quick_gelu": "quick",
}
ACTIVATIONS = {"exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu"}
RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}
# The one processor that resizes in float32 without antialiasing, as the original does; its name is its first model's.
EXACT_PROCESSOR = "DepthProImageProcessor"
FLOAT_PROCESSOR = "DINOv3ViTImageProcessor"  # resizes in float32 with antialiasing
OWN = "vitral"  # the entry for what no processor does, which Vitral reads and others ignore
MOST_CLASSES = 1_000_000
SQUASH_FROM = 384  # pixels: from this size on ConvNext's processor, which CvT uses, does not crop
PILLOW_PROCESSOR = re.compile(r"ImageProcessorPil$")
# Processors to whom a single number is the length of the shorter side; to the others it is that of both sides.
SHORTER_SIDE = ("ConvNext", "Bit", "CLIP", "ChineseCLIP", "Siglip")
# What a processor does where its file does not say it, by how its name begins.
CLIPS: Mapping[str, Any] = {
    **{"size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": 224},
    **{"resample": 3, "image_mean": CLIP_MEAN, "image_std": CLIP_STD},
}
UNSAID: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("CLIP", "ChineseCLIP", "Bit"), CLIPS),
    "DeiT": {"size": 256, "do_center_crop": True, "crop_size": 224, "resample": 3},
    "ConvNext": {"size": {"shortest_edge": SQUASH_FROM}, "resample": 3},
    **dict.fromkeys(("Siglip", "Beit"), {"resample": 3}),
    "Pvt": {"resample": 3, "image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD},
    "DINOv3ViT": {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD},
}
# Steps that are not computed here, and processors whose steps have settings of their own.
NOT_COMPUTED = ("do_flip_channel_order", "rescale_offset", "pad_size")
OTHERS = ("Levit", "EfficientNet")
# Any of these in a preprocessor_config.json says something of how images are prepared.
PREPARED = {OWN, "size", "crop_size", "resample", "image_mean", "image_std", "do_resize", "do_rescale", "do_normalize"}
PROBLEM_TYPES = {SINGLE_LABEL: "single_label_classification", MULTI_LABEL: "multi_label_classification"}


def gelu_of(config: Mapping[str, Any]) -> Gelu:
    """Return the activation that a config.json names, or raise ValueError if it is none of the GELUs."""
    name = config.get("hidden_act", "gelu")
    if name not in GELUS:
        raise ValueError(f"its activation '{name}' is unknown")
    return GELUS[name]


def check(stored: Stored, computed: Mapping[str, Any]) -> None:
    """Refuse a config.json that says another value of a setting than the only one that is computed here, by a NotComputed."""
    for key, value in computed.items():
        said = stored.config.get(key, value)
        if said != value and said not in (value if isinstance(value, tuple) else ()):
            raise NotComputed(f"its config.json says {key} {said}, which is not computed here")


def assumed(stored: Stored) -> dict[str, str]:
    """Return what its tensors do not tell of a Vision Transformer where no config.json does."""
    return {} if "model_type" in stored.config else dict.fromkeys(("num_heads", "gelu", "norm_eps", "image_size"), "")


def vit_settings(config: ViTConfig) -> dict[str, Any]:
    """Return the settings that a config.json has under the same names for every family of ViTs."""
    height, width = config.image_size
    return {
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "layer_norm_eps": config.norm_eps,
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch_size[0],
        "num_channels": 3,
    }


def moves_of(stored: Stored) -> dict[str, Any]:
    """Return by how much rotary positions are moved in training: what a config.json says, or else DINOv3's own."""
    usual = {"shift": None, "jitter": None, "rescale": DINOV3_RESCALE}
    said = {name: stored.config.get(f"pos_embed_{name}", value) for name, value in usual.items()}
    return {f"rotary_{name}": None if value is None else float(value) for name, value in said.items()}


def moves(config: ViTConfig) -> dict[str, float | None]:
    """Return the same as settings of a config.json."""
    return {f"pos_embed_{name}": getattr(config, f"rotary_{name}") for name in ("shift", "jitter", "rescale")}


def class_names(stored: Stored) -> tuple[str, ...] | None:
    """Return the class names of a config.json, a number in place of one that it leaves out; None for its numbered defaults."""
    labels = stored.config.get("id2label")
    if not isinstance(labels, Mapping) or not labels:
        return None
    if strange := [key for key in labels if not key.isdecimal() or int(key) > MOST_CLASSES]:
        raise NotComputed(f"its config.json's id2label has '{strange[0][:20]}' where a class's number belongs")
    named = {int(index): str(name) for index, name in labels.items()}
    names = tuple(named.get(index, f"class {index}") for index in range(max(named) + 1))
    return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else unique(names)


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, repeated ones with their class's index ("crane" is a bird and a machine)."""
    return tuple(f"{name} ({index})" if names.count(name) > 1 else name for index, name in enumerate(names))


def task_of_problem(config: Mapping[str, Any]) -> Task:
    """Return the task that a config.json names; single-label if it names none that is known."""
    tasks = {name: task for task, name in PROBLEM_TYPES.items()}
    return tasks.get(str(config.get("problem_type")), SINGLE_LABEL)


def check_answers_with_classes(config: Mapping[str, Any], source: str) -> None:
    """Refuse a network that learned anything but classes, by a WeightsError."""
    problem = config.get("problem_type")
    if problem is not None and problem not in PROBLEM_TYPES.values():
        raise WeightsError(
            f"'{source}' learned to answer with numbers, not with classes, as its config.json says (problem_type: "
            f"{str(problem)[:20]}); only classifiers are read."
        )


def problem_type(task: Task) -> str | None:
    """Return what transformers calls a task; None of one about regions, which its network's class says.

    Raises:
        WeightsError: it has no name for it.
    """
    if task.dense:
        return None
    if task not in PROBLEM_TYPES:
        raise WeightsError(f"The format 'transformers' cannot hold the task '{task.name}'.")
    return PROBLEM_TYPES[task]


def usage(stored: Stored, default: Preprocessing) -> Usage:
    """Return what preprocessor_config.json and config.json say; `default`, with a note, where the former says nothing."""
    if not PREPARED & stored.preprocessor.keys():
        there = "says nothing of how images are prepared" if stored.preprocessor else "is missing"
        note = f"The preprocessor_config.json next to the file {there}; assumed: its architecture's default."
        return Usage(default, class_names(stored), (note,))
    try:
        return Usage(_read(stored.preprocessor), class_names(stored))
    except NotComputed:
        raise
    except (TypeError, ValueError, KeyError, VitralError) as error:
        raise ValueError(f"its preprocessor_config.json is not valid ({error})") from error


def _read(settings: Mapping[str, Any]) -> Preprocessing:
    if OWN in settings:
        own = Preprocessing.from_json(settings[OWN])
        if {**describe_preprocessing(own), OWN: settings[OWN]} == settings:  # later changes by others take precedence
            return own
    kind = str(settings.get("image_processor_type", settings.get("feature_extractor_type")))
    settings = {**next((said for name, said in UNSAID.items() if kind.startswith(name)), {}), **settings}
    _refuse_uncomputed(settings, kind)
    size, resize, fraction = _resizing(settings, kind)
    mean, std = _scales(settings)
    exact = kind.startswith(EXACT_PROCESSOR)
    plain = "pillow" if PILLOW_PROCESSOR.search(kind) else "torch"
    return Preprocessing(
        image_size=size,
        resize=resize,
        crop_fraction=fraction,
        interpolation=RESAMPLING[settings.get("resample", 2)],  # type: ignore[arg-type]
        antialias=not exact,
        mean=mean,
        std=std,
        resampler="float32" if exact or kind.startswith(FLOAT_PROCESSOR) else plain,  # type: ignore[arg-type]
    )


def _refuse_uncomputed(settings: Mapping[str, Any], kind: str) -> None:
    """Refuse a processor that does something else than is computed here.

    Raises:
        ValueError: its images are prepared in another way; NotComputed, which is one, where a step is named.
    """
    if settings.get("resample", 2) not in RESAMPLING:
        raise ValueError(f"resample {settings['resample']} is not known")
    if not settings.get("do_resize", True) or not settings.get("do_rescale", True):
        raise ValueError("images that are not resized or rescaled")
    steps = (step for step in NOT_COMPUTED if settings.get(step))
    if step := next(steps, kind if kind.startswith(OTHERS) else ""):
        raise NotComputed(f"its preprocessor_config.json says {step}, which is not computed here")


def _resizing(settings: Mapping[str, Any], kind: str) -> tuple[tuple[int, int], Resize, float]:
    """Return the size of prepared images, how they are resized to it, and the share that a crop keeps."""
    edges = _edges(settings.get("size", 224), shorter_side=kind.startswith(SHORTER_SIDE))
    fraction, resize, result = 1.0, "squash", (0, 0)
    if edges.keys() == {"shortest_edge"}:
        result = int(edges["shortest_edge"]), int(edges["shortest_edge"])
        if "crop_pct" not in settings and not kind.startswith("ConvNext"):
            resize = "crop"
        elif result[0] < SQUASH_FROM:
            resize, fraction = "crop", float(settings.get("crop_pct") or 224 / 256)
    elif edges.keys() >= {"height", "width"}:
        result = int(edges["height"]), int(edges["width"])
    else:
        raise ValueError(f"a size by {' and '.join(map(str, edges))}, which is not computed here")
    if settings.get("do_center_crop") and settings.get("crop_size") is not None:
        crop = _edges(settings["crop_size"], shorter_side=False)
        cut = int(crop["height"]), int(crop["width"])
        if cut[0] * result[1] != cut[1] * result[0]:
            raise ValueError(f"a crop of {cut[0]}x{cut[1]} pixels from {result[0]}x{result[1]}, of another shape")
        fraction, result = cut[0] / result[0], cut
    return result, resize, fraction  # type: ignore[return-value]


def _scales(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return means and standard deviations on the scale 0 to 1, to which the rescaling need not have brought the images."""
    values = []
    for name, none in (("image_mean", 0.0), ("image_std", 1.0)):
        said = settings.get(name, 0.5) if settings.get("do_normalize", True) else none
        values.append(tuple(said) if isinstance(said, list | tuple) else (float(said),) * 3)
    whole = 255 * float(settings.get("rescale_factor") or 1 / 255)  # what white becomes
    if math.isclose(whole, 1.0, rel_tol=1e-6):
        return values[0], values[1]
    return tuple(value / whole for value in values[0]), tuple(value / whole for value in values[1])


def _edges(size: Any, *, shorter_side: bool) -> Mapping[str, Any]:  # noqa: ANN401  # a JSON value
    """Return what a size means that is not said by sides: one number, or height and width."""
    if isinstance(size, Mapping):
        return {name: value for name, value in size.items() if value is not None}
    if isinstance(size, list | tuple) and len(size) == 2:
        return {"height": size[0], "width": size[1]}
    return {"shortest_edge": size} if shorter_side else {"height": size, "width": size}


def describe_preprocessing(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return the preprocessor_config.json whose processor does the same as `preprocessing`, or nearly."""
    height, width = preprocessing.image_size
    rows, columns = (math.floor(side / preprocessing.crop_fraction + 1e-6) for side in (height, width))
    exact = preprocessing.resampler == "float32" and not preprocessing.antialias and preprocessing.resize == "squash"
    cut = preprocessing.crop_fraction < 1 or preprocessing.resize == "crop"
    plain = (
        "BitImageProcessor" if preprocessing.resize == "crop" else "DeiTImageProcessor" if cut else "ViTImageProcessor"
    )
    shorter_side = {"shortest_edge": min(rows, columns)}
    return {
        "image_processor_type": EXACT_PROCESSOR if exact and not cut else plain,
        "do_resize": True,
        "size": shorter_side if preprocessing.resize == "crop" else {"height": rows, "width": columns},
        "resample": next(code for code, name in RESAMPLING.items() if name == preprocessing.interpolation),
        "do_center_crop": cut,
        "crop_size": {"height": height, "width": width},
        "do_convert_rgb": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }


def whole_preprocessing(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return the same, with an entry of our own for the exact preprocessing where the processor's is only near."""
    described = describe_preprocessing(preprocessing)
    return described if _read(described) == preprocessing else {**described, OWN: preprocessing.to_json()}


def images_note(preprocessing: Preprocessing) -> str | None:
    """Return a note where transformers' processor rounds differently from ours; None where it does the same."""
    chosen = describe_preprocessing(preprocessing)["image_processor_type"]
    if preprocessing.resampler == "torch" or chosen == EXACT_PROCESSOR:
        return None
    return (
        f"transformers resizes in 8 bits on tensors, this classifier '{preprocessing.resampler}': its probabilities may "
        "differ in the third digit."
    )

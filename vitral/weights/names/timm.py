"""timm's description of a model: the config.json of its Hub repositories (timm/models/_hub.py)."""

import csv
import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from vitral.errors import VitralError
from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.families import family, variant_name
from vitral.models.layers import Gelu
from vitral.models.model import ModelConfig
from vitral.models.vit_config import Pooling, ViTConfig
from vitral.weights.dialect import NotComputed, Stored, Usage, image_size
from vitral.weights.names.transformers import unique

# timm's default for its Vision Transformers, and DeiT's own evaluation (deit/main.py).
CROP_BICUBIC = Preprocessing(
    resize="crop", crop_fraction=0.9, interpolation="bicubic", antialias=True, resampler="pillow"
)
DEIT = dataclasses.replace(CROP_BICUBIC, crop_fraction=0.875, mean=IMAGENET_MEAN, std=IMAGENET_STD)

RESIZES = {"center": "crop", "squash": "squash"}
ACTIVATIONS = {"tanh": "gelu_tanh", "quick": "quick_gelu"}
BASE = "vit_base_patch16_224"  # takes any width and depth as arguments
CLIP = "vit_base_patch32_clip_224"  # likewise
HYBRIDS = {
    "r-vit-ti16": "vit_tiny_r_s16_p8_224",
    "r26-vit-s32": "vit_small_r26_s32_224",
    "r26-vit-b32": "vit_base_r26_s32_224",
    "r50-vit-b16": "vit_base_r50_s16_224",
    "r50-vit-l32": "vit_large_r50_s32_224",
}
BITS = ("50x1", "50x3", "101x1", "101x3", "152x2", "152x4")
STEM_NOTE = (
    "timm adds the epsilons of a hybrid's stem elsewhere than the original, so it computes slightly other logits from the "
    "same weights."
)


POOLINGS: dict[str, Pooling] = {"token": "token", "avg": "gap", "map": "map"}
GELUS: dict[str, Gelu] = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}
NORMS = {"layernorm": 1e-6}
# Arguments of its networks that their tensors tell, or that change nothing of what they compute.
SEEN = (
    *("depth", "embed_dim", "patch_size", "mlp_ratio", "class_token", "reg_tokens", "num_reg_tokens", "qkv_bias"),
    *("qkv_fused", "init_values", "no_embed_class", "pre_norm", "fc_norm", "use_fc_norm", "final_norm", "num_classes"),
    *("in_chans", "drop_rate", "drop_path_rate", "drop_block_rate", "pos_drop_rate", "patch_drop_rate"),
    *("proj_drop_rate", "attn_drop_rate", "weight_init", "fix_init", "zero_init_last", "head_init_scale"),
    *("dynamic_img_size", "dynamic_img_pad", "strict_img_size"),
)
CHANNELS = 3
BY_SCRIPT = "arch"  # the entry in which timm's training script keeps the network's name
READ = ("global_pool", "num_heads", "img_size")  # arguments that are read where their tensors do not tell


@dataclass(frozen=True)
class Network:
    """What a config.json says of a network of timm's and its tensors do not.

    Attributes:
        pooling: What its head reads.
        num_heads: Attention heads; None where there are none.
        gelu: Its activation; None where it is none of the GELUs.
        norm_eps: Epsilon of its layer norms; None where there are none.
        image_size: Height and width of its images, pixels, where its arguments say them.
    """

    pooling: Pooling
    num_heads: int | None
    gelu: Gelu | None
    norm_eps: float | None
    image_size: tuple[int, int] | None


def network(stored: Stored, read: Mapping[str, Any] | None = None) -> Network | None:
    """Return what the config.json next to a file, or its training script, says of the network; None where it names none.

    timm_networks.csv holds its networks that are computed here, with what their tensors do not tell; `tests/peers` holds
    each against timm. Others may have the same tensors and compute something else. `read` has timm's arguments as the tensors
    tell them.

    Raises:
        ValueError: The network, or one of its arguments, is not computed here; or it is another one than the tensors are of.
    """
    name = architecture(stored)
    if not name:
        return None
    row = _networks().get(name)
    if row is None:
        raise NotComputed(
            f"{_teller(stored)} names timm's network '{name}', which is not computed here, or not known yet; a copy of the "
            "file without that is read as what its tensors suggest"
        )
    said = _arguments(stored)
    _check_arguments(stored, said, row)
    if row["dim"]:
        width = {"embed_dim": stored.config.get("num_features") or int(row["dim"])}
        _compare(stored, {**width, **said}, read or {})
    eps = NORMS[said["norm_layer"]] if "norm_layer" in said else row["norm_eps"]
    return Network(
        _pooling(stored, said, row),
        int(said.get("num_heads") or row["heads"]) if row["heads"] else None,
        GELUS.get(said.get("act_layer", row["gelu"])),
        float(eps) if eps else None,
        image_size(said.get("img_size")),
    )


def config_of_training(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint of timm's own training script says as a config.json would; nothing of any other's.

    Others keep a name in the entry 'arch', too, which need not be timm's; that script keeps its version beside it.
    """
    if not isinstance(said.get("arch"), str) or "version" not in said:
        return {}
    given = said.get("args")
    given = given if isinstance(given, Mapping) else {}
    return {
        BY_SCRIPT: said["arch"],
        "global_pool": given.get("gp"),
        "model_args": given.get("model_kwargs") or {},
    }


def _teller(stored: Stored) -> str:
    return f"its entry '{BY_SCRIPT}'" if BY_SCRIPT in stored.config else "its config.json"


def _check_arguments(stored: Stored, said: Mapping[str, Any], row: Mapping[str, str]) -> None:
    words = {"act_layer": tuple(GELUS), "norm_layer": tuple(NORMS)} if row["dim"] else {}
    for key, value in said.items():
        if value not in words[key] if key in words else key not in (*SEEN, *READ):
            name = architecture(stored)
            raise NotComputed(f"{_teller(stored)} is timm's '{name}' with {key}={value}, which is not computed here")


def _compare(stored: Stored, said: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    for key, value in read.items():
        described = image_size(said[key]) if isinstance(value, tuple) and key in said else said.get(key, value)
        if described != value:
            raise NotComputed(
                f"{_teller(stored)} is of another network: '{architecture(stored)}' with {key}={said[key]}, and its tensors "
                f"have {value}"
            )


def input_size(stored: Stored) -> tuple[int, int] | None:
    """Return the height and width of the images that a config.json prepares, pixels; None where it says none.

    Raises:
        ValueError: It is no such size.
    """
    settings = stored.config.get("pretrained_cfg", stored.config)
    size = settings.get("input_size") if isinstance(settings, Mapping) else None
    found = image_size(size[1:]) if isinstance(size, list | tuple) and len(size) == CHANNELS else None
    if size is not None and found is None:
        raise ValueError(f"its config.json is not valid (input_size {size})")
    return found


def architecture(stored: Stored) -> str:
    """Return the network that is named beside the tensors, without the tag of its weights; empty where none is."""
    settings = stored.config.get("pretrained_cfg")
    within = settings.get("architecture") if isinstance(settings, Mapping) else None
    named = stored.config.get("architecture") or within or stored.config.get(BY_SCRIPT)
    return str(named or "").partition(".")[0]


def _arguments(stored: Stored) -> dict[str, Any]:
    """Return what the network was made with; timm takes None for an argument that is not given."""
    given = stored.config.get("model_args") or {}
    if not isinstance(given, Mapping):
        raise ValueError("its config.json is not valid (model_args)")
    return {key: value for key, value in given.items() if value is not None}


def _pooling(stored: Stored, said: Mapping[str, Any], row: Mapping[str, str]) -> Pooling:
    """Return what the head reads: by the arguments, else as the whole network was saved, else by itself."""
    words = [where["global_pool"] for where in (said, stored.config) if where.get("global_pool") is not None]
    if len(set(words)) > 1:
        raise NotComputed(f"its config.json says two poolings, global_pool '{words[0]}' and '{words[1]}'")
    word = words[0] if words else row["pooling"]
    if not word and 0 in (said.get("num_classes"), stored.config.get("num_classes")):
        word = row["pooling"]  # nothing is pooled where there is no head
    if word not in POOLINGS or (not row["dim"] and word != row["pooling"]):
        raise NotComputed(f"its config.json says global_pool '{word}', which is not computed here")
    return POOLINGS[word]


@functools.cache
def _networks() -> Mapping[str, dict[str, str]]:
    """Return the rows of timm's networks, by each of their names."""
    with (files("vitral.weights.names") / "timm_networks.csv").open() as file:
        return {name: row for row in csv.DictReader(file) for name in row["names"].split()}


def usage(stored: Stored, default: Preprocessing) -> Usage:
    """Return what the config.json next to the file says of images and classes; without it `default`, with a note."""
    network(stored)
    settings = stored.config.get("pretrained_cfg", stored.config)
    if not isinstance(settings, Mapping) or not settings.get("mean"):
        note = (
            "The file does not say how its images were prepared; assumed: its source's default "
            f"({default.resize} {default.crop_fraction}, {default.interpolation}, mean {default.mean[0]}). "
            "Its config.json next to it would say."
        )
        return Usage(default, _class_names(stored.config), (note,))
    mode = settings.get("crop_mode") or "center"
    if mode not in RESIZES:
        raise ValueError(f"its images are prepared by the unknown crop_mode '{mode}'")
    try:
        preprocessing = Preprocessing(
            image_size=input_size(stored) or (224, 224),
            resize=RESIZES[mode],  # type: ignore[arg-type]
            crop_fraction=float(settings.get("crop_pct") or 0.875),
            interpolation=settings.get("interpolation") or "bicubic",
            antialias=True,
            mean=tuple(settings["mean"]),
            std=tuple(settings["std"]),
            resampler="pillow",
        )
    except (TypeError, ValueError, KeyError, IndexError, VitralError) as error:
        raise ValueError(f"its config.json is not valid ({error})") from error
    return Usage(preprocessing, _class_names(stored.config))


def _class_names(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = config.get("label_names")
    if not isinstance(names, list) or not names:
        return None
    described = config.get("label_descriptions")
    described = described if isinstance(described, Mapping) else {}
    return unique([str(described.get(name, name)) for name in names])


def describe(
    config: ModelConfig, path: Path, epsilons: Mapping[str, tuple[float, float]]
) -> tuple[str, tuple[str, ...]]:
    """Return the call of timm's that opens a file with our logits, and notes on where its logits are slightly others."""
    name, given = model_of(config)
    arguments = {key: repr(value) for key, value in given.items()}
    rotary, stem = getattr(config, "rotary", "none"), getattr(config, "stem", None)
    if rotary != "none":
        arguments["global_pool"] = "'avg'" if getattr(config, "pooling", "token") == "gap" else "'token'"
    elif getattr(config, "mlp", "plain") == "swiglu":
        arguments |= {"mlp_layer": "timm.layers.SwiGLUPacked", "act_layer": "'silu'"}
    if "norm_eps" in epsilons:
        arguments["norm_layer"] = f"functools.partial(torch.nn.LayerNorm, eps={epsilons['norm_eps'][1]})"
    arguments = {"num_classes": repr(config.num_classes), **arguments, "checkpoint_path": repr(str(path))}
    listed = ", ".join(f"{key}={value}" for key, value in arguments.items())
    return f"timm.create_model({name!r}, {listed})", () if getattr(stem, "weight_eps_inside", True) else (STEM_NOTE,)


def model_of(config: ModelConfig) -> tuple[str | None, dict[str, Any]]:
    """Return the name of timm's model of the same network, and what it is made with; None where timm has none."""
    variant = variant_name(config) or ""
    known = MODELS.get(family(config))
    return (
        known(config, variant)
        if known and (variant or family(config) == "vit")
        else (variant.replace("-", "") or None, {})
    )


def _coatnet(config: Any, variant: str) -> tuple[str, dict[str, Any]]:  # noqa: ANN401  # the family's own config
    return f"coatnet_{variant.removeprefix('coatnet-')}_224", {"img_size": config.image_size}


def _bit(_: object, variant: str) -> tuple[str | None, dict[str, Any]]:
    size = variant.removeprefix("bit-r")
    return f"resnetv2_{size}_bit" if size in BITS else None, {}


def _tinyvit(_: object, variant: str) -> tuple[str, dict[str, Any]]:
    _, name, *size = variant.split("-")
    return "_".join(("tiny_vit", name, *(size or ["224"]))), {}


def _vit(config: ViTConfig, variant: str) -> tuple[str | None, dict[str, Any]]:
    height, width = config.image_size
    arguments: dict[str, Any] = {"img_size": height if height == width else config.image_size}
    if config.gelu in ACTIVATIONS:
        arguments["act_layer"] = ACTIVATIONS[config.gelu]
    if config.stem:
        return HYBRIDS.get(variant), arguments
    arguments |= {
        "patch_size": config.patch_size[0] if len(set(config.patch_size)) == 1 else config.patch_size,
        "embed_dim": config.dim,
        "depth": config.depth,
        "num_heads": config.num_heads,
        "mlp_ratio": config.mlp_dim * (2 if config.mlp == "swiglu" and config.rotary == "none" else 1) / config.dim,
    }
    if config.rotary == "eva02":
        return "eva02_tiny_patch14_224" if config.mlp == "swiglu" else "eva02_base_patch14_224", arguments
    if config.rotary == "dinov3":
        return _dinov3(config), arguments | {
            "init_values": config.layer_scale,
            "num_reg_tokens": config.registers - (config.pooling == "gap"),
        }
    if config.distilled:
        return "deit_base_distilled_patch16_224", arguments
    return CLIP if config.norm_before else BASE, arguments | _variations(config)


def _dinov3(config: ViTConfig) -> str:
    kind = "small_plus" if config.mlp == "swiglu" else "small"
    return f"vit_{kind}_patch16_dinov3" + ("_qkvb" if config.qkv_bias else "")


def _variations(config: ViTConfig) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if config.norm_pooled:
        arguments |= {"global_pool": "avg", "fc_norm": True, "class_token": config.registers == 1}
    elif config.pooling == "gap":
        arguments |= {"class_token": False, "global_pool": "avg", "fc_norm": False}
    if config.pooling == "map":
        arguments |= {"class_token": False, "global_pool": "map"}
    if not config.qkv_bias:
        arguments["qkv_bias"] = False
    apart = config.registers > (1 if config.norm_pooled else 0)
    if apart:
        arguments |= {"reg_tokens": config.registers}
    if apart or (config.class_token and not config.class_position):
        arguments["no_embed_class"] = True
    if config.layer_scale is not None:
        arguments["init_values"] = config.layer_scale
    return arguments


# By family, where timm does not call a model by our variant's name.
MODELS: dict[str, Callable[[Any, str], tuple[str | None, dict[str, Any]]]] = {
    "vit": _vit,
    "coatnet": _coatnet,
    "efficientnet": lambda _, variant: (f"tf_efficientnet_{variant.removeprefix('efficientnet-')}", {}),
    "tinyvit": _tinyvit,
    "bit": _bit,
}


def describe_preprocessing(preprocessing: Preprocessing) -> str:
    """Return the call of timm's that prepares an image as `preprocessing` does, as near as timm comes."""
    if preprocessing.resize == "pad":
        return "No transform of timm's pads images on the right and at the bottom; prepare them so yourself."
    mode = "center" if preprocessing.resize == "crop" else "squash"
    height, width = preprocessing.image_size
    size = height if height == width else (height, width)
    exact = preprocessing.resampler == "pillow"
    how = (
        "to within its rounding to 8 bits"
        if preprocessing.antialias
        else "but with antialiasing, which was not there before"
    )
    return (
        f"Prepare images{'' if exact else f', {how},'} with timm.data.create_transform({size!r}, "
        f"crop_pct={preprocessing.crop_fraction}, crop_mode={mode!r}, interpolation={preprocessing.interpolation!r}, "
        f"mean={preprocessing.mean}, std={preprocessing.std})"
    )

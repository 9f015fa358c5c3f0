"""timm's description of a model: the config.json of its Hub repositories (timm/models/_hub.py)."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitral.errors import VitralError
from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.families import family, variant_name
from vitral.models.model import ModelConfig
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Stored, Usage

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


def usage(stored: Stored, default: Preprocessing) -> Usage:
    """Return what the config.json next to the file says; without it `default`, with a note."""
    settings = stored.config.get("pretrained_cfg", stored.config)
    if not isinstance(settings, Mapping) or "mean" not in settings:
        note = (
            "The file does not say how its images were prepared; assumed: its source's default "
            f"({default.resize} {default.crop_fraction}, {default.interpolation}, mean {default.mean[0]}). "
            "Its config.json next to it would say."
        )
        return Usage(default, _class_names(stored.config), (note,))
    mode = settings.get("crop_mode") or "center"
    if mode not in RESIZES:
        raise ValueError(f"its images are prepared by the unknown crop_mode '{mode}'")
    size = settings.get("input_size", (3, 224, 224))
    try:
        preprocessing = Preprocessing(
            image_size=(int(size[1]), int(size[2])),
            resize=RESIZES[mode],  # type: ignore[arg-type]
            crop_fraction=float(settings.get("crop_pct", 0.875)),
            interpolation=settings.get("interpolation", "bicubic"),
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
    return tuple(str(described.get(name, name)) for name in names)


def describe(
    config: ModelConfig, path: Path, epsilons: Mapping[str, tuple[float, float]]
) -> tuple[str, tuple[str, ...]]:
    """Return the call of timm's that opens a file with our logits, and notes on where its logits are slightly others.

    Args:
        config: The network's, of which timm has a model.
        path: The file.
        epsilons: Those of the network that differ from timm's, with timm's value and ours.
    """
    name, given = model_of(config)
    arguments = {key: repr(value) for key, value in given.items()}
    rotary, stem = getattr(config, "rotary", "none"), getattr(config, "stem", None)
    if rotary != "none":
        arguments["global_pool"] = "'token'" if rotary == "dinov3" else "'avg'"
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
        return _dinov3(config), arguments | {"init_values": config.layer_scale, "num_reg_tokens": config.registers}
    if config.distilled:
        return "deit_base_distilled_patch16_224", arguments
    return CLIP if config.norm_before else BASE, arguments | _variations(config)


def _dinov3(config: ViTConfig) -> str:
    kind = "small_plus" if config.mlp == "swiglu" else "small"
    return f"vit_{kind}_patch16_dinov3" + ("_qkvb" if config.qkv_bias else "")


def _variations(config: ViTConfig) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if config.norm_pooled:
        arguments |= {"global_pool": "avg", "fc_norm": True, "class_token": config.registers > 0}
    elif config.pooling == "gap":
        arguments |= {"class_token": False, "global_pool": "avg", "fc_norm": False}
    if config.pooling == "map":
        arguments |= {"class_token": False, "global_pool": "map"}
    if not config.qkv_bias:
        arguments["qkv_bias"] = False
    if config.registers and not config.norm_pooled:
        arguments |= {"reg_tokens": config.registers}
    if (config.registers and not config.norm_pooled) or (config.class_token and not config.class_position):
        arguments["no_embed_class"] = True
    if config.layer_scale is not None:
        arguments["init_values"] = config.layer_scale
    return arguments


# By family, where timm does not call a model by our variant's name.
MODELS: dict[str, Callable[[Any, str], tuple[str | None, dict[str, Any]]]] = {
    "vit": _vit,
    "coatnet": _coatnet,
    "efficientnet": lambda _, variant: (f"tf_efficientnet_{variant.removeprefix('efficientnet-')}", {}),
    "bit": _bit,
}


def describe_preprocessing(preprocessing: Preprocessing) -> str:
    """Return the call of timm's that prepares an image as `preprocessing` does, as near as timm comes."""
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

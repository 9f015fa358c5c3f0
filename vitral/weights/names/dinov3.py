"""DINOv3 in its own files, timm's and transformers' (dinov3/models/vision_transformer.py; timm/models/eva.py).

Its own files keep the periods of its rotary positions rounded to bfloat16; here, as in the two libraries, they are computed.
"""

import dataclasses
import re
from typing import Any

import torch

from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.position import DINOV3_BASE
from vitral.models.vit_config import Pooling, ViTConfig
from vitral.weights.dialect import (
    Dialect,
    NotComputed,
    Reading,
    Stored,
    Usage,
    having,
    headless,
    keyless,
    our_names,
    reading,
)
from vitral.weights.layouts import SAME, Layout, Renames, Rule, Tensors, has_values, regrouped, renamed, zeros
from vitral.weights.names import timm, transformers
from vitral.weights.names.vit_torch import told

EPS = 1e-5
LAYER_SCALE = 1e-5
HEAD_DIM = 64  # channels of a head
WIDE = 4096  # channels of the largest network's tokens, whose heads are wider
WIDE_HEAD_DIM = 128
OWN_IMAGES = Preprocessing(image_size=(256, 256), antialias=True, mean=IMAGENET_MEAN, std=IMAGENET_STD)
TIMM_IMAGES = dataclasses.replace(OWN_IMAGES, resize="crop", interpolation="bicubic", resampler="pillow")
DEFAULT_SIZE = 224  # pixels, for a file without positions and without a config
UNUSED = ("mask_token", "rope_embed.", "local_cls_norm.", "projectors.", "embeddings.mask_token")


def _masked() -> Layout:
    """Their bias of query, key and value with a mask, which takes the key's out."""

    def read(theirs: Tensors) -> Tensors:
        bias, mask = theirs
        return [torch.where(mask == 0, torch.zeros_like(bias), bias * mask)]

    def write(ours: Tensors) -> Tensors:
        query, key, value = (torch.ones_like(part) for part in ours[0].chunk(3))
        key *= has_values(ours[0].chunk(3)[1])
        return [ours[0], torch.cat([query, key, value])]

    return Layout(read, write)


OWN: Renames = (
    (r"^patch_embedding\.", "patch_embed.proj."),
    (r"^class_token$", "cls_token"),
    (r"^registers$", "storage_tokens"),
    (r"^encoder\.", "blocks."),
    (r"\.attention\.qkv\.bias$", ".attn.qkv.{bias,bias_mask}"),
    (r"\.attention\.qkv\.", ".attn.qkv."),
    (r"\.attention\.out\.", ".attn.proj."),
    (r"\.scale([12])\.scale$", r".ls\1.gamma"),
)
TIMM: Renames = (
    (r"^storage_tokens$", "reg_token"),
    (r"\.ls([12])\.gamma$", r".gamma_\1"),
    (r"\.qkv\.\{bias,bias_mask\}$", ".{q,v}_bias"),
)
TRANSFORMERS: Renames = (
    (r"^patch_embedding\.", "embeddings.patch_embeddings."),
    (r"^class_token$", "embeddings.cls_token"),
    (r"^registers$", "embeddings.register_tokens"),
    (r"\.attention\.qkv\.bias$", ".attention.{q,v}_proj.bias"),
    (r"\.attention\.qkv\.", ".attention.{q,k,v}_proj."),
    (r"\.attention\.out\.", ".attention.o_proj."),
    (r"\.scale([12])\.scale$", r".layer_scale\1.lambda1"),
)
# The names of the gate, of what it multiplies and of the last layer; of the plain MLP's two layers.
GATED = {
    "original": ("w1", "w2", "w3"),
    "timm": ("fc1_g", "fc1_x", "fc2"),
    "transformers": ("gate_proj", "up_proj", "down_proj"),
}
PLAIN = {"original": ("fc1", "fc2"), "timm": ("fc1", "fc2"), "transformers": ("up_proj", "down_proj")}


def table(config: ViTConfig, format_name: str, layer: str = "layer") -> list[Rule]:
    """Return the rules for one model; in memory transformers' blocks are below "model.layer"."""
    names = {
        "original": OWN,
        "timm": (*OWN, *TIMM),
        "transformers": (*TRANSFORMERS, (r"^encoder\.", f"{layer}.")),
    }[format_name]
    *first, last = (GATED if config.mlp == "swiglu" else PLAIN)[format_name]
    joint = f"{{{','.join(first)}}}" if len(first) > 1 else first[0]
    mlp = ((r"\.mlp\.fc1\.", f".mlp.{joint}."), (r"\.mlp\.fc2\.", f".mlp.{last}."))
    key = "biases of DINOv3's keys, which fine-tuning has made; take 'original'"
    biases = _masked() if format_name == "original" else keyless(format_name, key)
    special = []
    if config.pooling == "gap":  # timm's, whose class token is a register here, since no head reads it
        tokens = regrouped([config.registers], [1, config.registers - 1])
        special = [Rule(("registers",), ("cls_token", "reg_token"), tokens)]
    return renamed(
        our_names(config), (*names, *mlp), lambda name: biases if name.endswith(".qkv.bias") else SAME, special
    )


def _read(stored: Stored, format_name: str) -> Reading:
    shapes = stored.shapes
    library = format_name == "transformers"
    layer = "model.layer" if "model.layer.0.norm1.weight" in shapes else "layer"
    block = layer if library else "blocks"
    registers = {"original": "storage_tokens", "timm": "reg_token", "transformers": "embeddings.register_tokens"}
    bias = {"original": "attn.qkv.bias", "timm": "attn.q_bias", "transformers": "attention.q_proj.bias"}
    dim, patch = stored.patches("embeddings.patch_embeddings.weight" if library else "patch_embed.proj.weight")
    gate, _, gated_last = GATED[format_name]
    gated = f"{block}.0.mlp.{gate}.weight" in shapes
    last = gated_last if gated else PLAIN[format_name][1]
    usage = _usage(stored, format_name)
    if library:
        transformers.check(stored, {"rope_theta": DINOV3_BASE, **({"hidden_act": "silu"} if gated else {})})
    heads = dim // (WIDE_HEAD_DIM if dim == WIDE else HEAD_DIM)
    known = timm.network(stored, told(stored)) if format_name == "timm" else None
    pooling = _pooling(stored, known) if format_name == "timm" else "token"
    config = ViTConfig(
        image_size=(known and known.image_size) or usage.preprocessing.image_size,
        patch_size=patch,
        dim=dim,
        depth=stored.count(rf"{re.escape(block)}\.(\d+)\."),
        mlp_dim=shapes[f"{block}.0.mlp.{last}.weight"][1],
        mlp="swiglu" if gated else "plain",
        num_heads=int((known and known.num_heads) or stored.config.get("num_attention_heads") or max(1, heads)),
        num_classes=stored.classes("head.weight"),
        pooling=pooling,
        position="none",
        rotary="dinov3",
        **transformers.moves_of(stored),  # neither its own files nor timm's say any
        gelu=(known and known.gelu) or ("exact" if gated or not library else transformers.gelu_of(stored.config)),
        registers=shapes.get(registers[format_name], (1, 0))[1] + (pooling == "gap"),
        layer_scale=LAYER_SCALE,
        norm_eps=float(stored.config.get("layer_norm_eps", EPS)) if library else EPS,
        qkv_bias=f"{block}.0.{bias[format_name]}" in shapes,
        initialization="deit",
    )
    rules = table(config, format_name, layer)
    used = {name for rule in rules for name in rule.theirs}
    rules += [rule for rule in stored.ignored(*UNUSED) if rule.theirs[0] not in used]
    return reading(stored, config, rules, usage, _assumed(stored, format_name, known))


def _pooling(stored: Stored, known: timm.Network | None) -> Pooling:
    """Return what the head reads in timm, which takes the mean by itself, DINOv3's authors the class token."""
    said = stored.given.get("pooling") or (known.pooling if known else "token")
    if said not in ("token", "gap"):
        raise NotComputed(f"its pooling is said to be '{said}', for which its tensors are others")
    return said


def _assumed(stored: Stored, format_name: str, known: timm.Network | None) -> dict[str, str]:
    """Return what neither the tensors nor a description say."""
    if format_name != "timm":
        return transformers.assumed(stored) if format_name == "transformers" else {}
    if known is None:
        return dict.fromkeys(("pooling", "num_heads", "image_size"), "")
    used = timm.input_size(stored)
    return {"image_size": ""} if known.image_size and used not in (None, known.image_size) else {}


def _usage(stored: Stored, format_name: str) -> Usage:
    if format_name == "timm":
        return timm.usage(stored, TIMM_IMAGES)
    if format_name == "transformers":
        default = OWN_IMAGES.with_size(stored.image_size or DEFAULT_SIZE)
        return dataclasses.replace(transformers.usage(stored, default), class_names=None)
    return Usage(OWN_IMAGES)


def _own_rules(config: ViTConfig) -> list[Rule]:
    count = config.dim // config.num_heads // 4
    periods = (DINOV3_BASE ** (torch.arange(count) / count)).bfloat16().float()
    constants = [
        Rule((), ("mask_token",), zeros(1, config.dim)),
        Rule((), ("rope_embed.periods",), Layout(lambda _: [], lambda _: [periods])),
    ]
    return [*table(config, "original"), *constants]


def _transformers_rules(config: ViTConfig) -> list[Rule]:
    rules = [rule for rule in table(config, "transformers") if not rule.ours[0].startswith("head.")]
    mask = Rule((), ("embeddings.mask_token",), zeros(1, 1, config.dim))
    return [*rules, mask, headless("transformers", "a head on DINOv3's class token")]


def describe(config: ViTConfig) -> dict[str, Any]:
    """Return a model's config.json."""
    return {
        "architectures": ["DINOv3ViTModel"],
        "model_type": "dinov3_vit",
        **transformers.vit_settings(config),
        "intermediate_size": config.mlp_dim,
        "use_gated_mlp": config.mlp == "swiglu",
        "hidden_act": "silu" if config.mlp == "swiglu" else transformers.ACTIVATIONS[config.gelu],
        "query_bias": config.qkv_bias,
        "value_bias": config.qkv_bias,
        "num_register_tokens": config.registers,
        "layerscale_value": config.layer_scale,
        **transformers.moves(config),
    }


def _matches_timm(stored: Stored) -> bool:
    needed = {"cls_token", "reg_token", "blocks.0.gamma_1", "blocks.0.attn.qkv.weight"}
    return needed <= stored.shapes.keys() and "pos_embed" not in stored.shapes


def _matches_transformers(stored: Stored) -> bool:
    layers = ("layer.0.layer_scale1.lambda1", "model.layer.0.layer_scale1.lambda1")
    return "embeddings.patch_embeddings.weight" in stored.shapes and any(name in stored.shapes for name in layers)


EXTERNAL = ("image_size", "num_heads", "norm_eps", "layer_scale")
DIALECTS = (
    Dialect(
        "original",
        "vit",
        having("storage_tokens", "blocks.0.ls1.gamma"),
        lambda stored: _read(stored, "original"),
        _own_rules,
        EXTERNAL,
    ),
    Dialect(
        "timm",
        "vit",
        _matches_timm,
        lambda stored: _read(stored, "timm"),
        lambda config: table(config, "timm"),
        (*EXTERNAL, "gelu"),
    ),
    Dialect(
        "transformers",
        "vit",
        _matches_transformers,
        lambda stored: _read(stored, "transformers"),
        _transformers_rules,
        ("image_size", "layer_scale"),
        ("num_classes",),
        describe=describe,
    ),
)

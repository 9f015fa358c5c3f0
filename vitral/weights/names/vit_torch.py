"""The Vision Transformer in torch: DeiT's own files and timm's, which share their names (deit/models.py; timm)."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vitral.models.blocks import LAYER_NORM_EPS
from vitral.models.layers import Gelu
from vitral.models.resnet import StemConfig
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, cannot_hold, having, our_names, reading
from vitral.weights.layouts import FOLDED_TOKEN, Renames, Rule, renamed
from vitral.weights.names import timm
from vitral.weights.names.timm import CROP_BICUBIC, DEIT

DINOV2_LAYER_SCALE = 1.0
CLIP_EPS = 1e-5

# A file does not hold the number of heads: published widths have a known number, others get heads of 64 channels.
HEADS_OF_WIDTH = {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1152: 16, 1280: 16, 1408: 16, 1664: 16}
HEAD_DIM = 64

# Tags of timm's for weights that were trained with QuickGELU, whatever network of its holds them (timm's notes say so).
QUICK = ("openai", "dfn2b", "dfn5b", "metaclip_400m", "metaclip_2pt5b", "metaclip2_worldwide")

BACKBONE = "patch_embed.backbone"
RENAMES: Renames = (
    (r"^map_head\.probe$", "attn_pool.latent"),
    (r"^map_head\.attention\.query\.", "attn_pool.q."),
    (r"^map_head\.attention\.(?:key|value)\.", "attn_pool.kv."),
    (r"^map_head\.attention\.out\.", "attn_pool.proj."),
    (r"^map_head\.", "attn_pool."),
    (r"^patch_embedding\.", "patch_embed.proj."),
    (r"^class_token$", "cls_token"),
    (r"^distillation_token$", "dist_token"),
    (r"^distillation_head\.", "head_dist."),
    (r"^registers$", "reg_token"),
    (r"^position\.embedding$", "pos_embed"),
    (r"^pre_logits\.", "pre_logits.fc."),
    (r"^norm_before\.", "norm_pre."),
    (r"^encoder\.", "blocks."),
    (r"\.attention\.qkv\.", ".attn.qkv."),
    (r"\.attention\.out\.", ".attn.proj."),
    (r"\.scale([12])\.scale$", r".ls\1.gamma"),
    (r"^stem\.root\.", f"{BACKBONE}.stem.conv."),
    (r"^stem\.root_norm\.", f"{BACKBONE}.stem.norm."),
    (r"^stem\.stages\.(\d+)\.(\d+)\.", rf"{BACKBONE}.stages.\1.blocks.\2."),
    (r"\.projection\.", ".downsample.conv."),
    (r"\.projection_norm\.", ".downsample.norm."),
)
ROOT_ONLY: Renames = ((rf"^{BACKBONE}\.stem\.", f"{BACKBONE}."),)
# The class token of a network that pools the other tokens (MAE's fine-tuned ones) is a register with a position.
POOLED: Renames = ((r"^norm\.", "fc_norm."),)
DEIT_III: Renames = ((r"\.ls([12])\.gamma$", r".gamma_\1"),)
# timm adds its epsilons elsewhere than the original's hybrids, so the same weights give different logits there.
TIMM_STEM = {"weight_eps": 1e-8, "weight_eps_inside": True, "norm_eps": 1e-5}


FOLDED_REGISTER = Rule(("registers", "position.embedding"), ("cls_token", "pos_embed"), FOLDED_TOKEN)


def table(config: ViTConfig, renames: Renames = (), special: Sequence[Rule] = ()) -> list[Rule]:
    """Return the rules for one model; `renames` are what this file names differently, `special` rules of its own."""
    roots = ROOT_ONLY if isinstance(config.stem, StemConfig) and not config.stem.stages else ()
    pooled = POOLED if config.norm_pooled else ()
    if config.norm_pooled and config.registers == 1:
        special = [*special, FOLDED_REGISTER]
    return renamed(our_names(config), (*RENAMES, *roots, *pooled, *renames), special=special)


def heads_of_width(dim: int) -> int:
    """Return the number of attention heads for a width, which files do not hold."""
    return HEADS_OF_WIDTH.get(dim) or max(1, dim // HEAD_DIM)


def read(stored: Stored) -> Reading:
    """Read a DeiT or timm file."""
    shapes = stored.shapes
    if "blocks.0.attn.q_bias" in shapes:
        raise ValueError("its queries and values alone have biases: BEiT's and EVA's kind, of which EVA-02 is known")
    third = "blocks.0.gamma_1" in shapes
    named = f"{stored.file_name} {stored.config.get('architecture', '')}".lower()
    own = third or "dist_token" in shapes or stored.wrapper == "model" or "deit" in named
    config = torch_config(stored, own=own, third=third or "deit3" in named or "deit_3" in named)
    config = dataclasses.replace(config, gelu=_gelu(stored, config, named))
    if "siglip" in named:
        config = dataclasses.replace(config, position_resize="bicubic-antialias")
    default = dataclasses.replace(DEIT, crop_fraction=1.0) if third else DEIT if own else CROP_BICUBIC
    if not own and max(config.image_size) > 224:
        default = dataclasses.replace(default, crop_fraction=1.0)
    return reading(stored, config, table(config, DEIT_III if third else ()), timm.usage(stored, default))


def _gelu(stored: Stored, config: ViTConfig, named: str) -> Gelu:
    """Return the GELU that the weights were trained with, which a file of timm's does not hold and its network may not have."""
    settings = stored.config.get("pretrained_cfg", stored.config)
    tag = str(settings.get("tag", "")) if isinstance(settings, Mapping) else ""
    if config.norm_before:
        tag = tag or named.partition(".")[2]
        quick = "quickgelu" in named or tag in QUICK or (tag == "laion400m_e32" and config.patch_size == (32, 32))
        return "quick" if quick else "exact"
    return "tanh" if config.pooling == "map" or "siglip" in named else config.gelu


def torch_config(stored: Stored, *, own: bool = False, third: bool = False) -> ViTConfig:
    """Return the architecture of a file in these names.

    Args:
        stored: The file.
        own: whether it is DeiT's, rather than one of timm's Vision Transformers.
        third: whether it is DeiT III's.

    Raises:
        KeyError, ValueError: it lacks a tensor, or one has an impossible shape.
    """
    shapes = stored.shapes
    dim, channels, patch_height, patch_width = shapes["patch_embed.proj.weight"]
    stem = _stem_config(stored)
    if channels != (stem.channels if stem else 3):
        raise ValueError(f"its patches have {channels} channels")
    unit = stem.stride if stem else 1
    token, distilled = "cls_token" in shapes, "dist_token" in shapes
    patch = (patch_height * unit, patch_width * unit)
    size, class_row = stored.image(shapes["pos_embed"][1] - distilled, patch, token=token)
    pooled = "fc_norm.weight" in shapes
    if pooled and ("norm.weight" in shapes or distilled or (token and not class_row)):
        raise ValueError("it has a norm after the pooling (fc_norm) beside what does not go with one")
    hidden = shapes["blocks.0.mlp.fc2.weight"][1]
    pooling: Any = "gap" if pooled else "token" if token else "map" if "attn_pool.latent" in shapes else "gap"
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    scaled = {"blocks.0.ls1.gamma", "blocks.0.gamma_1"} & shapes.keys()
    clip, siglip = "norm_pre.weight" in shapes, pooling == "map"
    dinov2 = scaled and not own and (class_row or "reg_token" in shapes)
    return ViTConfig(
        image_size=size,
        patch_size=(patch_height, patch_width),
        dim=dim,
        depth=depth,
        mlp_dim=hidden,
        mlp="swiglu" if shapes["blocks.0.mlp.fc1.weight"][0] == 2 * hidden else "plain",
        num_heads=16 if siglip and dim == 1536 else heads_of_width(dim),
        num_classes=stored.classes("head.weight"),
        pooling=pooling,
        representation_size=shapes.get("pre_logits.fc.weight", (None,))[0],
        gelu="exact",
        registers=shapes["reg_token"][1] if "reg_token" in shapes else int(pooled and token),
        layer_scale=DINOV2_LAYER_SCALE if dinov2 else 1e-4 if scaled else None,
        stem=stem,
        distilled=distilled,
        qkv_bias="blocks.0.attn.qkv.bias" in shapes,
        position_resize="bicubic" if own else "bicubic-antialias" if dinov2 or clip or siglip else "bilinear",
        initialization="deit" if (own or dinov2 or clip) and not siglip and stem is None else "vit",
        norm_eps=CLIP_EPS if clip else LAYER_NORM_EPS,
        norm_before=clip,
        norm_pooled=pooled,
        patch_bias=not clip or "patch_embed.proj.bias" in shapes,
        class_position=class_row or not token or pooled,
        even_depth=third,
    )


def _stem_config(stored: Stored) -> StemConfig | None:
    if f"{BACKBONE}.conv.weight" in stored.shapes:
        return StemConfig(stages=(), **TIMM_STEM)  # type: ignore[arg-type]
    if f"{BACKBONE}.stem.conv.weight" not in stored.shapes:
        return None
    stages = stored.stages(rf"{re.escape(BACKBONE)}\.stages\.{{}}\.blocks\.(\d+)\.")
    return StemConfig(stages=stages, **TIMM_STEM)  # type: ignore[arg-type]


def rules(config: ViTConfig) -> list[Rule]:
    """Return the rules for timm's files.

    Raises:
        WeightsError: timm's networks have no such part, although its names could say it.
    """
    if config.representation_size:
        raise cannot_hold("timm", "a representation layer before the head; fine-tune first, or replace the head")
    if config.norm_pooled and config.registers > 1:
        raise cannot_hold("timm", "several registers before a norm after the mean")
    if config.registers and config.class_token and config.class_position:
        raise cannot_hold("timm", "registers beside a class token with a position")
    return table(config)


def _own_rules(config: ViTConfig) -> list[Rule]:
    """Return the rules for DeiT's own files, of which DeiT III's have names of their own."""
    rules(config)
    if config.pooling == "map":
        raise cannot_hold("original", "attention pooling")
    return table(config, DEIT_III if config.layer_scale is not None else ())


MATCHES = having("patch_embed.proj.weight", "pos_embed", "blocks.0.attn.qkv.weight")
EXTERNAL = ("num_heads", "norm_eps", "layer_scale")
DIALECTS = (
    Dialect("timm", "vit", MATCHES, read, rules, (*EXTERNAL, "gelu", *(f"stem.{name}" for name in TIMM_STEM))),
    Dialect("original", "vit", lambda _: False, read, _own_rules, EXTERNAL, wrapper="model"),
)

"""The Vision Transformer in torch: DeiT's own files and timm's, which share their names (deit/models.py; timm)."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vitral.models.blocks import LAYER_NORM_EPS
from vitral.models.layers import Gelu
from vitral.models.resnet import StemConfig
from vitral.models.vit_config import Pooling, ViTConfig
from vitral.weights.dialect import Dialect, NotComputed, Reading, Stored, cannot_hold, having, our_names, reading
from vitral.weights.layouts import FOLDED_TOKEN, Renames, Rule, folded, regrouped, renamed
from vitral.weights.names import timm
from vitral.weights.names.timm import CROP_BICUBIC, DEIT

DINOV2_LAYER_SCALE = 1.0
CLIP_EPS = 1e-5

# A file does not hold the number of heads: published widths have a known number, others get heads of 64 channels.
HEADS_OF_WIDTH = {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1152: 16, 1280: 16, 1408: 16, 1664: 16}
HEAD_DIM = 64

# Tags of timm's for weights that were trained with QuickGELU, whatever network of its holds them (timm's notes say so).
QUICK = ("openai", "dfn2b", "dfn5b", "metaclip_400m", "metaclip_2pt5b", "metaclip2_worldwide")
QUICK_NOTE = (
    "timm computes it with the exact GELU, as is done here; the weights of '{}' were trained with QuickGELU, which gelu=quick "
    "computes."
)

BACKBONE = "patch_embed.backbone"
PRETRAINING = ("mask_token", "masked_embed", "decoder_")  # what MAE, SimMIM and iBOT keep for patches that are masked
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
    return renamed(our_names(config), (*RENAMES, *roots, *pooled, *renames), special=special)


def written_table(config: ViTConfig, renames: Renames = ()) -> list[Rule]:
    """Return the rules for writing a model; one register before a norm after the mean is a class token that no head reads."""
    return table(config, renames, [FOLDED_REGISTER] if config.norm_pooled and config.registers == 1 else ())


def heads_of_width(dim: int) -> int:
    """Return the number of attention heads for a width, which files do not hold."""
    return HEADS_OF_WIDTH.get(dim) or max(1, dim // HEAD_DIM)


def read(stored: Stored) -> Reading:
    """Read a DeiT or timm file."""
    shapes = stored.shapes
    if "blocks.0.attn.q_bias" in shapes:
        raise ValueError("its queries and values alone have biases: BEiT's and EVA's kind, of which EVA-02 is known")
    third = "blocks.0.gamma_1" in shapes
    named = f"{stored.file_name} {timm.architecture(stored)}".lower()
    own = third or "dist_token" in shapes or stored.wrapper == "model" or "deit" in named
    known = timm.network(stored, told(stored))
    config = torch_config(stored, own=own, third=third or "deit3" in named or "deit_3" in named, known=known)
    if known is None:
        config = dataclasses.replace(config, gelu=_gelu(config, named))
    if "siglip" in named:
        config = dataclasses.replace(config, position_resize="bicubic-antialias")
    default = dataclasses.replace(DEIT, crop_fraction=1.0) if third else DEIT if own else CROP_BICUBIC
    if not own and max(config.image_size) > 224:
        default = dataclasses.replace(default, crop_fraction=1.0)
    renames = (*(DEIT_III if third else ()), *(POOLED if "fc_norm.weight" in shapes else ()))
    rules = table(config, renames, _prefix_rules(stored, config))
    if "head.weight" not in shapes:
        rules += stored.ignored(*PRETRAINING)
    return reading(stored, config, rules, timm.usage(stored, default), _assumed(stored, config, known))


def told(stored: Stored) -> dict[str, Any]:
    """Return what a file's tensors tell of a network of timm's, by the names of its arguments."""
    dim, patch = stored.patches("patch_embed.proj.weight")
    depth = stored.count(r"blocks\.(\d+)\.")
    pixels = stored.shapes["patch_embed.proj.weight"][1] == timm.CHANNELS  # rather than a stem's feature map
    return {"embed_dim": dim, "depth": depth, **({"patch_size": patch} if pixels else {})}


def _gelu(config: ViTConfig, named: str) -> Gelu:
    """Return the GELU that the weights were probably trained with, which a file of timm's alone does not hold."""
    if config.norm_before:
        tag = named.partition(".")[2]
        return "quick" if "quickgelu" in named or _is_quick(tag, config) else "exact"
    return "tanh" if config.pooling == "map" or "siglip" in named else config.gelu


def _is_quick(tag: str, config: ViTConfig) -> bool:
    return tag in QUICK or (tag == "laion400m_e32" and config.patch_size == (32, 32))


def _assumed(stored: Stored, config: ViTConfig, known: timm.Network | None) -> dict[str, str]:
    """Return what neither the tensors nor a description say."""
    if known is None:
        fields = ("num_heads", *(("gelu",) if config.mlp == "plain" else ()), "image_size")
        return dict.fromkeys(fields if config.pooling == "map" else ("pooling", *fields), "")
    settings = stored.config.get("pretrained_cfg", stored.config)
    tag = str(settings.get("tag", "")) if isinstance(settings, Mapping) else ""
    quick = config.norm_before and config.gelu == "exact" and _is_quick(tag, config)
    used = None if stored.image_size or known.image_size else timm.input_size(stored)
    return {
        **({"gelu": QUICK_NOTE.format(tag)} if quick else {}),
        **({"image_size": ""} if used and used != config.image_size else {}),
    }


def torch_config(
    stored: Stored, *, own: bool = False, third: bool = False, known: timm.Network | None = None
) -> ViTConfig:
    """Return the architecture of a file in these names.

    Args:
        stored: The file.
        own: whether it is DeiT's, rather than one of timm's Vision Transformers.
        third: whether it is DeiT III's.
        known: What its config.json says of it.

    Raises:
        KeyError, ValueError: it lacks a tensor, or one has an impossible shape.
    """
    shapes = stored.shapes
    dim, channels, patch_height, patch_width = shapes["patch_embed.proj.weight"]
    stem = _stem_config(stored)
    if channels != (stem.channels if stem else 3):
        raise ValueError(f"its patches have {channels} channels, where photos have 3")
    pooling = _pooling(stored, stored.given.get("pooling") or (known and known.pooling))
    size, rows = _image(stored, known)
    registers = shapes.get("reg_token", (1, 0))[1]
    if pooling != "token":
        registers += "cls_token" in shapes
    hidden = shapes["blocks.0.mlp.fc2.weight"][1]
    scaled = {"blocks.0.ls1.gamma", "blocks.0.gamma_1"} & shapes.keys()
    clip, siglip = "norm_pre.weight" in shapes, pooling == "map"
    dinov2 = scaled and not own and (rows or "reg_token" in shapes)
    heads = 16 if siglip and dim == 1536 else heads_of_width(dim)
    return ViTConfig(
        image_size=size,
        patch_size=(patch_height, patch_width),
        dim=dim,
        depth=stored.count(r"blocks\.(\d+)\."),
        mlp_dim=hidden,
        mlp="swiglu" if shapes["blocks.0.mlp.fc1.weight"][0] == 2 * hidden else "plain",
        num_heads=known.num_heads if known and known.num_heads else heads,
        num_classes=stored.classes("head.weight"),
        pooling=pooling,
        representation_size=shapes.get("pre_logits.fc.weight", (None,))[0],
        gelu=known.gelu if known and known.gelu else "exact",
        registers=registers,
        layer_scale=DINOV2_LAYER_SCALE if dinov2 else 1e-4 if scaled else None,
        stem=stem,
        distilled="dist_token" in shapes,
        qkv_bias="blocks.0.attn.qkv.bias" in shapes,
        position_resize="bicubic" if own else "bicubic-antialias" if dinov2 or clip or siglip else "bilinear",
        initialization="deit" if (own or dinov2 or clip) and not siglip and stem is None else "vit",
        norm_eps=known.norm_eps if known and known.norm_eps else CLIP_EPS if clip else LAYER_NORM_EPS,
        norm_before=clip,
        norm_pooled=pooling == "gap" and "fc_norm.weight" in shapes,
        patch_bias=not clip or "patch_embed.proj.bias" in shapes,
        class_position=pooling != "token" or (rows > 0 and "reg_token" not in shapes),
        even_depth=third,
    )


def _pooling(stored: Stored, said: Any) -> Pooling:  # noqa: ANN401  # a description's value
    """Return what the head reads: as it is said, if the tensors are there; else what they suggest."""
    shapes = stored.shapes
    token, after = "cls_token" in shapes, "fc_norm.weight" in shapes
    if after and "norm.weight" in shapes:
        raise ValueError("it has a norm after the pooling (fc_norm) beside one before it")
    possible: dict[Pooling, bool] = {
        "map": "attn_pool.latent" in shapes and not after,
        "token": token and "attn_pool.latent" not in shapes,
        "gap": "attn_pool.latent" not in shapes and "dist_token" not in shapes,
    }
    if said in possible:
        if not possible[said]:
            raise NotComputed(f"its pooling is said to be '{said}', for which its tensors are others")
        return said
    return "gap" if after and possible["gap"] else next(pooling for pooling, fits in possible.items() if fits)


def _image(stored: Stored, known: timm.Network | None = None) -> tuple[tuple[int, int], int]:
    """Return the size of the images, and how many rows of the position table are of tokens before the patches."""
    shapes, stem = stored.shapes, _stem_config(stored)
    _, patch = stored.patches("patch_embed.proj.weight")
    unit = stem.stride if stem else 1
    others = ("cls_token" in shapes) + ("dist_token" in shapes) + shapes.get("reg_token", (1, 0))[1]
    if known and known.image_size:
        stored = dataclasses.replace(stored, given={"image_size": known.image_size, **stored.given})
    pixels = patch[0] * unit, patch[1] * unit
    return stored.image(shapes["pos_embed"][1], pixels, others=others, usual=timm.input_size(stored))


def _prefix_rules(stored: Stored, config: ViTConfig) -> list[Rule]:
    """Return the rules for tokens before the patches that we keep otherwise: one that no head reads is a register.

    Registers have no positions here, so that theirs, where they have some, are added to them.
    """
    rows = stored.shapes["pos_embed"][1] - config.grid[0] * config.grid[1]
    theirs = [name for name in ("cls_token", "reg_token") if name in stored.shapes]
    sizes = [stored.shapes[name][1] for name in theirs]
    if not config.registers:
        return []
    read = config.pooling == "token"
    ours, groups = (["class_token", "registers"], sizes) if read else (["registers"], [config.registers])
    if rows:
        return [Rule((*ours, "position.embedding"), (*theirs, "pos_embed"), folded(groups, sizes))]
    return [] if read or theirs == ["reg_token"] else [Rule(tuple(ours), tuple(theirs), regrouped(groups, sizes))]


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
    if config.registers and config.class_token and config.class_position:
        raise cannot_hold("timm", "registers beside a class token with a position")
    return written_table(config)


def _own_rules(config: ViTConfig) -> list[Rule]:
    """Return the rules for DeiT's own files, of which DeiT III's have names of their own."""
    rules(config)
    if config.pooling == "map":
        raise cannot_hold("original", "attention pooling")
    if config.norm_pooled and config.registers > 1:
        raise cannot_hold("original", "several registers before a norm after the mean")
    return written_table(config, DEIT_III if config.layer_scale is not None else ())


MATCHES = having("patch_embed.proj.weight", "pos_embed", "blocks.0.attn.qkv.weight")
EXTERNAL = ("num_heads", "norm_eps", "layer_scale")
DIALECTS = (
    Dialect("timm", "vit", MATCHES, read, rules, (*EXTERNAL, "gelu", *(f"stem.{name}" for name in TIMM_STEM))),
    Dialect("original", "vit", lambda _: False, read, _own_rules, EXTERNAL, wrapper="model"),
)

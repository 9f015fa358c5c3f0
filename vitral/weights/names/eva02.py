"""EVA-02 in timm's files (timm/models/eva.py; baaivision/EVA, EVA-02).

It pools its patches before the last norm, so that its class token is a register with a position.
"""

import dataclasses

from vitral.images.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Dialect, NotComputed, Reading, Stored, keyless, our_names, reading
from vitral.weights.layouts import SAME, Renames, Rule, renamed
from vitral.weights.names import timm
from vitral.weights.names.vit_torch import FOLDED_REGISTER, heads_of_width, told

IMAGES = Preprocessing(
    resize="crop", interpolation="bicubic", antialias=True, mean=CLIP_MEAN, std=CLIP_STD, resampler="pillow"
)
NAMES: Renames = (
    (r"^patch_embedding\.", "patch_embed.proj."),
    (r"^norm\.", "fc_norm."),
    (r"^encoder\.", "blocks."),
    (r"\.attention\.out\.", ".attn.proj."),
)
FUSED: Renames = ((r"\.attention\.qkv\.bias$", ".attn.{q,v}_bias"), (r"\.attention\.qkv\.", ".attn.qkv."))
APART: Renames = (
    (r"\.attention\.qkv\.bias$", ".attn.{q,v}_proj.bias"),
    (r"\.attention\.qkv\.", ".attn.{q,k,v}_proj."),
    (r"\.mlp\.fc1\.", ".mlp.{fc1_g,fc1_x}."),
)
BIASES = keyless("timm", "biases of EVA-02's keys, which fine-tuning has made")


def table(config: ViTConfig) -> list[Rule]:
    """Return the rules for one model; the larger ones, with a norm in the MLP, keep what the smaller ones fuse apart."""
    names = (*NAMES, *(FUSED if config.mlp == "swiglu" else APART))
    return renamed(
        our_names(config), names, lambda name: BIASES if name.endswith(".qkv.bias") else SAME, [FOLDED_REGISTER]
    )


def read(stored: Stored) -> Reading:
    """Read one of timm's files of EVA-02."""
    shapes = stored.shapes
    dim, patch = stored.patches("patch_embed.proj.weight")
    known = timm.network(stored, told(stored))
    if known and known.pooling != "gap":
        raise NotComputed(f"its pooling is said to be '{known.pooling}', where EVA-02 takes the mean")
    said = dataclasses.replace(stored, given={"image_size": known.image_size, **stored.given}) if known else stored
    size, class_row = said.image(shapes["pos_embed"][1], patch, others=1, usual=timm.input_size(stored))
    if not class_row:
        raise ValueError("its class token has no position")
    hidden = shapes["blocks.0.mlp.fc2.weight"][1]
    if "blocks.0.mlp.fc1.weight" in shapes and shapes["blocks.0.mlp.fc1.weight"][0] != 2 * hidden:
        raise ValueError("its MLP is plain, without a gate: the first EVA's kind, of which EVA-02 is known")
    config = ViTConfig(
        image_size=size,
        patch_size=patch,
        dim=dim,
        depth=stored.count(r"blocks[.](\d+)[.]"),
        mlp_dim=hidden,
        mlp="swiglu-norm" if "blocks.0.mlp.norm.weight" in shapes else "swiglu",
        num_heads=known.num_heads if known and known.num_heads else heads_of_width(dim),
        num_classes=stored.classes("head.weight"),
        rotary="eva02",
        pooling="gap",
        norm_pooled=True,
        registers=1,
        gelu="exact",
        position_resize="bicubic-antialias",
        initialization="deit",
    )
    assumed = {} if known else dict.fromkeys(("num_heads", "image_size"), "")
    return reading(stored, config, table(config), timm.usage(stored, IMAGES), assumed)


def _matches(stored: Stored) -> bool:
    names = stored.shapes.keys()
    fused = {"blocks.0.attn.q_bias", "blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight"} <= names
    apart = {"blocks.0.attn.q_proj.weight", "blocks.0.mlp.fc1_g.weight"} <= names
    return {"pos_embed", "cls_token", "fc_norm.weight"} <= names and (fused or apart)


DIALECTS = (Dialect("timm", "vit", _matches, read, table, ("num_heads", "norm_eps", "gelu")),)

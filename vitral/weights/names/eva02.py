"""EVA-02 in timm's files (timm/models/eva.py; baaivision/EVA, EVA-02).

It pools its patches before the last norm, so that its class token is a register with a position.
"""

import torch

from vitral.images.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, cannot_hold, our_names, reading
from vitral.weights.layouts import FOLDED_TOKEN, SAME, Layout, Renames, Rule, Tensors, has_values, joined, renamed
from vitral.weights.names.timm import timm_classes, timm_preprocessing
from vitral.weights.names.vit_torch import heads_of_width

IMAGES = Preprocessing(
    resize="crop", interpolation="bicubic", antialias=True, mean=CLIP_MEAN, std=CLIP_STD, resampler="pillow"
)
NAMES: Renames = (
    (r"^patch_embedding\.", "patch_embed.proj."),
    (r"^norm\.", "fc_norm."),
    (r"^encoder\.", "blocks."),
    (r"\.attention\.out\.", ".attn.proj."),
)


def _biases(ours: Tensors) -> Tensors:
    query, key, value = ours[0].chunk(3)
    if has_values(key):
        raise cannot_hold("timm", "biases of EVA-02's keys, which fine-tuning has made")
    return [query.contiguous(), value.contiguous()]


# The biases of queries and values; keys have none.
BIASES = Layout(lambda theirs: [torch.cat([theirs[0], torch.zeros_like(theirs[0]), theirs[1]])], _biases)


def table(config: ViTConfig) -> list[Rule]:
    """Return the rules for one model; the larger ones, with a norm in the MLP, keep what the smaller ones fuse apart."""
    fused = config.mlp == "swiglu"
    apart = ("registers", "position.", ".attention.qkv.", ".mlp.fc1.")
    rules = renamed([name for name in our_names(config) if not any(part in name for part in apart)], NAMES)
    rules.append(Rule(("registers", "position.embedding"), ("cls_token", "pos_embed"), FOLDED_TOKEN))
    for index in range(config.depth):
        ours, theirs = f"encoder.{index}", f"blocks.{index}"
        stems = [f"{theirs}.attn.{part}_proj" for part in "qkv"]
        weights = (f"{theirs}.attn.qkv.weight",) if fused else tuple(f"{stem}.weight" for stem in stems)
        biases = (
            (f"{theirs}.attn.q_bias", f"{theirs}.attn.v_bias") if fused else (f"{stems[0]}.bias", f"{stems[2]}.bias")
        )
        rules.append(Rule((f"{ours}.attention.qkv.weight",), weights, SAME if fused else joined(3)))
        rules.append(Rule((f"{ours}.attention.qkv.bias",), biases, BIASES))
        for kind in ("weight", "bias"):
            gates = ("fc1",) if fused else ("fc1_g", "fc1_x")
            names = tuple(f"{theirs}.mlp.{gate}.{kind}" for gate in gates)
            rules.append(Rule((f"{ours}.mlp.fc1.{kind}",), names, SAME if fused else joined(2)))
    return rules


def read(stored: Stored) -> Reading:
    """Read one of timm's files of EVA-02."""
    shapes = stored.shapes
    dim, _, patch_height, patch_width = shapes["patch_embed.proj.weight"]
    size, class_row = stored.image(shapes["pos_embed"][1], (patch_height, patch_width), token=True)
    if not class_row:
        raise ValueError("its class token has no position")
    hidden = shapes["blocks.0.mlp.fc2.weight"][1]
    if "blocks.0.mlp.fc1.weight" in shapes and shapes["blocks.0.mlp.fc1.weight"][0] != 2 * hidden:
        raise ValueError("its MLP is plain, without a gate: the first EVA's kind, of which EVA-02 is known")
    head = "head.weight" in shapes
    config = ViTConfig(
        image_size=size,
        patch_size=(patch_height, patch_width),
        dim=dim,
        depth=stored.count(r"blocks[.](\d+)[.]"),
        mlp_dim=hidden,
        mlp="swiglu-norm" if "blocks.0.mlp.norm.weight" in shapes else "swiglu",
        num_heads=heads_of_width(dim),
        num_classes=shapes["head.weight"][0] if head else 1000,
        rotary="eva02",
        pooling="gap",
        norm_pooled=True,
        registers=1,
        gelu="exact",
        position_resize="bicubic-antialias",
        initialization="deit",
    )
    preprocessing, notes = timm_preprocessing(stored, IMAGES)
    return reading(config, table(config), preprocessing, head=head, class_names=timm_classes(stored), notes=notes)


def _matches(stored: Stored) -> bool:
    names = stored.shapes.keys()
    fused = {"blocks.0.attn.q_bias", "blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.weight"} <= names
    apart = {"blocks.0.attn.q_proj.weight", "blocks.0.mlp.fc1_g.weight"} <= names
    return {"pos_embed", "cls_token", "fc_norm.weight"} <= names and (fused or apart)


DIALECTS = (Dialect("timm", "vit", _matches, read, table, ("num_heads", "norm_eps", "gelu")),)

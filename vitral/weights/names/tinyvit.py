"""TinyViT's tensors in the files of its authors (microsoft/Cream, TinyViT/models/tiny_vit.py) and in timm."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable

from vitral.models.tinyvit import TinyViTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, having, our_names, reading
from vitral.weights.layouts import SAME, Layout, Renames, Rule, head_major, renamed, zeros
from vitral.weights.names import timm

REDUCTION = 32  # pixels of a side that a position of the last map stands for; its windows cover that map
IMAGES = dataclasses.replace(timm.DEIT, crop_fraction=0.95)
TIMM: Renames = (
    (r"^stem(\d)\.", r"patch_embed.conv\1.conv."),
    (r"^stem_norm(\d)\.", r"patch_embed.conv\1.bn."),
    (r"^norm\.", "head.norm."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
    (r"^stages\.(\d+)\.0\.merging\.", r"stages.\1.downsample."),
    (r"^stages\.(\d+)\.(\d+)\.norm\.", r"stages.\1.\2.mlp.norm."),
    (r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
    (r"\.bottleneck\.", "."),
    (r"\.windows\.(norm|qkv)\.", r".attn.\1."),
    (r"\.windows\.out\.", ".attn.proj."),
    (r"\.windows\.bias$", ".attn.attention_biases"),
    (r"\.local\.", ".local_conv.conv."),
    (r"\.local_norm\.", ".local_conv.bn."),
    (r"\.expand", ".conv1"),
    (r"\.depthwise", ".conv2"),
    (r"\.project", ".conv3"),
    (r"\.(conv\d)_norm\.", r".\1.bn."),
    (r"\.(conv[123])\.(weight)$", r".\1.conv.\2"),
)
# The authors halve the map at the end of a stage, and call a convolution "c".
ORIGINAL: Renames = (
    *TIMM,
    (r"^patch_embed\.conv1\.", "patch_embed.seq.0."),
    (r"^patch_embed\.conv2\.", "patch_embed.seq.2."),
    (r"^head\.norm\.", "norm_head."),
    (r"^head\.fc\.", "head."),
    (r"^stages\.(\d+)\.downsample\.", lambda match: f"layers.{int(match[1]) - 1}.downsample."),
    (r"^stages\.", "layers."),
    (r"\.conv\.", ".c."),
)


def _layout(config: TinyViTConfig, name: str) -> Layout:
    """Return the layout of a tensor of ours: theirs keep query, key and value by head, and tables of distances flat."""
    match = re.match(r"stages\.(\d+)\.\d+\.windows\.(qkv|bias)", name)
    if match is None:
        return SAME
    stage = int(match[1]) - 1
    heads, window = config.num_heads[stage], config.windows[stage]
    if match[2] == "qkv":
        return head_major(heads)
    return Layout(
        lambda theirs: [table.reshape(heads, window, window) for table in theirs],
        lambda ours: [table.flatten(1) for table in ours],
    )


def _rules(config: TinyViTConfig, renames: Renames) -> list[Rule]:
    return renamed(our_names(config), renames, functools.partial(_layout, config))


def timm_rules(config: TinyViTConfig) -> list[Rule]:
    """Return the rules for timm's files."""
    return _rules(config, TIMM)


def original_rules(config: TinyViTConfig) -> list[Rule]:
    """Return the rules for the authors' files."""
    return _rules(config, ORIGINAL)


def read_timm(stored: Stored) -> Reading:
    """Read a timm file."""
    return _read(stored, "stages", "conv", "head.fc.weight", timm_rules)


def read_original(stored: Stored) -> Reading:
    """Read a file of the authors'; some keep the index of the tables, which is computed here."""
    content = _read(stored, "layers", "c", "head.weight", original_rules)
    index = [Rule((), (name,), zeros()) for name in stored.shapes if name.endswith("attention_bias_idxs")]
    return dataclasses.replace(content, rules=[*content.rules, *index])


def _read(
    stored: Stored, stages: str, convolution: str, head: str, rules: Callable[[TinyViTConfig], list[Rule]]
) -> Reading:
    """Read a file by what it calls stages, convolutions and the head's weight."""
    shapes = stored.shapes
    tables = [shapes[f"{stages}.{stage}.blocks.0.attn.attention_biases"] for stage in (1, 2, 3)]
    outputs = [shapes[f"{stages}.{stage}.blocks.0.local_conv.{convolution}.weight"][0] for stage in (1, 2, 3)]
    windows = [math.isqrt(positions) for _, positions in tables]
    first, *others = (stored.count(rf"{stages}\.{stage}\.blocks\.(\d+)\.") for stage in range(4))
    native = REDUCTION * windows[-1]
    usage = timm.usage(stored, IMAGES.with_size(native))
    config = TinyViTConfig(
        image_size=usage.preprocessing.image_size,
        dims=(shapes[f"{stages}.0.blocks.0.conv3.{convolution}.weight"][0], *_three(outputs)),
        depths=(first, *_three(others)),
        num_heads=_three(heads for heads, _ in tables),
        windows=_three(windows),
        num_classes=stored.classes(head),
    )
    return reading(stored, config, rules(config), usage)


def _three(values: Iterable[int]) -> tuple[int, int, int]:
    first, second, third = values
    return first, second, third


DIALECTS = (
    Dialect(
        "timm",
        "tinyvit",
        having("patch_embed.conv1.conv.weight", "stages.1.blocks.0.attn.attention_biases"),
        read_timm,
        timm_rules,
        ("image_size",),
    ),
    Dialect(
        "original",
        "tinyvit",
        having("patch_embed.seq.0.c.weight", "layers.1.blocks.0.attn.attention_biases"),
        read_original,
        original_rules,
        ("image_size",),
        wrapper="model",
    ),
)

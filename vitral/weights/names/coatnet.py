"""CoAtNet's tensors as timm names them (maxxvit.py), for its coatnet_0 to coatnet_5."""

import dataclasses
import math
import re
from typing import Any

from torch import Tensor

from vitral.models.coatnet import CoAtNetConfig
from vitral.weights.dialect import Dialect, Reading, Stored, having, our_names, reading
from vitral.weights.layouts import POINTWISE, SAME, Layout, Renames, Rule, head_major, renamed
from vitral.weights.names import timm

HEAD_DIM = 32  # in timm, at every size
IMAGES = dataclasses.replace(timm.CROP_BICUBIC, crop_fraction=0.95)

RENAMES: Renames = (
    (r"^stem1\.", "stem.conv1."),
    (r"^stem_norm\.", "stem.norm1."),
    (r"^stem2\.", "stem.conv2."),
    (r"^norm\.", "head.norm."),
    (r"^pre_logits\.", "head.pre_logits.fc."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
    (r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
    (r"\.squeeze_excite\.reduce\.", ".se.fc1."),
    (r"\.squeeze_excite\.expand\.", ".se.fc2."),
    (r"(\d)\.norm\.", r"\1.pre_norm."),
    (r"(\d)\.expand\.", r"\1.conv1_1x1."),
    (r"(\d)\.expand_norm\.", r"\1.norm1."),
    (r"(\d)\.depthwise\.", r"\1.conv2_kxk."),
    (r"(\d)\.depthwise_norm\.", r"\1.norm2."),
    (r"(\d)\.project\.", r"\1.conv3_1x1."),
    (r"\.attention\.qkv\.", ".attn.qkv."),
    (r"\.attention\.out\.", ".attn.proj."),
    (r"\.attention\.bias$", ".attn.rel_pos.relative_position_bias_table"),
)


def _layouts(config: CoAtNetConfig) -> Any:  # noqa: ANN401  # a function from a name to its layout
    heads = {str(stage): dim // config.head_dim for stage, dim in enumerate(config.dims)}

    def layout(name: str) -> Layout:
        match = re.match(r"stages\.(\d+)\.\d+\.(attention\.qkv|attention\.out|attention\.bias|mlp\.fc\d)", name)
        if match is None:
            return SAME
        count, part, weight = heads[match[1]], match[2], name.endswith("weight")
        if part == "attention.bias":
            return _relative_table(count)
        if part == "attention.qkv":
            by_head = head_major(count)
            if not weight:
                return by_head
            return Layout(
                lambda theirs: by_head.read(POINTWISE.read(theirs)), lambda ours: POINTWISE.write(by_head.write(ours))
            )
        return POINTWISE if weight else SAME

    return layout


def _relative_table(heads: int) -> Layout:
    def read(theirs: list[Tensor]) -> list[Tensor]:
        side = math.isqrt(theirs[0].shape[0])
        return [theirs[0].T.reshape(heads, side, side).contiguous()]

    return Layout(read, lambda ours: [ours[0].flatten(1).T.contiguous()])


def rules(config: CoAtNetConfig) -> list[Rule]:
    """Return the rules for timm's files."""
    pooled = tuple(
        (rf"^stages\.{stage}\.blocks\.0\.norm1\.", f"stages.{stage}.blocks.0.norm1.norm.")
        for stage, kind in enumerate(config.kinds)
        if kind == "attention"
    )
    return renamed(our_names(config), (*RENAMES, *pooled), _layouts(config))


def read(stored: Stored) -> Reading:
    """Read a timm file; its `_rw` models, the ones with weights, are other architectures and are refused."""
    shapes = stored.shapes
    if "head.norm.weight" not in shapes:
        raise ValueError("it is timm's own variation of CoAtNet ('_rw'), which differs from the paper's")
    stages = range(stored.count(r"stages\.(\d+)\."))
    attention = [f"stages.{stage}.blocks.0.attn.rel_pos.relative_position_bias_table" in shapes for stage in stages]
    dims = tuple(
        shapes[f"stages.{stage}.blocks.0." + ("attn.proj.weight" if attending else "conv3_1x1.weight")][0]
        for stage, attending in zip(stages, attention, strict=True)
    )
    last = shapes[f"stages.{stages[-1]}.blocks.0.attn.rel_pos.relative_position_bias_table"][0]
    side = 2 ** (len(dims) + 1) * ((math.isqrt(last) + 1) // 2)
    config = CoAtNetConfig(
        image_size=(side, side),
        stem_dim=shapes["stem.conv1.weight"][0],
        kinds=tuple("attention" if attending else "convolution" for attending in attention),
        depths=tuple(stored.count(rf"stages\.{stage}\.blocks\.(\d+)\.") for stage in stages),
        dims=dims,
        head_dim=HEAD_DIM,
        num_classes=stored.classes("head.fc.weight"),
        representation_size=shapes.get("head.pre_logits.fc.weight", (None,))[0],
        convention="timm",
    )
    return reading(stored, config, rules(config), timm.usage(stored, IMAGES))


MATCHES = having("stem.conv1.weight", "stages.0.blocks.0.conv1_1x1.weight")
DIALECTS = (Dialect("timm", "coatnet", MATCHES, read, rules),)

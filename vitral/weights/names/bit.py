"""BiT's tensors in its own .npz files (bit_pytorch/models.py), in timm's resnetv2_*_bit and in transformers' Bit."""

import dataclasses
import re
from typing import Any

from vitral.images.preprocessing import ORIGINAL as ORIGINAL_PREPROCESSING
from vitral.models.bit import EXPANSION, WIDTH, BiTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, Usage, having, reading, renaming
from vitral.weights.layouts import CONVOLUTION, DENSE_KERNEL, POINTWISE, SAME, Layout, Renames, from_one
from vitral.weights.names import timm, transformers

# Pixels, for the files fine-tuned on ImageNet (bit_hyperrule.py); the others are pre-trained at 224
FINE_TUNED_SIZE = 480
TORCH_EPS = 1e-8  # of timm and transformers
TIMM_IMAGES = dataclasses.replace(
    ORIGINAL_PREPROCESSING,
    resize="crop",
    crop_fraction=0.875,
    interpolation="bicubic",
    antialias=True,
    resampler="pillow",
)
TRANSFORMERS_IMAGES = dataclasses.replace(TIMM_IMAGES, resampler="torch")

ORIGINAL_ROOT = "resnet/root_block/standardized_conv2d/kernel"
ORIGINAL: Renames = (
    (r"^root\.weight$", ORIGINAL_ROOT),
    (r"^head\.weight$", "resnet/head/conv2d/kernel"),
    (r"^head\.", "resnet/head/conv2d/"),
    (r"^norm\.", "resnet/group_norm/"),
    (r"^stages\.(\d+)\.(\d+)\.", from_one("resnet/block{}/unit{:02d}/")),
    (r"(norm|conv)1\.", r"a/\1/"),
    (r"(norm|conv)2\.", r"b/\1/"),
    (r"(norm|conv)3\.", r"c/\1/"),
    (r"projection\.", "a/proj/conv/"),
    (r"/conv/weight$", "/standardized_conv2d/kernel"),
    (r"/norm/", "/group_norm/"),
    (r"group_norm/weight$", "group_norm/gamma"),
    (r"group_norm/bias$", "group_norm/beta"),
)
TORCH: Renames = (
    (r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
    (r"\.projection\.", ".downsample.conv."),
)
TIMM: Renames = (*TORCH, (r"^root\.", "stem.conv."), (r"^head\.", "head.fc."))
TRANSFORMERS: Renames = (
    *TORCH,
    (r"^stages\.(\d+)\.blocks\.", r"bit.encoder.stages.\1.layers."),
    (r"^root\.", "bit.embedder.convolution."),
    (r"^norm\.", "bit.norm."),
    (r"^head\.", "classifier.1."),
)


def _original_layout(name: str) -> Layout:
    if name == "head.weight":
        return DENSE_KERNEL
    return CONVOLUTION if re.search(r"(root|conv\d|projection)\.weight$", name) else SAME


original_rules = renaming(ORIGINAL, _original_layout)
timm_rules = renaming(TIMM, lambda name: POINTWISE if name == "head.weight" else SAME)
transformers_rules = renaming(TRANSFORMERS)


def read_original(stored: Stored) -> Reading:
    """Read one of the published files."""
    stages = range(1, stored.count(r"resnet/(block\d+)/") + 1)
    size = FINE_TUNED_SIZE if "ILSVRC2012" in stored.file_name else 224
    config = BiTConfig(
        image_size=(size, size),
        stages=tuple(stored.count(rf"resnet/block{stage}/(unit\d+)/") for stage in stages),
        width_factor=stored.shapes[ORIGINAL_ROOT][3] // WIDTH,
        num_classes=stored.classes("resnet/head/conv2d/kernel", 3),
    )
    note = f"The file does not say the size of its images; assumed: {size} pixels."
    return reading(stored, config, original_rules(config), Usage(ORIGINAL_PREPROCESSING, notes=(note,)))


def read_timm(stored: Stored) -> Reading:
    """Read a timm file."""
    usage = timm.usage(stored, TIMM_IMAGES)
    config = _torch_config(stored, usage, "stem.conv.weight", r"stages\.{}\.blocks\.(\d+)\.", "head.fc.weight")
    return reading(stored, config, timm_rules(config), usage)


def read_transformers(stored: Stored) -> Reading:
    """Read a transformers file."""
    settings = stored.config
    if settings.get("layer_type", "preactivation") != "preactivation" or settings.get("global_padding"):
        raise ValueError("its Bit differs from BiT (layer_type, global_padding)")
    if settings.get("embedding_dynamic_padding") or settings.get("num_groups", 32) != 32:
        raise ValueError("its Bit differs from BiT (embedding_dynamic_padding, num_groups)")
    transformers.check(stored, {"hidden_act": "relu", "output_stride": 32})
    usage = transformers.usage(stored, TRANSFORMERS_IMAGES)
    units = r"bit\.encoder\.stages\.{}\.layers\.(\d+)\."
    config = _torch_config(stored, usage, "bit.embedder.convolution.weight", units, "classifier.1.weight")
    return reading(stored, config, transformers_rules(config), usage)


def _torch_config(stored: Stored, usage: Usage, root: str, units: str, head: str) -> BiTConfig:
    return BiTConfig(
        image_size=usage.preprocessing.image_size,
        stages=stored.stages(units),
        width_factor=stored.shapes[root][0] // WIDTH,
        num_classes=stored.classes(head),
        weight_eps=TORCH_EPS,
    )


def describe(config: BiTConfig) -> dict[str, Any]:
    """Return a model's config.json for transformers."""
    widths = [EXPANSION * WIDTH * 2**stage for stage in range(len(config.stages))]
    return {
        "architectures": ["BitForImageClassification"],
        "model_type": "bit",
        "embedding_size": WIDTH,
        "hidden_sizes": widths,
        "depths": list(config.stages),
        "layer_type": "preactivation",
        "width_factor": config.width_factor,
        "num_channels": 3,
    }


EXTERNAL = ("image_size", "weight_eps")
DIALECTS = (
    Dialect("original", "bit", having(ORIGINAL_ROOT), read_original, original_rules, EXTERNAL, numpy=True),
    Dialect(
        "timm",
        "bit",
        lambda stored: (
            {"stem.conv.weight", "stages.0.blocks.0.norm3.weight"} <= stored.shapes.keys()
            and "stem.norm.weight" not in stored.shapes
        ),
        read_timm,
        timm_rules,
        EXTERNAL,
    ),
    Dialect(
        "transformers",
        "bit",
        having("bit.embedder.convolution.weight"),
        read_transformers,
        transformers_rules,
        EXTERNAL,
        describe=describe,
    ),
)

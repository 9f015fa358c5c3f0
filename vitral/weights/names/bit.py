"""BiT's tensors in its own .npz files (bit_pytorch/models.py), in timm's resnetv2_*_bit and in transformers' Bit."""

import dataclasses
import re
from typing import Any

from vitral.images.preprocessing import ORIGINAL as ORIGINAL_PREPROCESSING
from vitral.models.bit import EXPANSION, WIDTH, BiTConfig
from vitral.weights.containers import Shape
from vitral.weights.dialect import Dialect, Reading, Stored, our_names, reading
from vitral.weights.layouts import CONVOLUTION, DENSE_KERNEL, POINTWISE, SAME, Layout, Renames, Rule, renamed
from vitral.weights.names import transformers
from vitral.weights.names.timm import timm_classes, timm_preprocessing

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

PARTS = {"1": "a", "2": "b", "3": "c"}
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


def original_rules(config: BiTConfig) -> list[Rule]:
    """Return the rules for the published .npz files."""
    return [Rule((name,), (_original_name(name),), _original_layout(name)) for name in our_names(config)]


def _original_name(name: str) -> str:
    kind = {"weight": "gamma", "bias": "beta"}[name.rpartition(".")[2]]
    if name.startswith("head."):
        return "resnet/head/conv2d/" + ("kernel" if kind == "gamma" else "bias")
    if name == "root.weight":
        return "resnet/root_block/standardized_conv2d/kernel"
    match = re.match(r"stages\.(\d+)\.(\d+)\.(norm|conv|projection)([123]?)\.", name)
    if match is None:
        return f"resnet/group_norm/{kind}"
    stage, unit, layer, part = match.groups()
    unit_name = f"resnet/block{int(stage) + 1}/unit{int(unit) + 1:02d}"
    if layer == "projection":
        return f"{unit_name}/a/proj/standardized_conv2d/kernel"
    return f"{unit_name}/{PARTS[part]}/" + (f"group_norm/{kind}" if layer == "norm" else "standardized_conv2d/kernel")


def _original_layout(name: str) -> Layout:
    if name == "head.weight":
        return DENSE_KERNEL
    return CONVOLUTION if re.search(r"(root|conv\d|projection)\.weight$", name) else SAME


def read_original(stored: Stored) -> Reading:
    """Read one of the published files."""
    shapes = stored.shapes
    head = "resnet/head/conv2d/kernel" in shapes
    units = [stored.count(rf"resnet/block{stage}/(unit\d+)/") for stage in range(1, _blocks(stored) + 1)]
    size = FINE_TUNED_SIZE if "ILSVRC2012" in stored.file_name else 224
    config = BiTConfig(
        image_size=(size, size),
        stages=tuple(units),
        width_factor=shapes["resnet/root_block/standardized_conv2d/kernel"][3] // WIDTH,
        num_classes=shapes["resnet/head/conv2d/kernel"][3] if head else 1000,
    )
    note = f"The file does not say the size of its images; assumed: {size} pixels."
    return reading(config, original_rules(config), ORIGINAL_PREPROCESSING, head=head, notes=(note,))


def _blocks(stored: Stored) -> int:
    return stored.count(r"resnet/(block\d+)/")


def timm_rules(config: BiTConfig) -> list[Rule]:
    """Return the rules for timm's files."""
    return renamed(our_names(config), TIMM, lambda name: POINTWISE if name == "head.weight" else SAME)


def read_timm(stored: Stored) -> Reading:
    """Read a timm file."""
    config = _torch_config(
        stored, "stem.conv.weight", r"stages\.{}\.blocks\.(\d+)\.", stored.shapes.get("head.fc.weight")
    )
    prepared, notes = timm_preprocessing(stored, TIMM_IMAGES)
    head = "head.fc.weight" in stored.shapes
    config = dataclasses.replace(config, image_size=prepared.image_size, weight_eps=TORCH_EPS)
    return reading(config, timm_rules(config), prepared, head=head, class_names=timm_classes(stored), notes=notes)


def transformers_rules(config: BiTConfig) -> list[Rule]:
    """Return the rules for transformers' files."""
    return renamed(our_names(config), TRANSFORMERS)


def read_transformers(stored: Stored) -> Reading:
    """Read a transformers file."""
    settings = stored.config
    if settings.get("layer_type", "preactivation") != "preactivation" or settings.get("global_padding"):
        raise ValueError("its Bit differs from BiT (layer_type, global_padding)")
    if settings.get("embedding_dynamic_padding") or settings.get("num_groups", 32) != 32:
        raise ValueError("its Bit differs from BiT (embedding_dynamic_padding, num_groups)")
    pattern = r"bit\.encoder\.stages\.{}\.layers\.(\d+)\."
    head = "classifier.1.weight" in stored.shapes
    config = _torch_config(stored, "bit.embedder.convolution.weight", pattern, stored.shapes.get("classifier.1.weight"))
    prepared, notes = transformers.preprocessing(stored, TRANSFORMERS_IMAGES)
    config = dataclasses.replace(config, image_size=prepared.image_size, weight_eps=TORCH_EPS)
    return reading(
        config,
        transformers_rules(config),
        prepared,
        head=head,
        class_names=transformers.class_names(stored),
        notes=notes,
    )


def _torch_config(stored: Stored, root: str, pattern: str, head: Shape | None) -> BiTConfig:
    stages: list[int] = []
    while units := stored.count(pattern.format(len(stages))):
        stages.append(units)
    width_factor = stored.shapes[root][0] // WIDTH
    return BiTConfig(stages=tuple(stages), width_factor=width_factor, num_classes=head[0] if head else 1000)


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
    Dialect(
        "original",
        "bit",
        lambda stored: "resnet/root_block/standardized_conv2d/kernel" in stored.shapes,
        read_original,
        original_rules,
        EXTERNAL,
        numpy=True,
    ),
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
        lambda stored: "bit.embedder.convolution.weight" in stored.shapes,
        read_transformers,
        transformers_rules,
        EXTERNAL,
        describe=describe,
    ),
)

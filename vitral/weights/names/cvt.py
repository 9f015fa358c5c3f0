"""CvT's tensors in its own files (microsoft/CvT, lib/models/cls_cvt.py) and in transformers' Cvt."""

import dataclasses
from typing import Any

from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.cvt import EMBEDDINGS, KEY_STRIDE, MLP_RATIO, CvTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, Usage, having, reading, renaming
from vitral.weights.layouts import Renames
from vitral.weights.names import transformers

HEAD_DIM = 64
STAGES = range(3)
# At 224 pixels; from 384 on the whole image is resized to a square (the paper's section 4.1 and its configs).
ORIGINAL_IMAGES = Preprocessing(
    resize="crop",
    crop_fraction=0.875,
    interpolation="bicubic",
    antialias=True,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    resampler="pillow",
)
TRANSFORMERS_IMAGES = dataclasses.replace(ORIGINAL_IMAGES, resampler="torch")

ORIGINAL: Renames = (
    (r"^stages\.(\d)\.embedding\.", r"stage\1.patch_embed.proj."),
    (r"^stages\.(\d)\.norm\.", r"stage\1.patch_embed.norm."),
    (r"^stages\.(\d)\.class_token$", r"stage\1.cls_token"),
    (r"^stages\.(\d)\.layers\.", r"stage\1.blocks."),
    (r"\.attention\.(q|k|v)\w+_map\.convolution\.", r".attn.conv_proj_\1.conv."),
    (r"\.attention\.(q|k|v)\w+_map\.norm\.", r".attn.conv_proj_\1.bn."),
    (r"\.attention\.(q|k|v)\w+\.", r".attn.proj_\1."),
    (r"\.attention\.out\.", ".attn.proj."),
)
TRANSFORMERS: Renames = (
    (r"^stages\.(\d)\.embedding\.", r"cvt.encoder.stages.\1.embedding.convolution_embeddings.projection."),
    (r"^stages\.(\d)\.norm\.", r"cvt.encoder.stages.\1.embedding.convolution_embeddings.normalization."),
    (r"^stages\.", "cvt.encoder.stages."),
    (r"\.class_token$", ".cls_token"),
    (r"\.norm1\.", ".layernorm_before."),
    (r"\.norm2\.", ".layernorm_after."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
    (r"\.attention\.out\.", ".attention.output.dense."),
    (r"\.attention\.(\w+)_map\.", r".attention.attention.convolution_projection_\1.convolution_projection."),
    (r"(convolution_projection)\.norm\.", r"\1.normalization."),
    (r"\.attention\.(query|key|value)\.", r".attention.attention.projection_\1."),
    (r"^norm\.", "layernorm."),
    (r"^head\.", "classifier."),
)


original_rules = renaming(ORIGINAL)
transformers_rules = renaming(TRANSFORMERS)


def read_original(stored: Stored) -> Reading:
    """Read one of its own files; the resolution is in their names ("CvT-13-384x384-IN-22k.pth")."""
    size = 384 if "384" in stored.file_name else 224
    config = dataclasses.replace(
        _config(stored, "stage{}.patch_embed.proj.weight", r"stage{}\.blocks\.(\d+)\.", "head.weight"),
        image_size=(size, size),
    )
    whole = {"resize": "squash", "crop_fraction": 1.0} if size == 384 else {}
    images = dataclasses.replace(ORIGINAL_IMAGES, **whole)  # type: ignore[arg-type]
    return reading(stored, config, original_rules(config), Usage(images, transformers.class_names(stored)))


def read_transformers(stored: Stored) -> Reading:
    """Read a transformers file; transformers computes the exact GELU whatever the weights were trained with."""
    embedding = "cvt.encoder.stages.{}.embedding.convolution_embeddings.projection.weight"
    transformers.check(stored, FIXED)
    config = _config(stored, embedding, r"cvt\.encoder\.stages\.{}\.layers\.(\d+)\.", "classifier.weight")
    heads = stored.config.get("num_heads")
    usage = transformers.usage(stored, TRANSFORMERS_IMAGES)
    config = dataclasses.replace(
        config,
        gelu="exact",
        image_size=usage.preprocessing.image_size,
        num_heads=tuple(heads) if heads else config.num_heads,
    )
    return reading(stored, config, transformers_rules(config), usage)


def _config(stored: Stored, embedding: str, blocks: str, head: str) -> CvTConfig:
    dims = tuple(stored.shapes[embedding.format(stage)][0] for stage in STAGES)
    return CvTConfig(
        dims=dims,  # type: ignore[arg-type]
        depths=tuple(stored.count(blocks.format(stage)) for stage in STAGES),  # type: ignore[arg-type]
        num_heads=tuple(max(1, dim // HEAD_DIM) for dim in dims),  # type: ignore[arg-type]
        num_classes=stored.classes(head),
    )


FIXED = {  # settings of transformers', of which one value is computed here
    "patch_sizes": [kernel for kernel, _, _ in EMBEDDINGS],
    "patch_stride": [stride for _, stride, _ in EMBEDDINGS],
    "patch_padding": [padding for _, _, padding in EMBEDDINGS],
    "mlp_ratio": [float(MLP_RATIO)] * 3,
    "qkv_bias": [True] * 3,
    "cls_token": [False, False, True],
    "stride_kv": [KEY_STRIDE] * 3,
    "stride_q": [1] * 3,
    "padding_kv": [1] * 3,
    "padding_q": [1] * 3,
    "qkv_projection_method": ["dw_bn"] * 3,
}


def describe(config: CvTConfig) -> dict[str, Any]:
    """Return a model's config.json for transformers."""
    return {
        "architectures": ["CvtForImageClassification"],
        "model_type": "cvt",
        "num_channels": 3,
        "embed_dim": list(config.dims),
        "depth": list(config.depths),
        "num_heads": list(config.num_heads),
        **FIXED,
        "drop_rate": [config.dropout] * 3,
        "drop_path_rate": [0.0, 0.0, config.stochastic_depth],
    }


DIALECTS = (
    Dialect(
        "original",
        "cvt",
        having("stage0.patch_embed.proj.weight"),
        read_original,
        original_rules,
        ("num_heads", "image_size"),
    ),
    Dialect(
        "transformers",
        "cvt",
        having("cvt.encoder.stages.0.embedding.convolution_embeddings.projection.weight"),
        read_transformers,
        transformers_rules,
        ("image_size",),
        describe=describe,
    ),
)

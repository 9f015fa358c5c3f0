"""The image towers of CLIP and SigLIP: OpenCLIP's own files and transformers' (open_clip/transformer.py; modeling_clip.py).

Their text towers are left out. What projects CLIP's class token to the space that it shares with its texts is read as the
network's head: its outputs are no classes. SigLIP's own files are big_vision's (vit.py), timm's are in vit_torch.py.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import torch

from vitral.images.preprocessing import CLIP_MEAN, CLIP_STD, Preprocessing
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import (
    Dialect,
    Reading,
    Stored,
    Usage,
    cannot_hold,
    having,
    headless,
    image_size,
    our_names,
    reading,
    square_side,
)
from vitral.weights.layouts import SAME, Layout, Renames, Rule, Tensors, has_values, renamed
from vitral.weights.names import timm, transformers
from vitral.weights.names.vit_torch import CLIP_EPS, heads_of_width

PROJECTION_NOTE = (
    "Its head projects images to the space that they share with texts: {} numbers, which are no classes; fine-tuning "
    "replaces it."
)
GELU_NOTE = (
    "The file does not say its GELU; assumed: the exact one, OpenCLIP's. The weights of OpenAI, MetaCLIP and DFN need "
    "gelu=quick."
)
CLIP_IMAGES = Preprocessing(
    resize="crop", interpolation="bicubic", antialias=True, mean=CLIP_MEAN, std=CLIP_STD, resampler="torch"
)
SIGLIP_IMAGES = Preprocessing(interpolation="bicubic", antialias=True, resampler="torch")
OPEN_CLIP_TEXT = (
    *("transformer.", "token_embedding.", "positional_embedding", "ln_final.", "text_projection", "text."),
    *("logit_scale", "logit_bias", "attn_mask"),
)
TEXT = ("text_model.", "text_projection", "logit_scale", "logit_bias")
# The class token and the positions are stored as a vector and a table, without a dimension for the batch.
HEAD = ("head.weight", "head.bias")
LAYOUTS = {
    "class_token": Layout(lambda theirs: [theirs[0][None, None]], lambda ours: [ours[0][0, 0]]),
    "position.embedding": Layout(lambda theirs: [theirs[0][None]], lambda ours: [ours[0][0]]),
}


def _projection(format_name: str, *, transposed: bool) -> Layout:
    """A head without biases, stored as (out, dim) or transposed."""

    def read(theirs: Tensors) -> Tensors:
        weight = theirs[0].T.contiguous() if transposed else theirs[0]
        return [weight, torch.zeros(len(weight))]

    def write(ours: Tensors) -> Tensors:
        weight, bias = ours
        if has_values(bias):
            raise cannot_hold(format_name, "a head with biases on CLIP's class token; take 'timm'")
        return [weight.T.contiguous() if transposed else weight]

    return Layout(read, write)


def _say_projection(content: Reading) -> Reading:
    if content.absent:
        return content
    return dataclasses.replace(content, notes=(*content.notes, PROJECTION_NOTE.format(content.config.num_classes)))


OPEN_CLIP: Renames = (
    (r"^patch_embedding\.", "visual.conv1."),
    (r"^class_token$", "visual.class_embedding"),
    (r"^position\.embedding$", "visual.positional_embedding"),
    (r"^norm_before\.", "visual.ln_pre."),
    (r"^norm\.", "visual.ln_post."),
    (r"^encoder\.(\d+)\.", r"visual.transformer.resblocks.\1."),
    (r"\.norm([12])\.", r".ln_\1."),
    (r"\.attention\.qkv\.", ".attn.in_proj_"),
    (r"\.attention\.out\.", ".attn.out_proj."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
)


def _layout(name: str) -> Layout:
    return LAYOUTS.get(name, SAME)


def _open_clip_table(config: ViTConfig) -> list[Rule]:
    head = Rule(HEAD, ("visual.proj",), _projection("original", transposed=True))
    return renamed(our_names(config), OPEN_CLIP, _layout, [head])


def open_clip_config(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what OpenCLIP's description says, with its images as timm describes them; empty where it says nothing."""
    images, model = said.get("preprocess_cfg"), said.get("model_cfg")
    if not isinstance(images, Mapping) or not isinstance(model, Mapping):
        return {}
    vision = model.get("vision_cfg")
    vision = vision if isinstance(vision, Mapping) else {}
    size = image_size(images.get("size")) or image_size(vision.get("image_size")) or CLIP_IMAGES.image_size
    mode = images.get("resize_mode") or "shortest"
    return {
        "model_cfg": model,
        "pretrained_cfg": {
            "mean": images.get("mean") or CLIP_MEAN,
            "std": images.get("std") or CLIP_STD,
            "interpolation": images.get("interpolation"),
            "crop_pct": 1.0,
            "crop_mode": "center" if mode == "shortest" else mode,
            "input_size": [3, *size],
        },
    }


def read_open_clip(stored: Stored) -> Reading:
    """Read one of OpenCLIP's own files."""
    said = stored.config.get("model_cfg")
    shapes = stored.shapes
    dim, patch = stored.patches("visual.conv1.weight")
    size, _ = stored.image(shapes["visual.positional_embedding"][0] - 1, patch)
    config = ViTConfig(
        image_size=size,
        patch_size=patch,
        dim=dim,
        depth=stored.count(r"visual[.]transformer[.]resblocks[.](\d+)[.]"),
        mlp_dim=shapes["visual.transformer.resblocks.0.mlp.c_fc.weight"][0],
        num_heads=heads_of_width(dim),
        num_classes=stored.classes("visual.proj", 1),
        gelu="quick" if isinstance(said, Mapping) and said.get("quick_gelu") else "exact",
        norm_eps=CLIP_EPS,
        norm_before=True,
        patch_bias=False,
        position_resize="bicubic-antialias",
        initialization="deit",
    )
    rules = [*_open_clip_table(config), *stored.ignored(*OPEN_CLIP_TEXT)]
    images = dataclasses.replace(CLIP_IMAGES, resampler="pillow")
    usage = Usage(images) if said is None else timm.usage(stored, images)
    return _say_projection(reading(stored, config, rules, usage, {"gelu": GELU_NOTE} if said is None else {}))


def _names(base: str) -> Renames:
    return (
        (r"^patch_embedding\.", f"{base}embeddings.patch_embedding."),
        (r"^class_token$", f"{base}embeddings.class_embedding"),
        (r"^position\.embedding$", f"{base}embeddings.position_embedding.weight"),
        (r"^norm_before\.", f"{base}pre_layrnorm."),  # so spelt there
        (r"^norm\.", f"{base}post_layernorm."),
        (r"^head\.", "classifier."),
        (r"^encoder\.(\d+)\.norm([12])\.", rf"{base}encoder.layers.\1.layer_norm\2."),
        (r"^encoder\.(\d+)\.([am])", rf"{base}encoder.layers.\1.\2"),  # attention and mlp
        (r"^map_head\.norm\.", f"{base}head.layernorm."),
        (r"^map_head\.attention\.out\.", f"{base}head.attention.out_proj."),
        (r"^map_head\.attention\.(?:query|key|value)\.", f"{base}head.attention.in_proj_"),
        (r"^map_head\.", f"{base}head."),
        (r"\.attention\.qkv\.", ".self_attn.{q,k,v}_proj."),
        (r"\.attention\.out\.", ".self_attn.out_proj."),
    )


def _transformers_table(config: ViTConfig, base: str) -> list[Rule]:
    special = []
    if config.norm_before:
        special = [Rule(HEAD, ("visual_projection.weight",), _projection("transformers", transposed=False))]
    elif config.pooling != "gap":
        special = [headless("transformers", "a head after SigLIP's attention pooling")]
    return renamed(our_names(config), _names(base), _layout, special)


def read_transformers(stored: Stored) -> Reading:
    """Read the image tower of a CLIP or SigLIP file, or SigLIP's classifier, which reads the mean over the patches."""
    shapes = stored.shapes
    base = _base(stored) or BASES[1]
    settings = stored.config.get("vision_config", stored.config)
    settings = settings if isinstance(settings, Mapping) else {}
    clip, classifier = f"{base}pre_layrnorm.weight" in shapes, "classifier.weight" in shapes
    projection = f"{base}embeddings.patch_embedding.weight"
    if len(shapes[projection]) == 2:
        raise ValueError("its patches come in rows of pixels, SigLIP 2's NaFlex; those of a fixed resolution are known")
    if clip and classifier:
        raise ValueError("its classifier reads CLIP's patches before the last norm, which is another architecture")
    head = "classifier.weight" if classifier else "visual_projection.weight"
    dim, patch = stored.patches(projection)
    side = square_side(shapes[f"{base}embeddings.position_embedding.weight"][0] - clip)  # transformers has no other
    heads = 16 if dim == GIANT_OPT and not clip else heads_of_width(dim)
    config = ViTConfig(
        image_size=(side * patch[0], side * patch[1]),
        patch_size=patch,
        dim=dim,
        depth=stored.count(rf"{re.escape(base)}encoder\.layers\.(\d+)\."),
        mlp_dim=shapes[f"{base}encoder.layers.0.mlp.fc1.weight"][0],
        num_heads=int(settings.get("num_attention_heads") or heads),
        num_classes=stored.classes(head),
        pooling="token" if clip else "gap" if classifier else "map",
        gelu=transformers.gelu_of({"hidden_act": "quick_gelu" if clip else "gelu_pytorch_tanh", **settings}),
        norm_eps=float(settings.get("layer_norm_eps", CLIP_EPS if clip else 1e-6)),
        norm_before=clip,
        patch_bias=not clip,
        position_resize="bicubic",
        initialization="deit" if clip else "big_vision",
    )
    rules = [*_transformers_table(config, base), *stored.ignored(*TEXT, f"{base}embeddings.position_ids")]
    rules += stored.ignored(f"{base}head.") if classifier else []
    usage = transformers.usage(stored, CLIP_IMAGES if clip else SIGLIP_IMAGES)
    usage = usage if classifier else dataclasses.replace(usage, class_names=None)
    content = reading(stored, config, rules, usage, transformers.assumed(stored))
    return _say_projection(content) if clip else content


def _transformers_rules(config: ViTConfig) -> list[Rule]:
    if config.pooling == "gap":  # which it reads only for SigLIP's classifier
        raise cannot_hold("transformers", "pooling 'gap'")
    return _transformers_table(config, BASES[0])


def describe(config: ViTConfig) -> dict[str, Any]:
    """Return a model's config.json."""
    clip = config.norm_before
    return {
        "architectures": ["CLIPVisionModelWithProjection" if clip else "SiglipVisionModel"],
        "model_type": "clip_vision_model" if clip else "siglip_vision_model",
        **transformers.vit_settings(config),
        "intermediate_size": config.mlp_dim,
        "hidden_act": transformers.ACTIVATIONS[config.gelu],
        "attention_dropout": config.attention_dropout,
        **({"projection_dim": config.num_classes} if clip else {}),
    }


BASES = ("vision_model.", "")
GIANT_OPT = 1536  # SigLIP 2's widest, of 16 heads, where DINOv2's has 24


def _base(stored: Stored) -> str | None:
    embeddings = ("embeddings.patch_embedding.weight", "embeddings.position_embedding.weight")
    return stored.base(BASES, *embeddings, "post_layernorm.weight")


DIALECTS = (
    Dialect(
        "original",
        "vit",
        having("visual.conv1.weight", "visual.ln_pre.weight"),
        read_open_clip,
        _open_clip_table,
        ("num_heads", "gelu", "norm_eps"),
    ),
    Dialect(
        "transformers",
        "vit",
        lambda stored: _base(stored) is not None,
        read_transformers,
        _transformers_rules,
        folded=("num_classes",),
        describe=describe,
    ),
)

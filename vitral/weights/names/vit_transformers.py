"""The Vision Transformer in transformers: ViTForImageClassification and DeiT's two classifiers."""

import re
from collections.abc import Sequence
from typing import Any

import torch

from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, our_names, reading
from vitral.weights.layouts import Layout, Renames, Rule, renamed
from vitral.weights.names import transformers
from vitral.weights.names.vit_torch import heads_of_width

TRANSFORMERS_EPS = 1e-12  # the default of its ViT, where the original has 1e-6
VIT_IMAGES = Preprocessing(antialias=True, resampler="torch")
DEIT_IMAGES = Preprocessing(
    crop_fraction=0.875,
    interpolation="bicubic",
    antialias=True,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    resampler="torch",
)
BASES = ("vit.", "deit.", "")
MODEL_TYPES = ("vit", "deit", "vit_mae", "vit_msn")  # others have the same names and compute otherwise
POOLER_NOTE = (
    "It has a pooler and a classifier, which no network of transformers' has; assumed: the classifier reads what the pooler "
    "gives. If it reads the class token, representation_size=null."
)
MAE_DECODER = "decoder."  # of a whole masked autoencoder, whose encoder alone is read
# The names of its version 5 in memory; its files keep the older names, but not everyone saves through it.
IN_MEMORY = (
    (r"\.attention\.attention\.\{query,key,value\}\.", ".attention.{q,k,v}_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"(\d)\.output\.dense\.", r"\1.mlp.fc2."),
)


def table(
    config: ViTConfig, base: str, layer: str, *, in_memory: bool = False, special: Sequence[Rule] = ()
) -> list[Rule]:
    """Return the rules for one model, its names below `base` ("vit." or "deit."), each block's below `layer`."""
    block = r"^encoder\.(\d+)\."
    names: Renames = (
        (r"^patch_embedding\.", f"{base}embeddings.patch_embeddings.projection."),
        (r"^class_token$", f"{base}embeddings.cls_token"),
        (r"^distillation_token$", f"{base}embeddings.distillation_token"),
        (r"^position\.embedding$", f"{base}embeddings.position_embeddings"),
        (r"^norm\.", f"{base}layernorm."),
        (r"^pre_logits\.", f"{base}pooler.dense."),
        (r"^head\.", "cls_classifier." if config.distilled else "classifier."),
        (r"^distillation_head\.", "distillation_classifier."),
        (rf"{block}norm1\.", rf"{layer}.\1.layernorm_before."),
        (rf"{block}norm2\.", rf"{layer}.\1.layernorm_after."),
        (rf"{block}attention\.qkv\.", rf"{layer}.\1.attention.attention.{{query,key,value}}."),
        (rf"{block}attention\.out\.", rf"{layer}.\1.attention.output.dense."),
        (rf"{block}mlp\.fc1\.", rf"{layer}.\1.intermediate.dense."),
        (rf"{block}mlp\.fc2\.", rf"{layer}.\1.output.dense."),
    )
    return renamed(our_names(config), (*names, *IN_MEMORY) if in_memory else names, special=special)


def _register() -> Layout:
    """A distillation token that no head reads is a register with its own position embedding."""

    def read(theirs: list[torch.Tensor]) -> list[torch.Tensor]:
        token, positions = theirs
        return [token + positions[:, 1:2], torch.cat([positions[:, :1], positions[:, 2:]], dim=1)]

    def write(ours: list[torch.Tensor]) -> list[torch.Tensor]:
        register, positions = ours
        none = torch.zeros_like(register)
        return [register, torch.cat([positions[:, :1], none, positions[:, 1:]], dim=1)]

    return Layout(read, write)


def read(stored: Stored) -> Reading:
    """Read a ViT or DeiT file."""
    shapes = stored.shapes
    transformers.check(stored, {"model_type": MODEL_TYPES})
    base = stored.base(BASES, "embeddings.cls_token")
    if base is None:
        raise ValueError("it has no class token")
    pooler = shapes.get(f"{base}pooler.dense.weight", (None,))[0]
    read_token = pooler is not None and stored.given.get("representation_size", pooler) is None
    if pooler is not None:
        transformers.check(stored, {"pooler_act": "tanh"})
    in_memory = f"{base}layers.0.attention.q_proj.weight" in shapes
    layer = f"{base}layers" if in_memory else f"{base}encoder.layer"
    token = f"{base}embeddings.distillation_token"
    with_teacher = "distillation_classifier.weight" in shapes
    token_alone = token in shapes and not with_teacher
    own = token in shapes or stored.config.get("model_type") == "vit_mae"
    dim, patch = stored.patches(f"{base}embeddings.patch_embeddings.projection.weight")
    position = f"{base}embeddings.position_embeddings"
    size, _ = stored.image(shapes[position][1] - (token in shapes), patch, others=1)
    mlp = f"{layer}.0.mlp.fc1.weight" if in_memory else f"{layer}.0.intermediate.dense.weight"
    query = f"{layer}.0.attention.{'q_proj' if in_memory else 'attention.query'}.bias"
    config = ViTConfig(
        image_size=size,
        patch_size=patch,
        dim=dim,
        depth=stored.count(rf"{re.escape(layer)}\.(\d+)\."),
        mlp_dim=shapes[mlp][0],
        num_heads=int(stored.config.get("num_attention_heads") or heads_of_width(dim)),
        num_classes=stored.classes("cls_classifier.weight" if with_teacher else "classifier.weight"),
        gelu=transformers.gelu_of(stored.config),
        representation_size=None if read_token else pooler,
        distilled=with_teacher,
        registers=int(token_alone),
        norm_eps=float(stored.config.get("layer_norm_eps", TRANSFORMERS_EPS)),
        qkv_bias=query in shapes,
        position_resize="bicubic" if own else "bilinear",
        initialization="deit" if own else "vit",
    )
    special = stored.ignored(MAE_DECODER, f"{base}embeddings.mask_token", *([f"{base}pooler."] if read_token else []))
    if token_alone:
        special.append(Rule(("registers", "position.embedding"), (token, position), _register()))
    rules = table(config, base, layer, in_memory=in_memory, special=special)
    usage = transformers.usage(stored, DEIT_IMAGES if own else VIT_IMAGES)
    both = {"representation_size": POOLER_NOTE} if pooler is not None and "classifier.weight" in shapes else {}
    return reading(stored, config, rules, usage, {**transformers.assumed(stored), **both})


def rules(config: ViTConfig) -> list[Rule]:
    """Return the rules for its files; those of DeiT's classifier with teacher where there is a distillation head."""
    base = "deit." if config.distilled else "vit."
    return table(config, base, f"{base}encoder.layer")


def describe(config: ViTConfig) -> dict[str, Any]:
    """Return a model's config.json."""
    kind = "DeiTForImageClassificationWithTeacher" if config.distilled else "ViTForImageClassification"
    return {
        "architectures": [kind],
        "model_type": "deit" if config.distilled else "vit",
        **transformers.vit_settings(config),
        "intermediate_size": config.mlp_dim,
        "hidden_act": transformers.ACTIVATIONS[config.gelu],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "qkv_bias": config.qkv_bias,
    }


def _matches(stored: Stored) -> bool:
    return stored.base(BASES, "embeddings.patch_embeddings.projection.weight") is not None


DIALECTS = (Dialect("transformers", "vit", _matches, read, rules, describe=describe),)

"""DINOv2, with and without registers, in its own files and in transformers (dinov2/models/vision_transformer.py).

timm's files have the names of its other Vision Transformers (vit_torch.py). Each source resizes the positions in its own way.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn import functional

from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Dialect, Reading, Stored, Usage, having, our_names, reading, square_side
from vitral.weights.layouts import FOLDED_TOKEN, Layout, Renames, Rule, renamed, zeros
from vitral.weights.names import transformers
from vitral.weights.names.timm import DEIT
from vitral.weights.names.vit_torch import DINOV2_LAYER_SCALE, heads_of_width, table, torch_config

USED_SIZE = (224, 224)  # at which DINOv2 is evaluated (dinov2/data/transforms.py)
PUBLISHED_SIZE = (518, 518)  # of its positions
TORCH_IMAGES = dataclasses.replace(DEIT, resize="crop")
TRANSFORMERS_IMAGES = dataclasses.replace(TORCH_IMAGES, resampler="torch")

OWN: Renames = (
    (r"^reg_token$", "register_tokens"),
    (r"\.mlp\.fc1\.", ".mlp.w12."),
    (r"\.mlp\.fc2\.", ".mlp.w3."),
)


def _folded(*theirs: str) -> Rule:
    return Rule(("class_token", "position.embedding"), theirs, FOLDED_TOKEN)


def _own_table(config: ViTConfig) -> list[Rule]:
    special = [Rule((), ("mask_token",), zeros(1, config.dim))]
    special += [_folded("cls_token", "pos_embed")] if config.registers else []
    return table(config, OWN if config.mlp == "swiglu" else OWN[:1], special)


def read_own(stored: Stored) -> Reading:
    """Read one of its own files: without a head, positions of 518 pixels."""
    shapes = dict(stored.shapes)
    registers = shapes.get("register_tokens", (1, 0))[1]
    gated = "blocks.0.mlp.w12.weight" in shapes
    for ours, theirs in (("fc1", "w12"), ("fc2", "w3")) if gated else ():
        shapes[f"blocks.0.mlp.{ours}.weight"] = shapes[f"blocks.0.mlp.{theirs}.weight"]
    config = dataclasses.replace(
        torch_config(dataclasses.replace(stored, shapes=shapes)),
        layer_scale=DINOV2_LAYER_SCALE,
        registers=registers,
        class_position=not registers,
        position_resize="bicubic-antialias" if registers else "bicubic-dinov2",
        initialization="deit",
    )
    content = reading(stored, config, _own_table(config), Usage(TORCH_IMAGES))
    return dataclasses.replace(content, image_size=USED_SIZE)


def _transformers_table(
    config: ViTConfig, base: str, *, in_memory: bool = False, special: Sequence[Rule] = ()
) -> list[Rule]:
    if in_memory:
        mixed, out, gates, last = "{q,k,v}_proj", "o_proj", "{gate_proj,up_proj}", "down_proj"
    else:
        mixed, out, gates, last = "attention.{query,key,value}", "output.dense", "weights_in", "weights_out"
    gated = ((r"\.mlp\.fc1\.", f".mlp.{gates}."), (r"\.mlp\.fc2\.", f".mlp.{last}."))
    names: Renames = (
        (r"^patch_embedding\.", f"{base}embeddings.patch_embeddings.projection."),
        (r"^class_token$", f"{base}embeddings.cls_token"),
        (r"^registers$", f"{base}embeddings.register_tokens"),
        (r"^position\.embedding$", f"{base}embeddings.position_embeddings"),
        (r"^norm\.", f"{base}layernorm."),
        (r"^head\.", "classifier."),
        (r"^encoder\.", f"{base}encoder.layer."),
        (r"\.attention\.qkv\.", f".attention.{mixed}."),
        (r"\.attention\.out\.", f".attention.{out}."),
        (r"\.scale([12])\.scale$", r".layer_scale\1.lambda1"),
        *(gated if config.mlp == "swiglu" else ()),
    )
    if config.registers:
        special = [*special, _folded(f"{base}embeddings.cls_token", f"{base}embeddings.position_embeddings")]
    return renamed(our_names(config), names, special=special)


def read_transformers(stored: Stored) -> Reading:
    """Read a Dinov2 or Dinov2WithRegisters file; its classifier reads class token and mean, one after the other."""
    shapes = stored.shapes
    base = next(base for base in BASES if f"{base}embeddings.cls_token" in shapes)
    layer = f"{base}encoder.layer"
    in_memory = f"{layer}.0.attention.q_proj.weight" in shapes
    dim, patch = stored.patches(f"{base}embeddings.patch_embeddings.projection.weight")
    # transformers takes the table for a square one whatever the images, and interpolates it at every other size than that.
    side = square_side(shapes[f"{base}embeddings.position_embeddings"][1] - 1)
    size = side * patch[0], side * patch[1]
    registers = shapes.get(f"{base}embeddings.register_tokens", (1, 0))[1]
    last = {"down_proj", "weights_out"} & {name.split(".")[-2] for name in shapes}
    outer = f"{layer}.0.mlp.{last.pop() if last else 'fc2'}.weight"
    query = f"{layer}.0.attention.{'q_proj' if in_memory else 'attention.query'}.bias"
    config = ViTConfig(
        image_size=size,
        patch_size=patch,
        dim=dim,
        depth=stored.count(rf"{re.escape(layer)}\.(\d+)\."),
        mlp_dim=shapes[outer][1],
        mlp="plain" if outer.endswith("fc2.weight") else "swiglu",
        num_heads=int(stored.config.get("num_attention_heads") or heads_of_width(dim)),
        num_classes=stored.classes("classifier.weight"),
        pooling="token-gap" if "classifier.weight" in shapes else "token",
        gelu=transformers.gelu_of(stored.config),
        registers=registers,
        layer_scale=DINOV2_LAYER_SCALE,
        norm_eps=float(stored.config.get("layer_norm_eps", 1e-6)),
        qkv_bias=query in shapes,
        class_position=not registers,
        position_resize="bicubic-antialias" if registers else "bicubic",
        initialization="deit",
    )
    mask = f"{base}embeddings.mask_token"
    special = [Rule((), (mask,), zeros(1, dim))] if mask in shapes else []
    rules = _transformers_table(config, base, in_memory=in_memory, special=special)
    usage = transformers.usage(stored, TRANSFORMERS_IMAGES)
    content = reading(stored, config, rules, usage, transformers.assumed(stored))
    own = stored.preprocessor or size == PUBLISHED_SIZE or not stored.image_size
    return dataclasses.replace(content, image_size=usage.preprocessing.image_size if own else stored.image_size)


def _transformers_rules(config: ViTConfig) -> list[Rule]:
    base = "dinov2_with_registers." if config.registers else "dinov2."
    special = [Rule((), (f"{base}embeddings.mask_token",), zeros(1, config.dim))]
    if config.pooling == "token":
        special.append(Rule(("head.weight",), ("classifier.weight",), _class_token_alone(config.dim)))
    return _transformers_table(config, base, special=special)


def _class_token_alone(dim: int) -> Layout:
    """A head on the class token, for a classifier that reads the mean over the patches too: with weights of zero."""
    return Layout(
        lambda theirs: [theirs[0][:, :dim].contiguous()],
        lambda ours: [functional.pad(ours[0], (0, dim))],
    )


def describe(config: ViTConfig) -> dict[str, Any]:
    """Return a model's config.json."""
    kind = "Dinov2WithRegisters" if config.registers else "Dinov2"
    extra: Mapping[str, Any] = {"num_register_tokens": config.registers} if config.registers else {}
    ratio = config.mlp_dim / config.dim * (1.5 if config.mlp == "swiglu" else 1)
    return {
        "architectures": [f"{kind}ForImageClassification"],
        "model_type": "dinov2_with_registers" if config.registers else "dinov2",
        **transformers.vit_settings(config),
        "mlp_ratio": round(ratio),
        "use_swiglu_ffn": config.mlp == "swiglu",
        "hidden_act": transformers.ACTIVATIONS[config.gelu],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "drop_path_rate": config.stochastic_depth,
        "qkv_bias": config.qkv_bias,
        **extra,
    }


BASES = ("dinov2.", "dinov2_with_registers.", "")


def _base(stored: Stored) -> str | None:
    return stored.base(BASES, "encoder.layer.0.layer_scale1.lambda1", "embeddings.position_embeddings")


DIALECTS = (
    Dialect(
        "original",
        "vit",
        having("mask_token", "pos_embed", "blocks.0.ls1.gamma", "blocks.0.attn.qkv.weight"),
        read_own,
        _own_table,
        ("num_heads", "norm_eps"),
    ),
    Dialect(
        "transformers",
        "vit",
        lambda stored: _base(stored) is not None,
        read_transformers,
        _transformers_rules,
        folded=("pooling",),
        describe=describe,
    ),
)

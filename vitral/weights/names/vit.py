"""The Vision Transformer in Flax: the original's files, big_vision's and V-MoE's (vit_jax/checkpoint.py; models/vit.py)."""

from dataclasses import dataclass, fields
from typing import Any

from vitral.images.preprocessing import ORIGINAL as ORIGINAL_PREPROCESSING
from vitral.models.experts import ExpertsConfig
from vitral.models.resnet import StemConfig
from vitral.models.vit_config import ViTConfig
from vitral.weights.dialect import Dialect, Reading, Shapes, Stored, Usage, cannot_hold, reading
from vitral.weights.layouts import (
    BROADCAST_NORM,
    CLASS_ROW,
    CONVOLUTION,
    SAME,
    TRANSPOSED,
    Layout,
    Rule,
    attention_biases,
    attention_kernels,
    attention_output,
    rule,
)

DEFAULT_SIZE = 224  # pixels, for a file whose fixed position embedding does not tell the size


@dataclass(frozen=True)
class Generation:
    """The names of the parts: at first Flax numbered a block's parts consecutively, later by kind; V-MoE has its own."""

    encoder: str
    norm1: str
    attention: str
    norm2: str
    mlp: str


ORIGINAL = Generation("Transformer", "LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
LINEN = Generation("Transformer", "LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
VMOE = Generation("Encoder", "LayerNorm_0", "SelfAttention", "LayerNorm_1", "Mlp")

POSITION = "{encoder}/posembed_input/pos_embedding"
POSITIONS = (POSITION, "{encoder}/pos_embedding", "pos_embedding")


@dataclass(frozen=True)
class Spelling:
    """How one file spells its model.

    Attributes:
        generation: the names of a block's parts.
        position: the position embedding's name; None for a fixed one.
        class_row: whether that has a row for the class token.
        norm: the layout of the stem's norms.
    """

    generation: Generation
    position: str | None
    class_row: bool = True
    norm: Layout = BROADCAST_NORM


def table(config: ViTConfig, spelling: Spelling) -> list[Rule]:
    """Return the rules for one model as one file spells it."""
    encoder = spelling.generation.encoder
    rules = [
        rule("patch_embedding.weight", "embedding/kernel", CONVOLUTION),
        rule("patch_embedding.bias", "embedding/bias"),
        *_norm("norm", f"{encoder}/encoder_norm"),
        *(_stem(config.stem, spelling.norm) if isinstance(config.stem, StemConfig) else []),
    ]
    for index in range(config.depth):
        rules += _block(f"encoder.{index}", f"{encoder}/encoderblock_{index}", config, spelling.generation, index)
    if spelling.position and config.pooling == "token" and config.class_position and not spelling.class_row:
        rules.append(Rule(("class_token", "position.embedding"), ("cls", spelling.position), CLASS_ROW))
    else:
        rules += [rule("class_token", "cls")] if config.pooling == "token" else []
        rules += [rule("position.embedding", spelling.position)] if spelling.position else []
    if config.pooling == "map":
        rules += _map_head(config.num_heads)
    if config.representation_size:
        rules += _linear("pre_logits", "pre_logits")
    return rules + _linear("head", "head")


def _block(ours: str, theirs: str, config: ViTConfig, generation: Generation, index: int) -> list[Rule]:
    attention = f"{theirs}/{generation.attention}"
    parts = [f"{attention}/{part}" for part in ("query", "key", "value")]
    heads = config.num_heads
    rules = [
        *_norm(f"{ours}.norm1", f"{theirs}/{generation.norm1}"),
        Rule((f"{ours}.attention.qkv.weight",), tuple(f"{part}/kernel" for part in parts), attention_kernels(heads)),
        Rule((f"{ours}.attention.qkv.bias",), tuple(f"{part}/bias" for part in parts), attention_biases(heads, 3)),
        rule(f"{ours}.attention.out.weight", f"{attention}/out/kernel", attention_output(heads)),
        rule(f"{ours}.attention.out.bias", f"{attention}/out/bias"),
        *_norm(f"{ours}.norm2", f"{theirs}/{generation.norm2}"),
    ]
    if config.experts and index in config.experts.blocks:
        rules.append(rule(f"{ours}.mlp.router.weight", f"{theirs}/Moe/Router/dense/kernel", TRANSPOSED))
        for layer, dense in (("fc1", "Dense_0"), ("fc2", "Dense_1")):
            rules.append(rule(f"{ours}.mlp.{layer}.weight", f"{theirs}/Moe/Mlp/{dense}/kernel"))
            rules.append(rule(f"{ours}.mlp.{layer}.bias", f"{theirs}/Moe/Mlp/{dense}/bias"))
        return rules
    return [
        *rules,
        *_linear(f"{ours}.mlp.fc1", f"{theirs}/{generation.mlp}/Dense_0"),
        *_linear(f"{ours}.mlp.fc2", f"{theirs}/{generation.mlp}/Dense_1"),
    ]


def _map_head(heads: int) -> list[Rule]:
    theirs = "MAPHead_0"
    attention = f"{theirs}/{LINEN.attention}"
    rules = [rule("map_head.probe", f"{theirs}/probe")]
    for part in ("query", "key", "value"):
        ours = f"map_head.attention.{part}"
        rules.append(rule(f"{ours}.weight", f"{attention}/{part}/kernel", attention_kernels(heads)))
        rules.append(rule(f"{ours}.bias", f"{attention}/{part}/bias", attention_biases(heads, 1)))
    return [
        *rules,
        rule("map_head.attention.out.weight", f"{attention}/out/kernel", attention_output(heads)),
        rule("map_head.attention.out.bias", f"{attention}/out/bias"),
        *_norm("map_head.norm", f"{theirs}/LayerNorm_0"),
        *_linear("map_head.mlp.fc1", f"{theirs}/{LINEN.mlp}/Dense_0"),
        *_linear("map_head.mlp.fc2", f"{theirs}/{LINEN.mlp}/Dense_1"),
    ]


def _stem(config: StemConfig, norm: Layout) -> list[Rule]:
    rules = [rule("stem.root.weight", "conv_root/kernel", CONVOLUTION), *_norm("stem.root_norm", "gn_root", norm)]
    for stage, units in enumerate(config.stages):
        for unit in range(units):
            ours, theirs = f"stem.stages.{stage}.{unit}", f"block{stage + 1}/unit{unit + 1}"
            for part in (1, 2, 3):
                rules.append(rule(f"{ours}.conv{part}.weight", f"{theirs}/conv{part}/kernel", CONVOLUTION))
                rules += _norm(f"{ours}.norm{part}", f"{theirs}/gn{part}", norm)
            if unit == 0:
                rules.append(rule(f"{ours}.projection.weight", f"{theirs}/conv_proj/kernel", CONVOLUTION))
                rules += _norm(f"{ours}.projection_norm", f"{theirs}/gn_proj", norm)
    return rules


def _norm(ours: str, theirs: str, layout: Layout = SAME) -> list[Rule]:
    return [rule(f"{ours}.weight", f"{theirs}/scale", layout), rule(f"{ours}.bias", f"{theirs}/bias", layout)]


def _linear(ours: str, theirs: str) -> list[Rule]:
    return [rule(f"{ours}.weight", f"{theirs}/kernel", TRANSPOSED), rule(f"{ours}.bias", f"{theirs}/bias")]


def read(stored: Stored) -> Reading:
    """Read a file of any generation."""
    shapes = stored.shapes
    generation = _generation(shapes)
    positions = (name.format(encoder=generation.encoder) for name in POSITIONS)
    position = next((name for name in positions if name in shapes), None)
    config, class_row = _config(stored, generation, position)
    norm = BROADCAST_NORM if len(shapes.get("gn_root/scale", ())) == 4 else SAME
    notes = []
    if position is None:
        notes.append(
            "The file has no position embedding, so the fixed sin-cos one is used, for 224 pixels until resized."
        )
    if config.experts:
        notes.append(
            f"A file of experts does not say how tokens are routed; assumed: {config.experts.num_selected} experts per token, "
            f"capacity {config.experts.capacity_factor}, groups of {config.experts.group_images} images."
        )
    rules = table(config, Spelling(generation, position, class_row, norm))
    return reading(stored, config, rules, Usage(ORIGINAL_PREPROCESSING, notes=tuple(notes)))


def _generation(shapes: Shapes) -> Generation:
    if "Encoder/encoder_norm/scale" in shapes:
        return VMOE
    return ORIGINAL if f"Transformer/encoderblock_0/{ORIGINAL.mlp}/Dense_0/kernel" in shapes else LINEN


def _config(stored: Stored, generation: Generation, position: str | None) -> tuple[ViTConfig, bool]:
    shapes = stored.shapes
    patch_height, patch_width, channels, dim = shapes["embedding/kernel"]
    stem = _stem_config(stored)
    if channels != (stem.channels if stem else 3):
        raise ValueError(f"its patches have {channels} channels")
    unit = stem.stride if stem else 1
    block = f"{generation.encoder}/encoderblock_"
    _, heads, _ = shapes[f"{block}0/{generation.attention}/query/kernel"]
    depth = len({name.split("/")[1] for name in shapes if name.startswith(block)})
    pooling: Any = "token" if "cls" in shapes else "map" if "MAPHead_0/probe" in shapes else "gap"
    patch = (patch_height * unit, patch_width * unit)
    size, class_row = tuple(max(1, DEFAULT_SIZE // side) * side for side in patch), False
    if position is not None:
        size, rows = stored.image(shapes[position][1], patch, others=int(pooling == "token"))
        class_row = rows > 0
    elif stored.image_size:
        size = stored.image_size
    routers = [f"{block}{index}/Moe/Router/dense/kernel" for index in range(depth)]
    experts = tuple(index for index, name in enumerate(routers) if name in shapes)
    dense = next((index for index in range(depth) if index not in experts), None)
    if dense is not None:
        mlp_dim = shapes[f"{block}{dense}/{generation.mlp}/Dense_0/kernel"][1]
    else:
        mlp_dim = shapes[f"{block}0/Moe/Mlp/Dense_0/kernel"][2]
    config = ViTConfig(
        image_size=size,  # type: ignore[arg-type]
        patch_size=(patch_height, patch_width),
        dim=dim,
        depth=depth,
        mlp_dim=mlp_dim,
        num_heads=heads,
        num_classes=stored.classes("head/kernel", 1),
        position="sincos-2d" if position is None else "learned",
        pooling=pooling,
        representation_size=shapes.get("pre_logits/kernel", (0, None))[1],
        stem=stem,
        experts=ExpertsConfig(blocks=experts, num_experts=shapes[routers[experts[0]]][1]) if experts else None,
    )
    return config, class_row


def _stem_config(stored: Stored) -> StemConfig | None:
    if "conv_root/kernel" not in stored.shapes:
        return None
    width_factor = stored.shapes["conv_root/kernel"][3] // 64
    return StemConfig(stages=stored.stages(r"block{}/(unit\d+)/", first=1), width_factor=width_factor)


def original_rules(config: ViTConfig) -> list[Rule]:
    """Return the rules for the original's files, first generation, or V-MoE's where there are experts.

    Raises:
        WeightsError: it has a part that they have no name for.
    """
    generation = VMOE if config.experts else ORIGINAL
    if config.pooling == "map" or config.position == "sincos-2d":
        raise cannot_hold("original", "attention pooling or a sin-cos position embedding")
    return table(config, Spelling(generation, POSITION.format(encoder=generation.encoder)))


def big_vision_rules(config: ViTConfig) -> list[Rule]:
    """Return the rules for big_vision's files, whose position embedding has no row for the class token.

    Raises:
        WeightsError: it has a part that they have no name for.
    """
    if config.experts or config.stem:
        raise cannot_hold("big_vision", "a hybrid or experts")
    position = None if config.position == "sincos-2d" else "pos_embedding"
    return table(config, Spelling(LINEN, position, class_row=False))


def _matches(stored: Stored) -> bool:
    norms = {"Transformer/encoder_norm/scale", "Encoder/encoder_norm/scale"}
    return "embedding/kernel" in stored.shapes and not norms.isdisjoint(stored.shapes)


ROUTING = tuple(
    f"experts.{field.name}" for field in fields(ExpertsConfig) if field.name not in ("blocks", "num_experts")
)
EXTERNAL = ("norm_eps", "stem.norm_eps", "stem.weight_eps", "stem.weight_eps_inside", *ROUTING)
# One reader understands every generation; the two formats differ in writing.
DIALECTS = (
    Dialect("original", "vit", _matches, read, original_rules, EXTERNAL, numpy=True),
    Dialect("big_vision", "vit", _matches, read, big_vision_rules, EXTERNAL, ("class_position",), numpy=True),
)

"""T2T-ViT's tensors in its own files (yitu-opensource/T2T-ViT, utils.py)."""

import dataclasses

from vitral.models.t2t import STRIDE, T2TConfig
from vitral.weights.dialect import Dialect, Reading, Stored, Usage, having, our_names, reading
from vitral.weights.layouts import Renames, Rule, from_one, renamed
from vitral.weights.names.timm import CROP_BICUBIC, DEIT

HEAD_DIM = 64
DEFAULT_TOKENS = 197  # of 224 pixels
IMAGES = dataclasses.replace(DEIT, crop_fraction=CROP_BICUBIC.crop_fraction)

RENAMES: Renames = (
    (r"^token_layers\.(\d)\.", from_one("tokens_to_token.attention{}.")),
    (r"^project\.", "tokens_to_token.project."),
    (r"^class_token$", "cls_token"),
    (r"^position$", "pos_embed"),
    (r"^backbone\.", "blocks."),
    (r"\.attention\.qkv\.", ".attn.qkv."),
    (r"\.attention\.out\.", ".attn.proj."),
)
PERFORMER: Renames = (
    (r"(attention[12])\.features$", r"\1.w"),
    (r"(attention[12])\.out\.", r"\1.proj."),
    (r"(attention[12])\.mlp\.fc1\.", r"\1.mlp.0."),
    (r"(attention[12])\.mlp\.fc2\.", r"\1.mlp.2."),
)
TRANSFORMER: Renames = (
    (r"(attention[12])\.qkv\.", r"\1.attn.qkv."),
    (r"(attention[12])\.out\.", r"\1.attn.proj."),
)


def rules(config: T2TConfig) -> list[Rule]:
    """Return the rules for one model."""
    kind = PERFORMER if config.tokens == "performer" else TRANSFORMER
    return renamed(our_names(config), (*RENAMES, *kind))


def read(stored: Stored) -> Reading:
    """Read one of its files; a fixed position embedding that it lacks is computed."""
    shapes = stored.shapes
    dim = shapes["cls_token"][2]
    tokens = shapes["pos_embed"][1] if "pos_embed" in shapes else DEFAULT_TOKENS
    size, _ = stored.image(tokens - 1, (STRIDE, STRIDE))
    config = T2TConfig(
        image_size=size,
        tokens="performer" if "tokens_to_token.attention1.kqv.weight" in shapes else "transformer",
        dim=dim,
        depth=stored.count(r"blocks\.(\d+)\."),
        mlp_dim=shapes["blocks.0.mlp.fc1.weight"][0],
        num_heads=max(1, dim // HEAD_DIM),
        num_classes=stored.classes("head.weight"),
    )
    # The fixed table may be left out; the model computes it.
    present = [rule for rule in rules(config) if rule.ours[0] != "position" or "pos_embed" in shapes]
    return reading(stored, config, present, Usage(IMAGES))


DIALECTS = (Dialect("original", "t2t", having("tokens_to_token.project.weight"), read, rules, ("num_heads",)),)

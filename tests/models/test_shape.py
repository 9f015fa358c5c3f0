"""A Vision Transformer's depth, width, MLP width and heads, each alone and at once: the paper's appendix D.2."""

import pytest

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.catalog import list_models, variant
from vitral.models.families import build, configure, count_macs, count_parameters, describe, encoder_changes
from vitral.models.vit_config import ViTConfig

# Said, and what it makes of vit-s16: blocks, width, MLP width and heads.
SHAPES: dict[str, tuple[dict[str, int], tuple[int, int, int, int]]] = {
    "nothing": ({}, (12, 384, 1536, 6)),
    "depth": ({"depth": 3}, (3, 384, 1536, 6)),
    "width": ({"width": 128}, (12, 128, 1536, 2)),  # heads stay 64 wide
    "MLP": ({"mlp_width": 96}, (12, 384, 96, 6)),
    "heads": ({"heads": 4}, (12, 384, 1536, 4)),
    "all": ({"depth": 2, "width": 96, "mlp_width": 200, "heads": 3}, (2, 96, 200, 3)),
}


def parameters(patch: int, size: int, classes: int, depth: int, width: int, mlp: int) -> int:
    """Count the parameters of the paper's network (equations 1 to 4), layer by layer."""
    patches = (size // patch) ** 2
    embedding = 3 * patch**2 * width + width + width + (patches + 1) * width  # E, its bias, the class token, positions
    norms = 2 * 2 * width
    attention = 3 * (width**2 + width) + width**2 + width
    dense = width * mlp + mlp + mlp * width + width
    return embedding + depth * (norms + attention + dense) + 2 * width + width * classes + classes


def macs(patch: int, size: int, classes: int, depth: int, width: int, mlp: int) -> int:
    """Count the multiply-accumulates of an image's forward pass: patches, QKV and out, the scores, the MLP, the head."""
    patches = (size // patch) ** 2
    tokens = patches + 1
    block = 4 * tokens * width**2 + 2 * tokens**2 * width + 2 * tokens * width * mlp
    return patches * 3 * patch**2 * width + depth * block + width * classes


@every_case("said", SHAPES)
@every_case("patch", [16, 8])
def test_shape_parameters_and_operations_are_the_formulas(said: str, patch: int) -> None:
    changes, (depth, width, mlp, heads) = SHAPES[said]
    config = configure("vit-s16", {"patch_size": patch, **encoder_changes("vit-s16", changes)})
    assert (config.depth, config.dim, config.mlp_dim, config.num_heads) == (depth, width, mlp, heads)
    assert count_parameters(build(config, seed=None)) == parameters(patch, 224, 1000, depth, width, mlp)
    assert count_macs(config) == macs(patch, 224, 1000, depth, width, mlp)


def test_a_shape_that_is_not_said_leaves_every_network_as_it_is() -> None:
    assert not any(encoder_changes(name, {}) for name in list_models())


@every_case("name", [name for name in list_models() if not isinstance(variant(name), ViTConfig)])
@every_case("key", ["depth", "width", "mlp_width", "heads"])
def test_other_networks_have_no_such_shape(name: str, key: str) -> None:
    with pytest.raises(ModelError, match=f"{name} has no '{key}' to set: .*Vision Transformer") as refused:
        encoder_changes(name, {key: 2})
    assert "\n" not in str(refused.value)


@every_case(
    ("said", "message"),
    [
        ({"width": 96}, "width 96 cannot be shared out to heads of a width of 64, as vit-s16 has them; set heads, too"),
        ({"width": 96, "heads": 5}, "width 96 cannot be shared out to 5 heads evenly"),
        ({"heads": 7}, "width 384 cannot be shared out to 7 heads evenly"),
        ({"depth": 1001}, "at most 1000 blocks"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(said: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        configure("vit-s16", encoder_changes("vit-s16", said))


@every_case("name", ["r50-vit-b16", "conv-vit-8", "deit3-s16", "eva02-s14", "siglip-b32"])
def test_the_encoder_of_a_hybrid_or_a_later_transformer_has_one(name: str) -> None:
    own = variant(name)
    config = configure(name, encoder_changes(name, {"depth": 2, "width": own.dim // own.num_heads, "mlp_width": 40}))
    assert (config.depth, config.num_heads, config.mlp_dim) == (2, 1, 40)
    assert len(build(config, seed=None).blocks()) == 2


def test_a_network_of_another_shape_is_called_by_it() -> None:
    def called(said: dict[str, int]) -> str:
        return describe(configure("vit-ti16", encoder_changes("vit-ti16", said)))

    assert called({"depth": 3}) == "vit-ti16 with depth 3"
    assert called({"width": 128, "heads": 2}) == "vit-ti16 with width 128 and heads 2"
    said = {"depth": 2, "width": 96, "mlp_width": 200, "heads": 6}
    assert called(said) == "ViT with patch_size 16x16, depth 2, width 96, mlp_width 200 and heads 6"

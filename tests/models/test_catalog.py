"""Names, parameter counts and multiply-accumulates against the published figures."""

import dataclasses

import pytest

from vitral.errors import ModelError
from vitral.models.catalog import (
    build,
    config_from_json,
    config_to_json,
    list_models,
    variant,
    variant_name,
)
from vitral.models.cost import count_macs, count_parameters

# vit_jax/models_test.py at 224 pixels and 1,000 classes; g and G derived from the same formula.
PARAMETERS = {
    "vit-ti16": 5_717_416,
    "vit-s16": 22_050_664,
    "vit-s32": 22_878_952,
    "vit-b8": 86_576_872,
    "vit-b16": 86_567_656,
    "vit-b32": 88_224_232,
    "vit-l16": 304_326_632,
    "vit-l32": 306_535_400,
    "vit-h14": 632_045_800,
    "vit-g14": 1_012_611_432,
    "vit-G14": 1_844_440_680,
    "vit-s16-gap": 22_049_896,
    "vit-s32-gap": 22_878_184,
    "vit-b16-gap": 86_566_120,
    "vit-b32-gap": 88_222_696,
}


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameter_counts(name: str, count: int) -> None:
    assert count_parameters(build(variant(name), seed=None)) == count


@pytest.mark.parametrize(
    ("name", "size", "count"),
    [("vit-b16", 384, 86_859_496), ("vit-l16", 384, 304_715_752), ("vit-ti16", 384, 5_790_376)],
)
def test_parameter_counts_at_384(name: str, size: int, count: int) -> None:
    config = dataclasses.replace(variant(name), image_size=(size, size))
    assert count_parameters(build(config, seed=None)) == count


def test_parameter_count_with_the_pre_training_head() -> None:
    config = dataclasses.replace(variant("vit-b16"), num_classes=21_843, representation_size=768)
    assert count_parameters(build(config, seed=None)) == 103_186_515


@pytest.mark.parametrize(
    ("name", "giga"),
    [
        ("vit-ti16", 1.25),
        ("vit-s16", 4.60),
        ("vit-b32", 4.41),
        ("vit-b16", 17.56),
        ("vit-l16", 61.55),
        ("vit-h14", 167.30),
    ],
)
def test_multiply_accumulates(name: str, giga: float) -> None:
    assert count_macs(variant(name)) / 1e9 == pytest.approx(giga, abs=0.01)


def test_the_whole_family_is_there() -> None:
    names = set(list_models())
    for size in ("ti", "s", "b", "l", "h", "g", "G"):
        for patch in (8, 14, 16, 32):
            assert {f"vit-{size}{patch}", f"vit-{size}{patch}-gap", f"vit-{size}{patch}-map"} <= names


@pytest.mark.parametrize("name", list_models())
def test_every_variant_is_built_without_memory_and_found_again(name: str) -> None:
    config = variant(name)
    assert build(config, seed=None).image_size == config.image_size
    assert config_from_json(config_to_json(config)) == config
    assert variant_name(dataclasses.replace(config, num_classes=3)) == name


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ModelError, match="Did you mean 'vit-b16'"):
        variant("vit_b_16")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "lenet"}, "family 'lenet'"),
        ({"dept": 3}, "unknown field 'dept'. Did you mean 'depth'"),
        ({"dim": "wide"}, "cannot be built"),
        ({"depth": -1}, "at least 1"),
    ],
)
def test_a_broken_description_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        config_from_json({**config_to_json(variant("vit-b16")), **change})


def test_a_description_with_a_field_missing_is_refused() -> None:
    values = config_to_json(variant("vit-b16"))
    del values["mlp_dim"]
    with pytest.raises(ModelError, match="lacks the field 'mlp_dim'"):
        config_from_json(values)

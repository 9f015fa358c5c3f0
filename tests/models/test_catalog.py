"""Names, parameter counts and multiply-accumulates against the published figures."""

import dataclasses
import functools
import re

import pytest

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.catalog import list_models, variant
from vitral.models.costs import COSTS, ModelCost
from vitral.models.families import (
    build,
    changed,
    config_from_json,
    config_to_json,
    configure,
    count_macs,
    count_parameters,
    describe,
    family,
    variant_name,
)
from vitral.models.foundations import WIDTHS
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import build_recipe, load_recipe, network_config
from vitral.weights.published import PUBLISHED, published_formats

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
    "r-vit-ti16": 6_337_704,
    "r26-vit-s32": 36_431_912,
    "r26-vit-b32": 101_383_976,
    "r50-vit-b16": 98_659_112,
    "r50-vit-l32": 328_994_856,
    # deit/models.py
    "deit-ti16": 5_717_416,
    "deit-s16": 22_050_664,
    "deit-b16": 86_567_656,
    "deit-b16-384": 86_859_496,
    "deit-ti16-distilled": 5_910_800,
    "deit-s16-distilled": 22_436_432,
    "deit-b16-distilled": 87_338_192,
    "deit-b16-distilled-384": 87_630_032,
    # deit/models_v2.py
    "deit3-s16": 22_059_496,
    "deit3-m16": 38_849_512,
    "deit3-b16": 86_585_320,
    "deit3-l16": 304_374_760,
    "deit3-h14": 632_126_440,
    # T2T-ViT: what is learned; the fixed tensors below
    "t2t-vit-7": 4_255_694,
    "t2t-vit-10": 5_834_702,
    "t2t-vit-12": 6_887_374,
    "t2t-vit-14": 21_465_806,
    "t2t-vit-19": 39_085_070,
    "t2t-vit-24": 64_000_974,
    "t2t-vit-t-14": 21_465_422,
    "t2t-vit-t-19": 39_084_686,
    "t2t-vit-t-24": 64_000_590,
    "cvt-13": 19_997_480,
    "cvt-21": 31_622_696,
    "cvt-w24": 277_196_392,
    # BiT at 1,000 classes
    "bit-r50x1": 25_549_352,
    "bit-r50x3": 217_319_080,
    "bit-r101x1": 44_541_480,
    "bit-r101x3": 387_934_888,
    "bit-r152x2": 236_335_208,
    "bit-r152x4": 936_533_224,
    # torchvision
    "resnet-10": 5_418_792,
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    # EfficientNet: derived from the published tables, and timm's count of L2
    "efficientnet-b0": 5_288_548,
    "efficientnet-b1": 7_794_184,
    "efficientnet-b2": 9_109_994,
    "efficientnet-b3": 12_233_232,
    "efficientnet-b4": 19_341_616,
    "efficientnet-b5": 30_389_784,
    "efficientnet-b6": 43_040_704,
    "efficientnet-b7": 66_347_960,
    "efficientnet-l2": 480_309_308,
    # Cream, TinyViT/README.md, in millions; and timm's counts
    "tinyvit-5m": 5_392_764,
    "tinyvit-11m": 10_996_972,
    "tinyvit-21m": 21_198_568,
    "tinyvit-21m-384": 21_230_488,
    "tinyvit-21m-512": 21_268_120,
    # tensorflow/tpu, efficientnet/lite/README.md, in millions; and timm's counts
    "efficientnet-lite0": 4_652_008,
    "efficientnet-lite1": 5_416_680,
    "efficientnet-lite2": 6_092_072,
    "efficientnet-lite3": 8_197_096,
    "efficientnet-lite4": 13_006_568,
}
# With the fixed sinusoids and the Performer's random features.
T2T_TOTALS = {
    "t2t-vit-7": 4_310_222,
    "t2t-vit-10": 5_889_230,
    "t2t-vit-12": 6_941_902,
    "t2t-vit-14": 21_545_550,
    "t2t-vit-19": 39_177_422,
    "t2t-vit-24": 64_105_934,
    "t2t-vit-t-14": 21_541_070,
    "t2t-vit-t-19": 39_172_942,
    "t2t-vit-t-24": 64_101_454,
}
# The body alone.
BIT_HEADLESS = {
    "bit-r50x1": 23_500_352,
    "bit-r50x2": 93_891_712,
    "bit-r50x3": 211_174_080,
    "bit-r101x1": 42_492_480,
    "bit-r101x3": 381_789_888,
    "bit-r152x1": 58_136_128,
    "bit-r152x2": 232_238_208,
    "bit-r152x4": 928_340_224,
    "bit-r200x3": 562_488_000,
}
# Millions as the paper prints them (tables 3 and 12), the size whose tables of relative attention give them, and without
# the hidden layer before the head.
COATNETS = {
    "coatnet-0": (25, 224, 24.45),
    "coatnet-1": (42, 224, 41.64),
    "coatnet-2": (75, 224, 73.64),
    "coatnet-3": (168, 384, 164.61),
    "coatnet-4": (275, 224, 273.06),
    "coatnet-5": (688, 384, 682.86),
    "coatnet-6": (1471, 224, 1462),
    "coatnet-7": (2442, 224, 2433),
}


@functools.cache
def parameters(name: str) -> int:
    return count_parameters(build(variant(name), seed=None))


@functools.cache
def macs(name: str) -> int:
    return count_macs(variant(name))


@every_case(("name", "count"), PARAMETERS.items())
def test_parameter_counts(name: str, count: int) -> None:
    assert parameters(name) == count


@every_case(
    ("name", "size", "count"),
    [("vit-b16", 384, 86_859_496), ("vit-l16", 384, 304_715_752), ("vit-ti16", 384, 5_790_376)],
)
def test_parameter_counts_at_384(name: str, size: int, count: int) -> None:
    config = dataclasses.replace(variant(name), image_size=(size, size))
    assert count_parameters(build(config, seed=None)) == count


@every_case(("name", "count"), T2T_TOTALS.items())
def test_fixed_tensors_are_kept_beside_the_parameters(name: str, count: int) -> None:
    assert sum(tensor.numel() for tensor in build(variant(name), seed=None).state_dict().values()) == count


@every_case(("name", "count"), BIT_HEADLESS.items())
def test_bits_body(name: str, count: int) -> None:
    model = build(variant(name), seed=None)
    assert count_parameters(model) - count_parameters(model.head) == count


def test_bits_pre_training_heads() -> None:
    for name, count in (("bit-r50x1", 68_256_659), ("bit-r152x4", 1_107_299_923)):
        assert count_parameters(build(dataclasses.replace(variant(name), num_classes=21_843), seed=None)) == count


@every_case(("name", "printed"), COATNETS.items())
def test_coatnets_parameters_round_to_the_papers(name: str, printed: tuple[int, int, float]) -> None:
    millions, size, without = printed
    config = dataclasses.replace(variant(name), image_size=(size, size))
    assert count_parameters(build(config, seed=None)) / 1e6 == pytest.approx(millions, abs=0.6)
    plain = dataclasses.replace(variant(name), representation_size=None)
    assert count_parameters(build(plain, seed=None)) / 1e6 == pytest.approx(without, rel=3e-4)


def test_coatnet_6_as_its_table_prints_it() -> None:
    config = variant("coatnet-6")
    config = dataclasses.replace(config, dims=(*config.dims[:-1], 2048), representation_size=2048)
    assert count_parameters(build(config, seed=None)) / 1e9 == pytest.approx(1.348, abs=0.001)


@every_case(
    ("name", "size", "count"),
    [("r-vit-ti16", 224, 10_360_403), ("r26-vit-s32", 224, 44_456_467), ("r50-vit-l32", 224, 350_358_931)],
)
def test_hybrids_with_the_21k_head(name: str, size: int, count: int) -> None:
    config = dataclasses.replace(variant(name), image_size=(size, size), num_classes=21_843)
    assert count_parameters(build(config, seed=None)) == count


def test_cvts_head_of_22k_and_t2t_at_384() -> None:
    assert (
        count_parameters(build(dataclasses.replace(variant("cvt-w24"), num_classes=21_841), seed=None)) == 298_558_417
    )
    large = dataclasses.replace(variant("t2t-vit-14"), image_size=(384, 384))
    assert sum(tensor.numel() for tensor in build(large, seed=None).state_dict().values()) == 21_691_470


def test_parameter_count_with_the_pre_training_head() -> None:
    config = dataclasses.replace(variant("vit-b16"), num_classes=21_843, representation_size=768)
    assert count_parameters(build(config, seed=None)) == 103_186_515


@every_case(
    ("name", "giga"),
    [
        ("vit-ti16", 1.25),
        ("vit-s16", 4.60),
        ("vit-b32", 4.41),
        ("vit-b16", 17.56),
        ("vit-l16", 61.55),
        ("vit-h14", 167.30),
        ("deit3-s16", 4.60),
        ("deit3-m16", 8.00),
        ("resnet-18", 1.81),
        ("resnet-50", 4.09),
        ("resnet-152", 11.51),
        ("efficientnet-b0", 0.39),
    ],
)
def test_multiply_accumulates(name: str, giga: float) -> None:
    assert macs(name) / 1e9 == pytest.approx(giga, abs=0.01)


@every_case(
    ("name", "giga"),
    [
        ("cvt-13", 4.53),
        ("cvt-21", 7.13),
        ("cvt-w24", 193.2),
        ("coatnet-0", 4.2),
        ("coatnet-1", 8.4),
        ("coatnet-3", 34.7),
        ("tinyvit-11m", 2.0),
        ("tinyvit-21m", 4.3),
        ("tinyvit-21m-384", 13.8),
        ("tinyvit-21m-512", 27.0),
    ],
)
def test_multiply_accumulates_are_near_the_papers(name: str, giga: float) -> None:
    assert macs(name) / 1e9 == pytest.approx(giga, rel=0.025)


@pytest.mark.long
def test_the_list_of_costs_is_what_is_counted() -> None:
    assert list(COSTS) == list_models()
    counted = {
        name: ModelCost(family(variant(name)), variant(name).image_size, parameters(name), macs(name)) for name in COSTS
    }
    assert counted == COSTS  # if not: python -m tests.models.write_costs


def test_what_is_published_is_in_the_catalog() -> None:
    assert {name for names in PUBLISHED.values() for name in names} <= set(list_models())
    assert published_formats("vit-b16") == ("original", "timm", "transformers")
    assert published_formats("coatnet-0") == ()


def test_every_row_is_published_or_asked_for() -> None:
    names = set(list_models())
    recipes = {load_recipe(name).model for name in list_recipes()} - {None}
    assert recipes <= names
    published = {name for listed in PUBLISHED.values() for name in listed}
    ours = {"vit-mu4", "vit-mu16", "vit-mu16-gap", "vit-nano4", "vit-nano16", "vit-micro8-gap", "vit-ti4"}
    ours |= {"conv-vit-8", "conv-vit-16", "conv-vit-ti8", "conv-vit-ti16"}
    papers = {"vit-g14", "vit-G14", "vit-b16-map"}  # Scaling ViT's table 2 and SigLIP's backbone; no weights of theirs
    papers |= {"r26-vit-b32", "r50-vit-b32", "r50-vit-l16"}  # vit_jax/configs/models.py
    tables = ("bit-r", "vmoe-", "coatnet-", "efficientnet-", "resnet-", "t2t-vit-", "cvt-", "deit")
    left = names - recipes - published - ours - papers
    assert {name for name in left if not name.startswith(tables)} == {
        "vit-s16-map",  # golden, of big_vision
        "pixels-16",  # what every network has to beat
    }


def test_the_families_are_whole() -> None:
    names = set(list_models())
    assert {
        f"bit-r{size}" for size in ["50x1", "50x2", "50x3", "101x1", "101x3", "152x1", "152x2", "152x4", "200x3"]
    } <= names
    assert {f"vmoe-{size}{last}" for size in ("s32", "b32", "b16", "l16", "h14") for last in ("", "-last2")} <= names


@every_case("width", sorted(WIDTHS))
@every_case("patch", [4, 8, 14, 16, 32])
@every_case("pooling", ["token", "gap", "map"])
def test_what_is_not_listed_says_how_it_is_made(width: str, patch: int, pooling: str) -> None:
    name = f"vit-{width}{patch}" + ("" if pooling == "token" else f"-{pooling}")
    if name in list_models():
        return
    with pytest.raises(ModelError, match=rf"no model '{name}'\. It is 'vit-{width}") as refused:
        variant(name)
    said = re.search(r"It is '(.+?)' with (.+?):", str(refused.value))
    assert said is not None
    settings = dict(pair.split("=") for pair in said[2].split(" and "))
    config = configure(said[1], {key: int(value) if value.isdigit() else value for key, value in settings.items()})
    native = 32 if patch == 4 else 224
    assert (config.patch_size, config.pooling, config.image_size) == ((patch, patch), pooling, (native, native))
    shape = (config.dim, config.depth, config.mlp_dim, config.num_heads)
    assert shape == dataclasses.astuple(WIDTHS[width])
    assert (config.initialization == "vit") == (pooling == "token") or width == "micro"
    recipe = build_recipe({"model": said[1], **settings}, "test")
    assert dataclasses.replace(network_config(recipe, 1000), head_bias=config.head_bias) == config


def test_a_network_near_a_variant_is_called_by_it() -> None:
    assert describe(configure("vit-l16", {"patch_size": 14, "pooling": "gap"})) == (
        "vit-l16 with patch_size 14x14 and pooling gap"
    )
    assert describe(configure("vit-b16", {"image_size": 384, "num_classes": 3})) == "vit-b16"
    assert describe(configure("vit-b16", {"dim": 96, "depth": 3, "num_heads": 3})) == (
        "ViT with patch_size 16x16, depth 3, width 96, mlp_width 3072 and heads 3"
    )
    assert describe(configure("bit-r50x1", {"width_factor": 7})) == "bit-r50x1 with width_factor 7"


@pytest.mark.long
@every_case("name", list_models())
def test_every_variant_is_built_without_memory_and_found_again(name: str) -> None:
    config = variant(name)
    assert build(config, seed=None).image_size == config.image_size
    assert config_from_json(config_to_json(config)) == config
    assert variant_name(dataclasses.replace(config, num_classes=3)) == name


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ModelError, match="Did you mean 'vit-b16'"):
        variant("vit_b_16")


@every_case(
    ("change", "message"),
    [
        ({"family": "lenet"}, "family 'lenet'"),
        ({"dept": 3}, "unknown field 'dept'. Did you mean 'depth'"),
        ({"dim": "wide"}, "'dim' cannot be 'wide'"),
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


def test_a_description_of_an_earlier_version_is_read() -> None:
    values = config_to_json(variant("vit-b16"))
    for later in ("stem", "distilled", "experts", "norm_eps", "qkv_bias", "position_resize"):
        del values[later]
    assert config_from_json(values) == variant("vit-b16")


def test_fields_are_changed_by_name_and_parts_by_theirs() -> None:
    config = changed(variant("vmoe-b16"), {"num_heads": 6, "experts": {"capacity_factor": 4.0}})
    assert (config.num_heads, config.experts.capacity_factor, config.experts.num_experts) == (6, 4.0, 32)
    with pytest.raises(ModelError, match="'experts' has no setting 'capacity'. Did you mean 'capacity_factor'"):
        changed(variant("vmoe-b16"), {"experts": {"capacity": 4.0}})
    with pytest.raises(ModelError, match="BiT has no setting 'num_heads'"):
        changed(variant("bit-r50x1"), {"num_heads": 6})
    with pytest.raises(ModelError, match="cannot be built"):
        changed(variant("vit-b16"), {"dim": "wide"})


# What the authors publish, in millions without a head (dinov2's model card; the smallest as the file counts it).
STARTS = {
    "dinov2-s14": (22.06, 0.005),
    "dinov2-b14": (86.6, 0.05),
    "dinov2-l14": (304.4, 0.05),
    "dinov2-g14": (1136.5, 0.05),
    "dinov3-s16": (21.59, 0.02),
    "dinov3-s16-plus": (28.7, 0.05),
    "dinov3-b16": (85.7, 0.1),
    "dinov3-l16": (303, 3),
    "dinov3-h16-plus": (840, 2),
    "dinov3-7b16": (6716, 2),
    # 0.2 M of a head are in the authors' smallest
    "eva02-ti14": (5.76 - 0.193, 0.01),
    "eva02-s14": (22.13 - 0.385, 0.01),
    "eva02-b14": (87.12 - 0.769, 0.01),
    "eva02-l14": (305.1 - 1.025, 0.05),
    # without the projection: 512, 512, 768 and 1024 wide
    "clip-b32": (87.849216 - 768 * 512e-6, 1e-6),
    "clip-b16": (86.192640 - 768 * 512e-6, 1e-6),
    "clip-l14": (303.966208 - 1024 * 768e-6, 1e-6),
    "openclip-h14": (632.076800 - 1280 * 1024e-6, 1e-6),
    "siglip-b32": (94.55, 0.005),
    "siglip-so400m14": (427.68, 0.005),
}


@every_case(("name", "published"), STARTS.items())
def test_starts_have_the_published_number_of_parameters(name: str, published: tuple[float, float]) -> None:
    model = build(variant(name), seed=None)
    millions, tolerance = published
    assert (count_parameters(model) - count_parameters(model.head)) / 1e6 == pytest.approx(millions, abs=tolerance)

"""Every named variant as one row."""

import dataclasses
import re
from typing import Any, Literal, cast

from vitral.advice import function
from vitral.errors import ModelError, did_you_mean
from vitral.models.bit import BiTConfig
from vitral.models.coatnet import CoAtNetConfig, Kind
from vitral.models.convolution import WhitenedStemConfig
from vitral.models.cvt import CvTConfig
from vitral.models.efficientnet import EfficientNetConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.foundations import STARTS, WIDTHS, Width
from vitral.models.model import ModelConfig
from vitral.models.pixels import PixelsConfig
from vitral.models.position import PositionKind
from vitral.models.resnet import ResNetConfig, StemConfig
from vitral.models.rf_detr import RFDetrConfig
from vitral.models.t2t import T2TConfig
from vitral.models.tinyvit import TinyViTConfig
from vitral.models.vit_config import Pooling, ViTConfig, with_pooling

# Width, then patch and pooling of what is published or has a recipe; others are a variant with settings changed.
# vit_jax/configs/models.py; gap: its GSAM models; map: Scaling ViT (g, G), big_vision (S, B); SAM with ViTs (S/8, S/14).
VITS: dict[str, tuple[str, ...]] = {
    "mu": ("4", "16", "16-gap"),
    "nano": ("4", "16"),
    "micro": ("8-gap",),
    "ti": ("4", "16"),
    "s": ("8", "14", "16", "16-gap", "16-map", "32", "32-gap"),
    "b": ("8", "16", "16-gap", "16-map", "32", "32-gap"),
    "l": ("16", "32"),
    "h": ("14",),
    "g": ("14", "14-map"),
    "G": ("14", "14-map"),
}
SMALL_PATCH = 4  # for images of 32 pixels, such as CIFAR's and the digits
# Names of the same making that were listed once, and what they are now.
UNLISTED = re.compile(r"vit-([a-zA-Z]+)(4|8|14|16|32)(?:-(gap|map))?")

# Stages of the stem, patch on its feature map, width of the encoder (vit_jax/configs/models.py; paper Table 2).
HYBRIDS: dict[str, tuple[tuple[int, ...], int, str]] = {
    "r-vit-ti16": ((), 8, "ti"),
    "r26-vit-s32": ((2, 2, 2, 2), 1, "s"),
    "r26-vit-b32": ((2, 2, 2, 2), 1, "b"),
    "r50-vit-b16": ((3, 4, 9), 1, "b"),
    "r50-vit-b32": ((3, 4, 6, 3), 1, "b"),
    "r50-vit-l16": ((3, 4, 9), 1, "l"),
    "r50-vit-l32": ((3, 4, 6, 3), 1, "l"),
}
# Ours, of no paper, for training from random weights on few images: pixels an image is meant to have a side, and between
# the whitened patches, positions and heads, by the stride of a token. On a grid of 3x3 tokens relative positions did not pay.
CONV_VITS: dict[int, tuple[int, int, PositionKind, int]] = {
    8: (32, 1, "sincos-2d", 4),
    16: (64, 2, "relative-2d", 8),
}
# Channels of the stages and width of the encoder: the narrow one is for where there is time for few passes over the images.
CONV_WIDTHS: dict[str, tuple[tuple[int, ...], int]] = {"ti": ((24, 64, 128), 128), "": ((64, 256, 256), 256)}
# Width, patch and published sizes (deit/models_v2.py; README_revenge.md).
DEIT3S: dict[str, tuple[Width, int, tuple[int, ...]]] = {
    "s": (WIDTHS["s"], 16, (224, 384)),
    "m": (Width(512, 12, 2048, 8), 16, (224,)),
    "b": (WIDTHS["b"], 16, (224, 384)),
    "l": (WIDTHS["l"], 16, (224, 384)),
    "h": (WIDTHS["h"], 14, (224,)),
}
DEIT3_LAYER_SCALE = 1e-4
# Blocks of the four stages (BiT table 7.1 of bit_pytorch/models.py; ResNet table 1).
RESNET_STAGES: dict[int, tuple[int, int, int, int]] = {
    10: (1, 1, 1, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
BITS = ((50, 1), (50, 2), (50, 3), (101, 1), (101, 3), (152, 1), (152, 2), (152, 4), (200, 3))
RESNETS = (10, 18, 34, 50, 101, 152)
SHRUNK = 16  # pixels, of the linear model on pixels
# Width, depth, heads and MLP ratio (models/t2t_vit.py; 7 has 7 blocks, whatever the paper's table 1 prints).
T2TS: dict[int, tuple[int, int, int, int]] = {
    7: (256, 7, 4, 2),
    10: (256, 10, 4, 2),
    12: (256, 12, 4, 2),
    14: (384, 14, 6, 3),
    19: (448, 19, 7, 3),
    24: (512, 24, 8, 3),
}
T2TS_WITH_TRANSFORMER = (14, 19, 24)
# Width, depth, MLP width, heads, patch and blocks (V-MoE table 1; its S is not the S of the other papers).
VMOES: dict[str, tuple[Width, int]] = {
    "s32": (Width(512, 8, 2048, 8), 32),
    "b32": (WIDTHS["b"], 32),
    "b16": (WIDTHS["b"], 16),
    "l32": (WIDTHS["l"], 32),
    "l16": (WIDTHS["l"], 16),
    "h14": (WIDTHS["h"], 14),
}
VMOE_15B = (Width(1408, 48, 6400, 16), 14)
LAST = (2, 5)  # the paper's placements in the last blocks, besides every second block
# Depths of the groups, widths of stem and groups, channels of a head (CoAtNet tables 3 and 11).
COATNETS: dict[int, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    0: ((2, 3, 5, 2), (64, 96, 192, 384, 768), 32),
    1: ((2, 6, 14, 2), (64, 96, 192, 384, 768), 32),
    2: ((2, 6, 14, 2), (128, 128, 256, 512, 1024), 32),
    3: ((2, 6, 14, 2), (192, 192, 384, 768, 1536), 32),
    4: ((2, 12, 28, 2), (192, 192, 384, 768, 1536), 32),
    5: ((2, 12, 28, 2), (192, 256, 512, 1280, 2048), 64),
    # Table 11 prints 2,048 for the last width of CoAtNet-6, but only 3,072 gives the 1.47B parameters of table 12.
    6: ((2, 4, 8, 42, 2), (192, 192, 384, 768, 1536, 3072), 128),
    7: ((2, 4, 8, 42, 2), (192, 256, 512, 1024, 2048, 3072), 128),
}
# Coefficients of width and depth, pixels, dropout (noisystudent, efficientnet_builder.py; tensorflow/tpu,
# efficientnet/lite/efficientnet_lite_builder.py).
EFFICIENTNETS: dict[str, tuple[float, float, int, float]] = {
    "b0": (1.0, 1.0, 224, 0.2),
    "b1": (1.0, 1.1, 240, 0.2),
    "b2": (1.1, 1.2, 260, 0.3),
    "b3": (1.2, 1.4, 300, 0.3),
    "b4": (1.4, 1.8, 380, 0.4),
    "b5": (1.6, 2.2, 456, 0.4),
    "b6": (1.8, 2.6, 528, 0.5),
    "b7": (2.0, 3.1, 600, 0.5),
    "l2": (4.3, 5.3, 800, 0.5),
    "lite0": (1.0, 1.0, 224, 0.2),
    "lite1": (1.0, 1.1, 240, 0.2),
    "lite2": (1.1, 1.2, 260, 0.3),
    "lite3": (1.2, 1.4, 280, 0.3),
    "lite4": (1.4, 1.8, 300, 0.3),
}
# Channels, heads, side of the smaller windows, stochastic depth (TinyViT/models/tiny_vit.py); those of the third stage are
# twice as wide as the others, so that with images of 32 times the side they fill every map.
TINYVITS: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int], int, float]] = {
    "5m": ((64, 128, 160, 320), (4, 5, 10), 7, 0.0),
    "11m": ((64, 128, 256, 448), (4, 8, 14), 7, 0.1),
    "21m": ((96, 192, 384, 576), (6, 12, 18), 7, 0.2),
    "21m-384": ((96, 192, 384, 576), (6, 12, 18), 12, 0.1),
    "21m-512": ((96, 192, 384, 576), (6, 12, 18), 16, 0.1),
}
# Pixels and layers of the decoder (roboflow/rf-detr, config.py).
RF_DETRS: dict[str, tuple[int, int]] = {"nano": (384, 2), "small": (512, 3), "medium": (576, 4), "large": (704, 4)}


def _vits() -> dict[str, ViTConfig]:
    rows: dict[str, ViTConfig] = {}
    for name, kinds in VITS.items():
        for kind in kinds:
            patch, _, pooling = kind.partition("-")
            rows[f"vit-{name}{kind}"] = _vit(WIDTHS[name], int(patch), pooling)
    # Ours, for training from random weights on small images.
    return rows | {"vit-micro8-gap": dataclasses.replace(rows["vit-micro8-gap"], initialization="whitened")}


def _vit(width: Width, patch: int, pooling: str) -> ViTConfig:
    native = 32 if patch == SMALL_PATCH else 224
    return with_pooling(width.vit(native, patch), cast(Pooling, pooling or "token"))


def _hybrids() -> dict[str, ViTConfig]:
    return {
        name: WIDTHS[width].vit(224, patch, stem=StemConfig(stages=stages))
        for name, (stages, patch, width) in HYBRIDS.items()
    }


def _conv_vits() -> dict[str, ViTConfig]:
    return {
        f"conv-vit-{width}{stride}": Width(dim, 2, 2 * dim, heads).vit(
            size,
            1,
            position=position,
            pooling="gap",
            gelu="exact",
            stem=WhitenedStemConfig(patch=2, step=step, widths=channels),
            initialization="big_vision",
        )
        for width, (channels, dim) in CONV_WIDTHS.items()
        for stride, (size, step, position, heads) in CONV_VITS.items()
    }


def _deits() -> dict[str, ViTConfig]:
    rows = {}
    for name, sizes in (("ti", (224,)), ("s", (224,)), ("b", (224, 384))):
        for size in sizes:
            for distilled in (False, True):
                suffix = ("-distilled" if distilled else "") + ("" if size == 224 else f"-{size}")
                rows[f"deit-{name}16{suffix}"] = WIDTHS[name].vit(
                    size, 16, gelu="exact", position_resize="bicubic", distilled=distilled, initialization="deit"
                )
    return rows


def _deit3s() -> dict[str, ViTConfig]:
    return {
        f"deit3-{name}{patch}" + ("" if size == 224 else f"-{size}"): width.vit(
            size,
            patch,
            gelu="exact",
            position_resize="bicubic",
            layer_scale=DEIT3_LAYER_SCALE,
            class_position=False,
            even_depth=True,
            initialization="deit",
        )
        for name, (width, patch, sizes) in DEIT3S.items()
        for size in sizes
    }


def _t2ts() -> dict[str, T2TConfig]:
    def row(number: int, tokens: Literal["performer", "transformer"]) -> T2TConfig:
        dim, depth, heads, ratio = T2TS[number]
        return T2TConfig(tokens=tokens, dim=dim, depth=depth, num_heads=heads, mlp_dim=ratio * dim)

    rows = {f"t2t-vit-{number}": row(number, "performer") for number in T2TS}
    return rows | {f"t2t-vit-t-{number}": row(number, "transformer") for number in T2TS_WITH_TRANSFORMER}


def _cvts() -> dict[str, CvTConfig]:
    wide = CvTConfig(image_size=(384, 384), dims=(192, 768, 1024), depths=(2, 2, 20), num_heads=(3, 12, 16))
    return {"cvt-13": CvTConfig(), "cvt-21": CvTConfig(depths=(1, 4, 16)), "cvt-w24": wide}


def _vmoes() -> dict[str, ViTConfig]:
    def row(width: Width, patch: int, last: int | None) -> ViTConfig:
        odd = tuple(range(1, width.depth, 2))
        experts = ExpertsConfig(blocks=odd if last is None else odd[-last:])
        return width.vit(224, patch, experts=experts)

    rows = {}
    for name, (width, patch) in VMOES.items():
        rows[f"vmoe-{name}"] = row(width, patch, None)
        for last in LAST:
            if last < width.depth // 2:
                rows[f"vmoe-{name}-last{last}"] = row(width, patch, last)
    return rows | {"vmoe-15b": row(*VMOE_15B, None)}


def _coatnets() -> dict[str, CoAtNetConfig]:
    rows = {}
    for number, (depths, (stem, *dims), head) in COATNETS.items():
        kinds: list[Kind] = ["convolution"] * (len(dims) - 2)
        rows[f"coatnet-{number}"] = CoAtNetConfig(
            stem_dim=stem,
            kinds=(*kinds, "attention", "attention"),
            depths=depths,
            dims=tuple(dims),
            # In CoAtNet-6 and -7 the first attention group continues at the resolution of the convolutions before it.
            strides=(2, 2, 2, 2) if len(dims) == 4 else (2, 2, 2, 1, 2),
            head_dim=head,
            representation_size=dims[-1],
        )
    return rows


def _tinyvits() -> dict[str, TinyViTConfig]:
    return {
        f"tinyvit-{name}": TinyViTConfig(
            image_size=(32 * side, 32 * side),
            dims=dims,
            num_heads=heads,
            windows=(side, 2 * side, side),
            stochastic_depth=rate,
        )
        for name, (dims, heads, side, rate) in TINYVITS.items()
    }


def _rf_detrs() -> dict[str, RFDetrConfig]:
    return {
        f"rf-detr-{name}": RFDetrConfig(image_size=(size, size), num_classes=91, decoder_layers=layers)
        for name, (size, layers) in RF_DETRS.items()
    }


def _others() -> dict[str, ModelConfig]:
    rows: dict[str, ModelConfig] = {
        f"bit-r{depth}x{width}": BiTConfig(stages=RESNET_STAGES[depth], width_factor=width) for depth, width in BITS
    }
    rows |= {f"resnet-{depth}": ResNetConfig(stages=RESNET_STAGES[depth], bottleneck=depth >= 50) for depth in RESNETS}
    for name, (width, depth, size, dropout) in EFFICIENTNETS.items():
        rows[f"efficientnet-{name}"] = EfficientNetConfig(
            image_size=(size, size),
            width=width,
            depth=depth,
            lite=name.startswith("lite"),
            dropout=dropout,
            stochastic_depth=0.2,
        )
    return rows | {f"pixels-{SHRUNK}": PixelsConfig(image_size=(64, 64), side=SHRUNK)}


VARIANTS: dict[str, ModelConfig] = {
    **_vits(),
    **_hybrids(),
    **_conv_vits(),
    **_deits(),
    **_deit3s(),
    **STARTS,
    **_t2ts(),
    **_cvts(),
    **_coatnets(),
    **_tinyvits(),
    **_vmoes(),
    **_rf_detrs(),
    **_others(),
}


def list_models() -> list[str]:
    """Return the names of all variants, smallest first within a family."""
    return list(VARIANTS)


def variant(name: str) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config behind a name such as "vit-b16".

    Raises:
        ModelError: No variant has that name; the nearest one is offered, or how to make what the name says.
    """
    try:
        return VARIANTS[name]
    except KeyError:
        advice = f"{instead_of(name)} {function('list_models')} lists them all."
        raise ModelError(f"There is no model '{name}'.{advice}") from None


def instead_of(name: str) -> str:
    """Return what to say to a name that no variant has: how to make it, or the nearest name; empty where there is none."""
    return _how_to_make(name) or did_you_mean(name, VARIANTS)


def _how_to_make(name: str) -> str:
    """Return which variant a size, patch and pooling of the family is, and with what settings; empty for other names."""
    parsed = UNLISTED.fullmatch(name)
    if parsed is None or parsed[1] not in WIDTHS:
        return ""
    wanted = _vit(WIDTHS[parsed[1]], int(parsed[2]), parsed[3] or "")
    sizes = {f"vit-{parsed[1]}{kind}": cast(ViTConfig, VARIANTS[f"vit-{parsed[1]}{kind}"]) for kind in VITS[parsed[1]]}
    fields = ("patch_size", "image_size", "pooling")  # a near one differs in few of them, and in none of the first

    def differing(config: ViTConfig) -> list[str]:
        return [field for field in fields if getattr(config, field) != getattr(wanted, field)]

    near, config = min(sizes.items(), key=lambda item: [field in differing(item[1]) for field in fields])
    values = {"patch_size": parsed[2], "image_size": wanted.image_size[0], "pooling": wanted.pooling}
    settings = " and ".join(f"{field}={values[field]}" for field in differing(config))
    return f" It is '{near}' with {settings}: settings of a recipe, arguments of create_model."

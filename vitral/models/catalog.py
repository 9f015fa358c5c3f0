"""Every named variant as one row, and the way from a name or a config to a network."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch

from vitral.errors import ModelError, did_you_mean
from vitral.models.bit import BiT, BiTConfig
from vitral.models.coatnet import CoAtNet, CoAtNetConfig, Kind
from vitral.models.cvt import CvT, CvTConfig
from vitral.models.efficientnet import EfficientNet, EfficientNetConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.model import Model, ModelConfig
from vitral.models.resnet import ResNet, ResNetConfig
from vitral.models.stem import StemConfig
from vitral.models.t2t import T2TConfig, T2TViT
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig


@dataclass(frozen=True)
class Family:
    """One architecture family.

    Attributes:
        title: what it is called in a sentence.
        config: the type of its configs.
        model: the type of its networks.
        identity: the config's fields that make a variant; the others are size, head and regularisation.
        finer: fields that tell apart variants of one identity, where they tell.
    """

    title: str
    config: type[ModelConfig]
    model: type[Model]
    identity: tuple[str, ...]
    finer: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    "vit": Family(
        "ViT",
        ViTConfig,
        ViT,
        (
            "patch_size",
            "dim",
            "depth",
            "mlp_dim",
            "num_heads",
            "pooling",
            "stem",
            "distilled",
            "experts",
            "layer_scale",
            "class_position",
        ),
        ("gelu", "position_resize", "image_size"),
    ),
    "bit": Family("BiT", BiTConfig, BiT, ("stages", "width_factor")),
    "resnet": Family("ResNet", ResNetConfig, ResNet, ("stages", "bottleneck")),
    "t2t": Family("T2T-ViT", T2TConfig, T2TViT, ("tokens", "dim", "depth", "mlp_dim", "num_heads")),
    "cvt": Family("CvT", CvTConfig, CvT, ("dims", "depths", "num_heads")),
    "coatnet": Family("CoAtNet", CoAtNetConfig, CoAtNet, ("stem_dim", "kinds", "depths", "dims", "strides")),
    "efficientnet": Family("EfficientNet", EfficientNetConfig, EfficientNet, ("width", "depth")),
}


@dataclass(frozen=True)
class Width:
    """A size of the family: width, depth, MLP width and heads of the encoder.

    Sources: paper Table 1 (B, L, H); DeiT (Ti, S); Scaling ViT Table 2 (g, G); big_vision, models/vit.py (mu).
    nano and micro are ours, of no paper: small enough to train on a CPU in one minute, and in ten.
    """

    dim: int
    depth: int
    mlp_dim: int
    num_heads: int


WIDTHS: dict[str, Width] = {
    "mu": Width(32, 1, 128, 2),
    "nano": Width(128, 4, 512, 4),
    "micro": Width(128, 8, 512, 2),
    "ti": Width(192, 12, 768, 3),
    "s": Width(384, 12, 1536, 6),
    "b": Width(768, 12, 3072, 12),
    "l": Width(1024, 24, 4096, 16),
    "h": Width(1280, 32, 5120, 16),
    "g": Width(1408, 40, 6144, 16),
    "G": Width(1664, 48, 8192, 16),
}
OWN_WIDTHS = ("nano", "micro")
PATCHES = (8, 14, 16, 32)
SMALL_PATCH = 4  # for images of 32 pixels, such as CIFAR's and the digits
SMALL_WIDTHS = ("mu", "nano", "micro", "ti", "s")
POOLINGS = {"": "token", "-gap": "gap", "-map": "map"}

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
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
BITS = ((50, 1), (50, 2), (50, 3), (101, 1), (101, 3), (152, 1), (152, 2), (152, 4), (200, 3))
RESNETS = (18, 34, 50, 101, 152)
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
LAST = (2, 5)  # the paper's placements in the last blocks, beside every second block
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
# Coefficients of width and depth, pixels, dropout (noisystudent, efficientnet_builder.py).
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
}


def _vits() -> dict[str, ViTConfig]:
    rows: dict[str, ViTConfig] = {}
    for name, width in WIDTHS.items():
        for patch in (SMALL_PATCH, *PATCHES) if name in SMALL_WIDTHS else PATCHES:
            native = 32 if patch == SMALL_PATCH else 224
            for suffix, pooling in POOLINGS.items():
                rows[f"vit-{name}{patch}{suffix}"] = ViTConfig(
                    image_size=(native, native),
                    patch_size=(patch, patch),
                    pooling=pooling,  # type: ignore[arg-type]
                    initialization="vit" if pooling == "token" or name in OWN_WIDTHS else "big_vision",
                    **dataclasses.asdict(width),
                )
    return rows


def _hybrids() -> dict[str, ViTConfig]:
    return {
        name: ViTConfig(patch_size=(patch, patch), stem=StemConfig(stages=stages), **dataclasses.asdict(WIDTHS[width]))
        for name, (stages, patch, width) in HYBRIDS.items()
    }


def _deits() -> dict[str, ViTConfig]:
    rows = {}
    for name, sizes in (("ti", (224,)), ("s", (224,)), ("b", (224, 384))):
        for size in sizes:
            for distilled in (False, True):
                suffix = ("-distilled" if distilled else "") + ("" if size == 224 else f"-{size}")
                rows[f"deit-{name}16{suffix}"] = ViTConfig(
                    image_size=(size, size),
                    gelu="exact",
                    position_resize="bicubic",
                    distilled=distilled,
                    initialization="deit",
                    **dataclasses.asdict(WIDTHS[name]),
                )
    return rows


def _deit3s() -> dict[str, ViTConfig]:
    return {
        f"deit3-{name}{patch}" + ("" if size == 224 else f"-{size}"): ViTConfig(
            image_size=(size, size),
            patch_size=(patch, patch),
            gelu="exact",
            position_resize="bicubic",
            layer_scale=DEIT3_LAYER_SCALE,
            class_position=False,
            even_depth=True,
            initialization="deit",
            **dataclasses.asdict(width),
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
        return ViTConfig(patch_size=(patch, patch), experts=experts, **dataclasses.asdict(width))

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
            # In CoAtNet-6 and -7 the first attention group goes on at the resolution of the convolutions before it.
            strides=(2, 2, 2, 2) if len(dims) == 4 else (2, 2, 2, 1, 2),
            head_dim=head,
            representation_size=dims[-1],
        )
    return rows


def _others() -> dict[str, ModelConfig]:
    rows: dict[str, ModelConfig] = {
        f"bit-r{depth}x{width}": BiTConfig(stages=RESNET_STAGES[depth], width_factor=width) for depth, width in BITS
    }
    rows |= {f"resnet-{depth}": ResNetConfig(stages=RESNET_STAGES[depth], bottleneck=depth >= 50) for depth in RESNETS}
    for name, (width, depth, size, dropout) in EFFICIENTNETS.items():
        rows[f"efficientnet-{name}"] = EfficientNetConfig(
            image_size=(size, size), width=width, depth=depth, dropout=dropout, stochastic_depth=0.2
        )
    return rows


VARIANTS: dict[str, ModelConfig] = {
    **_vits(),
    **_hybrids(),
    **_deits(),
    **_deit3s(),
    **_t2ts(),
    **_cvts(),
    **_coatnets(),
    **_vmoes(),
    **_others(),
}


def list_models() -> list[str]:
    """Return the names of all variants, smallest first within a family."""
    return list(VARIANTS)


def variant(name: str) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config behind a name such as "vit-b16".

    Raises:
        ModelError: no variant has that name; the nearest one is offered.
    """
    try:
        return VARIANTS[name]
    except KeyError:
        hint = did_you_mean(name, VARIANTS)
        raise ModelError(f"There is no model '{name}'.{hint} 'vitral models' lists them all.") from None


def family(config: ModelConfig) -> str:
    """Return the name of the family that a config is of."""
    return next(name for name, row in FAMILIES.items() if type(config) is row.config)


def build(config: ModelConfig, *, seed: int | None = 0, device: str | torch.device = "cpu") -> Model:
    """Return the network of a config, with weights drawn from `seed`.

    With `seed` None the parameters stay on the `meta` device, without memory, for a checkpoint to fill or for counting.
    """
    make: Any = FAMILIES[family(config)].model
    with torch.device("meta"):
        model: Model = make(config)
    if seed is not None:
        model.to_empty(device=device)
        model.init_weights(seed)
    return model.eval()


def create_model(
    name: str,
    *,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] | None = None,
    patch_size: int | None = None,
    patch_stride: int | None = None,
    seed: int = 0,
) -> Model:
    """Return a network by name with fresh weights, in evaluation mode.

    Args:
        name: a variant, such as "vit-b16", "r50-vit-b16" or "bit-r50x1"; `list_models()` has them all.
        num_classes: logits.
        image_size: pixels, an int or (height, width); the variant's own if None.
        patch_size: pixels, in place of the variant's; of a Vision Transformer only.
        patch_stride: pixels between patches; smaller than the patch, they overlap. The patch size if None.
        seed: of the weights.

    Raises:
        ModelError: an unknown name, or a size that the network cannot take.
    """
    config = variant(name)
    size = config.image_size if image_size is None else image_size
    changes: dict[str, Any] = {
        "num_classes": num_classes,
        "image_size": (size, size) if isinstance(size, int) else tuple(size),
    }
    if patch_size is not None:
        changes["patch_size"] = (patch_size, patch_size)
    if patch_stride is not None:
        changes["patch_stride"] = (patch_stride, patch_stride)
    return build(replace(config, **changes), seed=seed)


def replace(config: Any, **changes: Any) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return a config with some fields changed.

    Raises:
        ModelError: the family has no such field, or the values do not go together.
    """
    known = {field.name for field in dataclasses.fields(config)}
    for name in changes:
        if name not in known:
            title = FAMILIES[family(config)].title
            raise ModelError(f"{title} has no setting '{name}'.{did_you_mean(name, known)}")
    return dataclasses.replace(config, **changes)


def describe(config: ModelConfig) -> str:
    """Return the variant's name, or the family's where the config is of no variant."""
    return variant_name(config) or FAMILIES[family(config)].title


def variant_name(config: ModelConfig) -> str | None:
    """Return the name of the variant that `config` is at some size, number of classes and regularisation, if any."""
    row = FAMILIES[family(config)]

    def same(other: ModelConfig, fields: tuple[str, ...]) -> bool:
        return all(_shape(getattr(config, field)) == _shape(getattr(other, field)) for field in fields)

    alike = [name for name, other in VARIANTS.items() if type(other) is type(config) and same(other, row.identity)]
    for count in range(len(row.finer), 0, -1):
        for name in alike:
            if same(VARIANTS[name], row.finer[:count]):
                return name
    return alike[0] if alike else None


def same_tensors(one: ModelConfig, other: ModelConfig) -> bool:
    """Tell whether two configs differ in nothing but numerics, heads and routing, which tensors' shapes do not show."""
    if type(one) is not type(other):
        return False
    fields = [field for field in FAMILIES[family(one)].identity if field not in ("num_heads", "layer_scale")]
    return all(_shape(getattr(one, field)) == _shape(getattr(other, field)) for field in ("num_classes", *fields))


def _shape(value: Any) -> Any:  # noqa: ANN401  # a field of any config
    """Return what of a stem or of experts makes a variant: their shapes, not their numerics or their routing."""
    if isinstance(value, StemConfig):
        return value.stages, value.width_factor
    if isinstance(value, ExpertsConfig):
        return value.blocks
    return value

"""The architecture families: from a variant's name and settings to a config, a network, what it costs, and back to the name.

Configs are written and read as JSON values. What each variant costs at its native size is kept in costs.csv.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitral import plugins
from vitral.described import read_described, short
from vitral.errors import ModelError, PluginError, did_you_mean
from vitral.models.bit import BiT, BiTConfig
from vitral.models.catalog import VARIANTS, variant
from vitral.models.coatnet import CoAtNet, CoAtNetConfig
from vitral.models.cvt import CvT, CvTConfig
from vitral.models.dense.dense_model import DenseConfig, DenseModel, head_from_json, head_to_json
from vitral.models.efficientnet import EfficientNet, EfficientNetConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.model import Model, ModelConfig
from vitral.models.pixels import Pixels, PixelsConfig
from vitral.models.resnet import ResNet, ResNetConfig, StemConfig
from vitral.models.rf_detr import RFDetr, RFDetrConfig
from vitral.models.t2t import T2TConfig, T2TViT
from vitral.models.tinyvit import TinyViT, TinyViTConfig
from vitral.models.vit import ViT, build_stem
from vitral.models.vit_config import Pooling, ViTConfig, with_pooling

REPEATED = ("depth", "depths", "stages", "blocks")  # how often a part of the network is repeated
MOST_LAYERS = 1000  # repetitions, as a number; a damaged description may say anything
MOST_FACTOR = 16.0  # repetitions, as a factor
PAIRS = ("image_size", "patch_size", "patch_stride")  # (height, width), or one number for both
# What of an encoder's shape the paper varies in appendix D.2, figure 8, in a user's words, and the fields of the config.
FIELDS = {"depth": "depth", "width": "dim", "mlp_width": "mlp_dim", "heads": "num_heads"}
SHOWN = (int, float, str, tuple)  # kinds of fields that a line can say
WORDS = {field: word for word, field in FIELDS.items()}  # of a Vision Transformer, as a recipe sets them
MOST_CHANGED = 2  # fields in which a network may differ from a variant and still be called by it


@dataclass(frozen=True)
class Family:
    """One architecture family.

    Attributes:
        title: What it is called in a sentence.
        config: The type of its configs.
        model: The type of its networks.
        identity: The config's fields that make a variant; the others are size, head and regularisation.
        finer: Fields that tell apart variants of one identity, where they tell.
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
            *("patch_size", "dim", "depth", "mlp_dim", "num_heads", "pooling", "stem", "distilled", "experts"),
            *("layer_scale", "class_position", "mlp", "norm_before", "norm_pooled", "rotary"),
        ),
        ("gelu", "position_resize", "image_size"),
    ),
    "bit": Family("BiT", BiTConfig, BiT, ("stages", "width_factor")),
    "resnet": Family("ResNet", ResNetConfig, ResNet, ("stages", "bottleneck")),
    "t2t": Family("T2T-ViT", T2TConfig, T2TViT, ("tokens", "dim", "depth", "mlp_dim", "num_heads")),
    "cvt": Family("CvT", CvTConfig, CvT, ("dims", "depths", "num_heads")),
    "coatnet": Family("CoAtNet", CoAtNetConfig, CoAtNet, ("stem_dim", "kinds", "depths", "dims", "strides")),
    "efficientnet": Family("EfficientNet", EfficientNetConfig, EfficientNet, ("width", "depth", "lite")),
    "tinyvit": Family("TinyViT", TinyViTConfig, TinyViT, ("dims", "depths", "num_heads", "windows")),
    "dense": Family("network of regions", DenseConfig, DenseModel, ("backbone", "head")),
    "rf_detr": Family(
        "RF-DETR",
        RFDetrConfig,
        RFDetr,
        (
            *("patch_size", "dim", "depth", "mlp_dim", "num_heads", "windows", "taps", "width", "projector_blocks"),
            *("decoder_layers", "queries", "groups", "query_heads", "sampling_heads", "points", "decoder_mlp_dim"),
        ),
        ("image_size",),
    ),
    "pixels": Family("linear model on pixels", PixelsConfig, Pixels, ("side",)),
}


def _add(name: str, thing: object) -> None:
    """Add a plugin's network, as a family of one variant.

    Raises:
        PluginError: It is not a pair of a network's class and its config, or one of them is known already.
    """
    kind, config = thing if isinstance(thing, tuple) and len(thing) == 2 else (None, None)
    if not (isinstance(kind, type) and issubclass(kind, Model) and isinstance(config, ModelConfig)):
        raise PluginError(f"The network '{name}' must be registered as a pair: a Model class and a ModelConfig.")
    if name in FAMILIES or name in VARIANTS or type(config) in [row.config for row in FAMILIES.values()]:
        raise PluginError(f"The network '{name}' needs a name and a class of configs of its own.")
    common = {field.name for field in dataclasses.fields(ModelConfig)}
    identity = tuple(field.name for field in dataclasses.fields(config) if field.name not in common)
    FAMILIES[name] = Family(name, type(config), kind, identity)
    VARIANTS[name] = config


plugins.subscribe("network", _add)


def family(config: ModelConfig) -> str:
    """Return the name of the family that a config is of."""
    return next(name for name, row in FAMILIES.items() if type(config) is row.config)


def replace(config: Any, **changes: Any) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return a config with some fields changed.

    Raises:
        ModelError: The family has no such field, or the values do not go together.
    """
    known = {field.name for field in dataclasses.fields(config)}
    for name in changes:
        if name not in known:
            title = FAMILIES[family(config)].title
            raise ModelError(f"{title} has no setting '{name}'.{did_you_mean(name, known)}")
    return dataclasses.replace(config, **changes)


def build(config: ModelConfig, *, seed: int | None = 0, device: str | torch.device = "cpu") -> Model:
    """Return the network of a config, with weights drawn from `seed`.

    With `seed` None the parameters stay on the `meta` device, without memory, for a checkpoint to fill or for counting.
    """
    with torch.device("meta"):
        model = _made(config)
    if seed is not None:
        model.to_empty(device=device)
        model.init_weights(seed)
    return model.eval()


def _made(config: ModelConfig) -> Model:
    """Return the network of a config on the device of the context; of a network of regions over its backbone."""
    make: Any = FAMILIES[family(config)].model
    made: Model = make(config, _made(config.backbone)) if isinstance(config, DenseConfig) else make(config)
    return made


def changed(config: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return a config with fields changed by JSON values, those of its parts (a stem, experts) each on their own.

    Raises:
        ModelError: There is no such field, or the values do not go together.
    """
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        part = getattr(config, name, None)
        if isinstance(value, Mapping):
            if not dataclasses.is_dataclass(part):
                raise ModelError(f"This network has no {name} to change.")
            fields[name] = _changed_part(part, name, value)
        else:
            fields[name] = (value, value) if name in PAIRS and isinstance(value, int) else _tuple(value)
    try:
        return replace(config, **fields)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        listed = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        raise ModelError(f"The architecture cannot be built with {listed}: {error}.") from error


def _changed_part(part: Any, name: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a stem or experts
    known = {field.name for field in dataclasses.fields(part)}
    for field in values:
        if field not in known:
            raise ModelError(f"'{name}' has no setting '{field}'.{did_you_mean(field, known)}")
    return dataclasses.replace(part, **{key: _tuple(value) for key, value in values.items()})


def _tuple(value: Any) -> Any:  # noqa: ANN401  # JSON values of any type
    return tuple(value) if isinstance(value, list) else value


def config_to_json(config: ModelConfig) -> dict[str, Any]:
    """Return a config as JSON values, the family's name included."""
    values = {"family": family(config), **dataclasses.asdict(config)}
    if isinstance(config, DenseConfig):
        values |= {"backbone": config_to_json(config.backbone), "head": head_to_json(config.head)}
    return values


def config_from_json(values: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config that `config_to_json` wrote.

    Raises:
        ModelError: An unknown family, an unknown or missing field, or an impossible value.
    """
    named = dict(values) if isinstance(values, Mapping) else {}
    name = named.pop("family", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelError(f"The architecture family {name!r} is not known to this version.")
    _check_counts(named)
    try:
        if FAMILIES[name].config is DenseConfig:
            return _dense_config(named)
        return read_described(FAMILIES[name].config, named, "The architecture", ModelError)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"The architecture cannot be built: {error}.") from error


def _dense_config(named: Mapping[str, Any]) -> DenseConfig:
    common = {field.name for field in dataclasses.fields(ModelConfig)}
    known = {field.name for field in dataclasses.fields(DenseConfig)}
    if named.keys() != known:
        raise ModelError(f"The architecture must say {', '.join(sorted(known))}, and says {', '.join(sorted(named))}.")
    parts = {"backbone": config_from_json(named["backbone"]), "head": head_from_json(named["head"])}
    own = read_described(ModelConfig, {name: named[name] for name in common}, "The architecture", ModelError)
    return DenseConfig(**{name: getattr(own, name) for name in common}, **parts)


def _check_counts(values: Mapping[str, Any]) -> None:
    for part in (values, *(value for value in values.values() if isinstance(value, Mapping))):
        for name in part.keys() & set(REPEATED):
            counts = part[name] if isinstance(part[name], list | tuple) else [part[name]]
            if any(map(_is_beyond, counts)):
                raise ModelError(f"The architecture's '{name}' of {short(part[name])} is more than any network has.")


def _is_beyond(count: Any) -> bool:  # noqa: ANN401  # a JSON value
    if not isinstance(count, int | float):
        return False  # refused for its type
    return count > (MOST_LAYERS if isinstance(count, int) else MOST_FACTOR)


def configure(name: str, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return a variant's config with settings instead of its own.

    Args:
        name: A variant.
        settings: Fields of its config, as JSON values; a size may be one number for height and width.

    Raises:
        ModelError: An unknown name, a setting that the family has no place for, or values that do not go together.
    """
    config = variant(name)
    if isinstance(config, ViTConfig) and "pooling" in settings:
        config = with_pooling(config, settings["pooling"])
    return changed(config, settings)


def create_model(
    name: str,
    *,
    num_classes: int = 1000,
    image_size: int | tuple[int, int] | None = None,
    patch_size: int | None = None,
    patch_stride: int | None = None,
    pooling: Pooling | None = None,
    seed: int = 0,
) -> Model:
    """Return a network by name with fresh weights, in evaluation mode.

    Args:
        name: A variant, such as "vit-b16", "r50-vit-b16" or "bit-r50x1"; `list_models()` has them all.
        num_classes: Logits.
        image_size: Pixels, an int or (height, width); the variant's own if None.
        patch_size: Pixels, instead of the variant's; of a Vision Transformer only.
        patch_stride: Pixels between patches; smaller than the patch, they overlap. The patch size if None.
        pooling: "token", "gap" or "map", instead of the variant's; of a Vision Transformer only.
        seed: The seed of the weights.

    Raises:
        ModelError: An unknown name, or a size that the network cannot take.
    """
    settings = {
        "num_classes": num_classes,
        "image_size": image_size,
        "patch_size": patch_size,
        "patch_stride": patch_stride,
        "pooling": pooling,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    return build(configure(name, given), seed=seed)


def encoder_changes(name: str, shape: Mapping[str, int]) -> dict[str, int]:
    """Return the changes of a variant's config that give its encoder another shape.

    Args:
        name: A variant.
        shape: Blocks ("depth", L), width of a token ("width", D), width inside the MLP ("mlp_width") and attention heads
            ("heads", k), or some of them; the others stay the variant's, but that of another width and no heads the heads
            keep their width (D / k), as from the paper's Base to its Large (table 1).

    Raises:
        ModelError: No such variant, one that is no Vision Transformer, or a width that cannot be shared out to its heads.
    """
    config = variant(name)
    if shape and not isinstance(config, ViTConfig):
        raise ModelError(
            f"{name} has no '{next(iter(shape))}' to set: depth, width, mlp_width and heads are a Vision Transformer's, such "
            "as vit-b16's."
        )
    changes = {FIELDS[key]: value for key, value in shape.items()}
    if "width" in shape and "heads" not in shape:
        changes["num_heads"] = _heads(name, config, shape["width"])
    return changes


def _heads(name: str, config: ViTConfig, width: int) -> int:
    of_one = config.dim // config.num_heads
    if width % of_one:
        raise ModelError(
            f"The width {width} cannot be shared out to heads of a width of {of_one}, as {name} has them; set heads, too, or a "
            f"width that {of_one} divides."
        )
    return width // of_one


def count_parameters(model: nn.Module) -> int:
    """Return the number of learned values; works on the `meta` device too."""
    return sum(parameter.numel() for parameter in model.parameters())


@functools.lru_cache(maxsize=256)  # a large network is built to be counted
def parameters_of(config: ModelConfig) -> int:
    """Return the number of learned values of a config's network."""
    return count_parameters(build(config, seed=None))


@functools.lru_cache(maxsize=256)
def count_macs(config: ModelConfig) -> int:
    """Return the multiply-accumulates of one image's forward pass.

    Counted are convolutions, dense layers and the two products of attention; not norms, softmax and activations, as is the
    field's convention. A Vision Transformer's last block counts in full, though pooling by class token needs less of it;
    of experts those count that a token goes to.
    """
    known = config.known_macs
    if known is not None:
        return known
    if isinstance(config, ViTConfig) and config.stem:
        with torch.device("meta"):
            return config.macs_behind_stem + _counted(build_stem(config.stem), config.image_size)
    return _counted(build(config, seed=None), config.image_size)


def _counted(model: nn.Module, image_size: tuple[int, int]) -> int:
    """Run a network on the `meta` device, without memory, and count what it multiplies."""
    model.to("meta")  # with the tables that are computed
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, *image_size, device="meta"))
    return counter.get_total_flops() // 2


def describe(config: ModelConfig) -> str:
    """Return the variant's name, that of a near one with what differs, or the family's; of a Vision Transformer its shape."""
    if isinstance(config, DenseConfig):
        return f"{describe(config.backbone)} with {config.head.title}"
    name = variant_name(config)
    if name is not None:
        return name
    identity = FAMILIES[family(config)].identity
    near = {
        name: [field for field in identity if getattr(config, field) != getattr(other, field)]
        for name, other in VARIANTS.items()
        if type(other) is type(config)
    }
    name, fields = min(near.items(), key=lambda item: len(item[1]))
    if len(fields) > MOST_CHANGED or any(not isinstance(getattr(config, field), SHOWN) for field in fields):
        name, fields = FAMILIES[family(config)].title, ["patch_size", *WORDS] if isinstance(config, ViTConfig) else []
    return f"{name} with {_listed(config, fields)}" if fields else name


def _listed(config: ModelConfig, fields: Sequence[str]) -> str:
    words = WORDS if isinstance(config, ViTConfig) else {}
    *before, last = [f"{words.get(field, field)} {_shown(getattr(config, field))}" for field in fields]
    return f"{', '.join(before)} and {last}" if before else last


def _shown(value: Any) -> str:  # noqa: ANN401  # a field of any config
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


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


def same_tensors(config: ModelConfig, other: ModelConfig) -> bool:
    """Tell whether two configs differ in nothing but numerics, heads and routing, which tensors' shapes do not show."""
    if type(config) is not type(other):
        return False
    fields = [field for field in FAMILIES[family(config)].identity if field not in ("num_heads", "layer_scale")]
    return all(_shape(getattr(config, field)) == _shape(getattr(other, field)) for field in ("num_classes", *fields))


def _shape(value: Any) -> Any:  # noqa: ANN401  # a field of any config
    """Return the part of a stem or of experts that makes a variant: their shapes, not their numerics or routing."""
    if isinstance(value, StemConfig):
        return value.stages, value.width_factor
    if isinstance(value, ExpertsConfig):
        return value.blocks
    return value

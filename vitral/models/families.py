"""The architecture families, and the way from a config to a network."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from vitral import plugins
from vitral.errors import ModelError, PluginError, did_you_mean
from vitral.models.bit import BiT, BiTConfig
from vitral.models.catalog import VARIANTS
from vitral.models.coatnet import CoAtNet, CoAtNetConfig
from vitral.models.cvt import CvT, CvTConfig
from vitral.models.efficientnet import EfficientNet, EfficientNetConfig
from vitral.models.model import Model, ModelConfig
from vitral.models.pixels import Pixels, PixelsConfig
from vitral.models.resnet import ResNet, ResNetConfig
from vitral.models.t2t import T2TConfig, T2TViT
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig


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
    "efficientnet": Family("EfficientNet", EfficientNetConfig, EfficientNet, ("width", "depth")),
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
    make: Any = FAMILIES[family(config)].model
    with torch.device("meta"):
        model: Model = make(config)
    if seed is not None:
        model.to_empty(device=device)
        model.init_weights(seed)
    return model.eval()

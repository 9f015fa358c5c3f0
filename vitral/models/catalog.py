"""Every named variant as one row, and the way from a name or a config to a network."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from vitral.errors import ModelError, did_you_mean
from vitral.models.model import Model
from vitral.models.vit import ViT, ViTConfig


@dataclass(frozen=True)
class Width:
    """A size of the family: width, depth, MLP width and heads of the encoder.

    Sources: paper Table 1 (B, L, H); DeiT (Ti, S); Scaling ViT Table 2 (g, G); big_vision, models/vit.py (mu).
    nano is ours, of no paper: small enough to train on a CPU in a minute.
    """

    dim: int
    depth: int
    mlp_dim: int
    num_heads: int


WIDTHS: dict[str, Width] = {
    "mu": Width(32, 1, 128, 2),
    "nano": Width(128, 4, 512, 4),
    "ti": Width(192, 12, 768, 3),
    "s": Width(384, 12, 1536, 6),
    "b": Width(768, 12, 3072, 12),
    "l": Width(1024, 24, 4096, 16),
    "h": Width(1280, 32, 5120, 16),
    "g": Width(1408, 40, 6144, 16),
    "G": Width(1664, 48, 8192, 16),
}
PATCHES = (8, 14, 16, 32)
SMALL_PATCH = 4  # for pictures of 32 pixels, such as CIFAR's and the digits
SMALL_WIDTHS = ("mu", "nano", "ti", "s")
POOLINGS = {"": "token", "-gap": "gap", "-map": "map"}


def _variants() -> dict[str, ViTConfig]:
    rows: dict[str, ViTConfig] = {}
    for name, width in WIDTHS.items():
        for patch in (SMALL_PATCH, *PATCHES) if name in SMALL_WIDTHS else PATCHES:
            native = 32 if patch == SMALL_PATCH else 224
            for suffix, pooling in POOLINGS.items():
                rows[f"vit-{name}{patch}{suffix}"] = ViTConfig(
                    image_size=(native, native),
                    patch_size=(patch, patch),
                    pooling=pooling,  # type: ignore[arg-type]
                    **dataclasses.asdict(width),
                )
    return rows


VARIANTS: dict[str, ViTConfig] = _variants()


def list_models() -> list[str]:
    """Return the names of all variants, smallest first within a family."""
    return list(VARIANTS)


def variant(name: str) -> ViTConfig:
    """Return the config behind a name such as "vit-b16".

    Raises:
        ModelError: no variant has that name; the nearest one is offered.
    """
    try:
        return VARIANTS[name]
    except KeyError:
        hint = did_you_mean(name, VARIANTS)
        raise ModelError(f"There is no model '{name}'.{hint} 'vitral models' lists them all.") from None


def build(config: ViTConfig, *, seed: int | None = 0, device: str | torch.device = "cpu") -> Model:
    """Return the network of a config, with weights drawn from `seed`.

    With `seed` None the parameters stay on the `meta` device, without memory, for a checkpoint to fill or for counting.
    """
    with torch.device("meta"):
        model = ViT(config)
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
        name: a variant, such as "vit-b16", "vit-s16-gap" or "vit-l16-map"; `list_models()` has them all.
        num_classes: logits.
        image_size: pixels, an int or (height, width); the variant's own if None (224, or 32 for patches of 4).
        patch_size: pixels, in place of the variant's.
        patch_stride: pixels between patches; smaller than the patch, they overlap. The patch size if None.
        seed: of the weights.

    Raises:
        ModelError: an unknown name, or a size that the patches do not divide.
    """
    config = variant(name)
    size = config.image_size if image_size is None else image_size
    patch = config.patch_size if patch_size is None else (patch_size, patch_size)
    config = dataclasses.replace(
        config,
        num_classes=num_classes,
        image_size=(size, size) if isinstance(size, int) else size,
        patch_size=patch,
        patch_stride=None if patch_stride is None else (patch_stride, patch_stride),
    )
    return build(config, seed=seed)


def config_to_json(config: ViTConfig) -> dict[str, Any]:
    """Return a config as JSON values, the family's name included."""
    return {"family": "vit", **dataclasses.asdict(config)}


def config_from_json(values: Mapping[str, Any]) -> ViTConfig:
    """Return the config that `config_to_json` wrote.

    Raises:
        ModelError: an unknown family, an unknown or missing field, or an impossible value.
    """
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    family = fields.pop("family", None)
    if family != "vit":
        raise ModelError(f"The architecture family {family!r} is not known to this version.")
    known = {field.name for field in dataclasses.fields(ViTConfig)}
    for name in fields:
        if name not in known:
            raise ModelError(f"The architecture has an unknown field '{name}'.{did_you_mean(name, known)}")
    if missing := sorted(known - fields.keys()):
        raise ModelError(f"The architecture lacks the field '{missing[0]}'.")
    try:
        return ViTConfig(**fields)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"The architecture cannot be built: {error}.") from error


def variant_name(config: ViTConfig) -> str | None:
    """Return the name of the variant that `config` is at some size, number of classes and regularisation, if any."""
    for name, row in VARIANTS.items():
        if all(
            getattr(config, field) == getattr(row, field)
            for field in ("patch_size", "dim", "depth", "mlp_dim", "num_heads", "pooling")
        ):
            return name
    return None

"""From a variant's name and settings to a config, and to a network."""

from collections.abc import Mapping
from typing import Any

from vitral.errors import ModelError
from vitral.models.catalog import variant
from vitral.models.codec import changed
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.vit_config import Pooling, ViTConfig, with_pooling

# What of an encoder's shape the paper varies in appendix D.2, figure 8, in a user's words, and the fields of the config.
FIELDS = {"depth": "depth", "width": "dim", "mlp_width": "mlp_dim", "heads": "num_heads"}


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

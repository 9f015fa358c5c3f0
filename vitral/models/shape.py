"""The shape of a Vision Transformer's encoder in a user's words: what the paper varies in appendix D.2, figure 8."""

from collections.abc import Mapping

from vitral.errors import ModelError
from vitral.models.catalog import variant
from vitral.models.vit_config import ViTConfig

FIELDS = {"depth": "depth", "width": "dim", "mlp_width": "mlp_dim", "heads": "num_heads"}  # of the config


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

"""Which variant a config is of."""

from collections.abc import Sequence
from typing import Any

from vitral.models.catalog import VARIANTS
from vitral.models.create import FIELDS
from vitral.models.experts import ExpertsConfig
from vitral.models.families import FAMILIES, family
from vitral.models.model import ModelConfig
from vitral.models.stem import StemConfig
from vitral.models.vit_config import ViTConfig

SHOWN = (int, float, str, tuple)  # kinds of fields that a line can say
WORDS = {field: word for word, field in FIELDS.items()}  # of a Vision Transformer, as a recipe sets them
MOST_CHANGED = 2  # fields in which a network may differ from a variant and still be called by it


def describe(config: ModelConfig) -> str:
    """Return the variant's name, that of a near one with what differs, or the family's; of a Vision Transformer its shape."""
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

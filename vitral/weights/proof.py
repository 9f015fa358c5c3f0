"""What a format can hold, by proof: what would be written is read back and compared with the network's config.

Nothing of it needs weights: names and shapes come from the meta device.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vitral.advice import function
from vitral.errors import VitralError, WeightsError
from vitral.models.families import FAMILIES, family
from vitral.models.model import HEADS, ModelConfig
from vitral.weights.dialect import BROKEN, Dialect, NotHeld, Reading, Stored, cannot_hold, meta_state, our_names
from vitral.weights.layouts import Rule, written
from vitral.weights.names import timm
from vitral.weights.recognize import DIALECTS

# Fields that matter to training and resizing alone: whatever they are, the logits are the same.
TRAINING = (
    *("head_bias", "dropout", "attention_dropout", "stochastic_depth", "even_depth", "initialization"),
    *("position_resize", "rotary_shift", "rotary_jitter", "rotary_rescale"),
)
SAID = ("image_size", "pooling")  # fields that a reader must know to understand its tensors
NAMED = 3  # fields in a message where no single field is at fault
EPSILONS = ("norm_eps", "weight_eps")  # external fields that libraries do not let their users set
# How a message names what a format cannot hold, by the config's field; the first that applies is named. Others are named by
# field and value.
SENTENCES = {
    "distilled": "a distillation token",
    "registers": "registers",
    "stem": "a stem of convolutions",
    "experts": "experts",
    "layer_scale": "LayerScale",
    "position": "position embedding '{}'",
    "position_at": "positions in every block",
    "norm_before": "a norm before the encoder",
    "norm_pooled": "a norm after the mean over the patches",
    "rotary": "rotary positions of the kind '{}'",
    "mlp": "an MLP of the kind '{}'",
    "pooling": "pooling '{}'",
    "patch_bias": "this projection of patches (bias: {})",
    "qkv_bias": "projections without biases",
    "patch_stride": "overlapping patches",
    "representation_size": "a representation layer before the head; fine-tune first, or replace the head",
    "class_position": "a class token without a position",
    "gelu": "the GELU '{}'",
    "convention": "CoAtNet by the {}'s own convention, since timm pools and strides differently",
    "image_size": "images of {} pixels",
}


@dataclass(frozen=True)
class Proof:
    """How a network is written so that it is read back as the same.

    `config` is what the file is read with, if its description is; `epsilons` are those that its names do not say, with the
    library's own value and ours.
    """

    dialect: Dialect
    rules: list[Rule]
    config: ModelConfig
    epsilons: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Refusal:
    """How many of a config's fields a dialect cannot hold, and what finds the words for the first."""

    fields: int
    sentence: Callable[[], str]


def formats_of(config: ModelConfig) -> list[str]:
    """Return the formats that networks of a config's family can be written in."""
    return sorted({dialect.name for dialect in DIALECTS if dialect.family == family(config)})


def prove(config: ModelConfig, format_name: str) -> Proof:
    """Return how a network is written in a format.

    Raises:
        WeightsError: The format cannot hold it; the message says what of it, and which formats can.
    """
    known = formats_of(config)
    title = FAMILIES[family(config)].title
    if not known:
        raise WeightsError(
            f"No other library has a {title}, so it cannot be written as '{format_name}'; take the format 'vitral', or "
            f"{function('export')}."
        )
    if format_name not in known:
        raise WeightsError(f"{title} cannot be written as '{format_name}'; its formats are: {', '.join(known)}.")
    found = _first(config, format_name)
    if isinstance(found, Proof):
        return found
    others = [name for name in known if name != format_name and isinstance(_first(config, name), Proof)]
    instead = f"; take '{others[0]}'" if others else ""
    raise cannot_hold(format_name, f"{found.sentence()}{instead}")


def _first(config: ModelConfig, format_name: str) -> Proof | Refusal:
    """Return the proof of the first dialect that holds a config, or the refusal of the nearest one."""
    refusals = []
    for dialect in DIALECTS:
        if (dialect.family, dialect.name) == (family(config), format_name):
            found = _proof(dialect, config)
            if isinstance(found, Proof):
                return found
            refusals.append(found)
    return min(refusals, key=lambda refusal: refusal.fields)


def _proof(dialect: Dialect, config: ModelConfig) -> Proof | Refusal:
    unreadable = Refusal(len(dataclasses.fields(config)), lambda: _unreadable(dialect, config))
    try:
        rules = dialect.rules(config)
        described = dialect.describe(config) if dialect.describe else {}
    except NotHeld as error:
        what = error.what
        return Refusal(1, lambda: what)
    except BROKEN:
        return unreadable
    read = _read_back(dialect, config, rules, described)
    if read is None:
        return unreadable
    if lost := _lost(dialect, config, read.config):
        return Refusal(len(lost), lambda: _sentence(config, lost))
    if dialect.name == "timm" and timm.model_of(config)[0] is None:
        return Refusal(1, lambda: f"this {FAMILIES[family(config)].title}, because timm has no such model")
    folded = {name: getattr(read.config, name) for name in dialect.folded if name != "num_classes" and "." not in name}
    ours, theirs = _fields(config), _fields(read.config)
    epsilons = {
        name: (theirs[name], ours[name])
        for name in dialect.external
        if name.endswith(EPSILONS) and name in ours and ours[name] != theirs[name]
    }
    return Proof(dialect, rules, dataclasses.replace(config, **folded), epsilons)


def _read_back(
    dialect: Dialect,
    config: Any,  # noqa: ANN401  # the family's own ModelConfig
    rules: Sequence[Rule],
    described: dict[str, Any],
) -> Reading | None:
    """Return what is read from the names and shapes that would be written; None where they are no whole model's."""
    ours = meta_state(config)
    try:
        present = [rule for rule in rules if ours.keys() >= set(rule.ours)]
        shapes = {name: tuple(tensor.shape) for name, tensor in written(present, ours).items()}
        # What our own description says.
        given = {} if dialect.describe else {name: getattr(config, name, None) for name in SAID}
        backbone = config.backbone if dialect.on_backbone else None
        stored = Stored("", "", shapes, described, wrapper=dialect.wrapper, given=given, backbone=backbone)
        read = next(reader for reader in DIALECTS if reader.matches(stored)).read(stored)
    except (*BROKEN, RuntimeError, StopIteration):
        return None
    complete = {name for rule in read.rules for name in rule.theirs} == shapes.keys()
    held = {name for name in our_names(config) if not dialect.on_backbone or name.startswith(HEADS)}
    complete = complete and {name for rule in rules for name in rule.ours} == held
    return read if complete or _lost(dialect, config, read.config) else None


def _lost(dialect: Dialect, config: ModelConfig, read: ModelConfig) -> list[str]:
    """Return the fields that are read back otherwise, and which change what the network computes."""
    if type(config) is not type(read):
        return ["family"]
    ours, theirs = _fields(config), _fields(read)
    return [name for name in ours if not _same(name, ours[name], theirs.get(name), dialect)]


def _same(name: str, ours: Any, theirs: Any, dialect: Dialect) -> bool:  # noqa: ANN401  # a field's values
    if ours == theirs or name.removeprefix("backbone.") in TRAINING or name in dialect.folded:
        return True
    return name in dialect.external and ("." in name or (ours is None) == (theirs is None))


def _fields(config: Any) -> dict[str, Any]:  # noqa: ANN401  # a ModelConfig, or a part of one
    """Return a config's fields that its network computes with, those of its parts after the part's name and a dot."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        values[field.name] = type(value).__name__ if dataclasses.is_dataclass(value) else value
        if dataclasses.is_dataclass(value):
            values |= {f"{field.name}.{part}": inner for part, inner in _fields(value).items()}
    if values.get("mlp", "plain") != "plain" and values["pooling"] != "map":
        del values["gelu"]  # a gated MLP has none
    return values


def _sentence(config: ModelConfig, lost: Sequence[str]) -> str:
    """Return what of a config is lost, in words."""
    name = next((name for name in SENTENCES if name in lost), lost[0])
    value = _fields(config).get(name)
    shown = "x".join(map(str, value)) if isinstance(value, tuple) else value
    return SENTENCES[name].format(shown) if name in SENTENCES else f"{name} {shown}"


def _unreadable(dialect: Dialect, config: ModelConfig) -> str:
    """Return which field makes files of a config unreadable: the first without which they are read."""
    if config.region_head is not None:
        return f"{config.region_head.title} on this backbone"
    default = type(config)()
    names = [field.name for field in dataclasses.fields(config)]
    changed = [name for name in names if getattr(config, name) != getattr(default, name) and name not in TRAINING]
    changed.sort(key=lambda name: name not in SENTENCES)
    for name in changed:
        try:
            nearer = dataclasses.replace(config, **{name: getattr(default, name)})
            readable = _read_back(
                dialect, nearer, dialect.rules(nearer), dialect.describe(nearer) if dialect.describe else {}
            )
        except (VitralError, *BROKEN):
            continue
        if readable is not None:
            return _sentence(config, [name])
    shown = [_sentence(config, [name]) for name in changed if name not in ("image_size", "num_classes")]
    return f"{FAMILIES[family(config)].title} with {', '.join(shown[:NAMED])}" if shown else "this network"

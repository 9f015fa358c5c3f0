"""EfficientNet's tensors as timm names them in its ports of TensorFlow's (tf_efficientnet_*)."""

import dataclasses

from vitral.models.catalog import EFFICIENTNETS
from vitral.models.efficientnet import HEAD, STAGES, STEM, EfficientNetConfig
from vitral.weights.dialect import Dialect, Reading, Stored, having, our_names, reading
from vitral.weights.layouts import Renames, Rule, renamed
from vitral.weights.names import timm

# The crop fraction that each is evaluated with, in timm.
CROPS = {
    "b0": 0.875,
    "b1": 0.882,
    "b2": 0.890,
    "b3": 0.904,
    "b4": 0.922,
    "b5": 0.934,
    "b6": 0.942,
    "b7": 0.949,
    "l2": 0.96,
}
RENAMES: Renames = (
    (r"^stem\.", "conv_stem."),
    (r"^stem_norm\.", "bn1."),
    (r"^head_convolution\.", "conv_head."),
    (r"^head_norm\.", "bn2."),
    (r"^head\.", "classifier."),
    # The first stage has no expansion, so its norms and its projection are numbered one lower.
    (r"^stages\.0\.(\d+)\.depthwise_norm\.", r"blocks.0.\1.bn1."),
    (r"^stages\.0\.(\d+)\.project_norm\.", r"blocks.0.\1.bn2."),
    (r"^stages\.0\.(\d+)\.project\.", r"blocks.0.\1.conv_pw."),
    (r"^stages\.", "blocks."),
    (r"\.expand_norm\.", ".bn1."),
    (r"\.depthwise_norm\.", ".bn2."),
    (r"\.project_norm\.", ".bn3."),
    (r"\.squeeze_excite\.(reduce|expand)\.", r".se.conv_\1."),
    (r"(\d)\.expand\.", r"\1.conv_pw."),
    (r"\.depthwise\.", ".conv_dw."),
    (r"\.project\.", ".conv_pwl."),
)


def rules(config: EfficientNetConfig) -> list[Rule]:
    """Return the rules for one model."""
    return renamed(our_names(config), RENAMES)


def read(stored: Stored) -> Reading:
    """Read a timm file; timm's own EfficientNets have the same names, but pad and normalise differently."""
    shapes = stored.shapes
    named = str(stored.config.get("architecture", "tf_"))
    if not named.startswith("tf_"):
        raise ValueError(f"timm's '{named}' pads and normalises differently from the paper (its tf_{named} does not)")
    repeats = [stored.count(rf"blocks\.{stage}\.(\d+)\.") for stage in range(len(STAGES))]
    ends = shapes["conv_stem.weight"][0], shapes["conv_head.weight"][0]
    name = next((name for name in EFFICIENTNETS if _is(name, ends, repeats)), None)
    if name is None:
        raise ValueError("its widths and depths are not those of B0 to B7 or L2")
    width, depth, size, dropout = EFFICIENTNETS[name]
    default = dataclasses.replace(timm.DEIT, image_size=(size, size), crop_fraction=CROPS[name])
    usage = timm.usage(stored, default)
    if "architecture" not in stored.config:
        note = "Assumed to be TensorFlow's model (timm's tf_ models); timm's own of the same names pad differently."
        usage = dataclasses.replace(usage, notes=(*usage.notes, note))
    config = EfficientNetConfig(
        image_size=usage.preprocessing.image_size,
        width=width,
        depth=depth,
        dropout=dropout,
        num_classes=stored.classes("classifier.weight"),
    )
    return reading(stored, config, rules(config), usage)


def _is(name: str, ends: tuple[int, int], repeats: list[int]) -> bool:
    """Tell whether a network has these channels in its first and last convolution, and these repeats of its stages."""
    width, depth, _, _ = EFFICIENTNETS[name]
    config = EfficientNetConfig(width=width, depth=depth)
    channels = config.channels(STEM), config.channels(HEAD)
    return channels == ends and [config.repeats(row[0]) for row in STAGES] == repeats


MATCHES = having("conv_stem.weight", "conv_head.weight", "blocks.0.0.se.conv_reduce.weight")
DIALECTS = (Dialect("timm", "efficientnet", MATCHES, read, rules, ("image_size",)),)

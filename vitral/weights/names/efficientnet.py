"""EfficientNet's tensors as the two ports of TensorFlow's files name them.

These are lukemelas/EfficientNet-PyTorch, with its offshoot for the Lite networks, and timm in its tf_efficientnet_*.
"""

import dataclasses
import re
from collections.abc import Sequence

from vitral.images.preprocessing import Preprocessing
from vitral.models.catalog import EFFICIENTNETS
from vitral.models.efficientnet import STAGES, EfficientNetConfig
from vitral.weights.dialect import Dialect, Reading, Stored, Usage, having, our_names, reading, renaming
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
    "lite0": 0.875,
    "lite1": 0.882,
    "lite2": 0.890,
    "lite3": 0.904,
    "lite4": 0.92,
}
ENLARGED = {"lite3": 300, "lite4": 380}  # pixels: timm evaluates these on larger images than their source, bilinear
# The Lite networks' evaluation (tensorflow/tpu, efficientnet/preprocessing.py and lite/efficientnet_lite_builder.py).
LITE_IMAGES = Preprocessing(
    resize="crop",
    crop_fraction=0.875,
    interpolation="bicubic",
    mean=(127 / 255, 127 / 255, 127 / 255),
    std=(128 / 255, 128 / 255, 128 / 255),
)
# That of the others in their port (EfficientNet-PyTorch, examples/imagenet/main.py).
PORT_IMAGES = dataclasses.replace(timm.DEIT, crop_fraction=1.0)
ADVERSARIAL = (
    "Assumed: it was trained without AdvProp; with it, its images need a mean and a standard deviation of 0.5."
)
TIMM: Renames = (
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


# Behind the numbers of the blocks, which it counts through all stages.
PORT: Renames = (
    (r"^(stem|head)_norm\.", lambda match: {"stem": "_bn0.", "head": "_bn1."}[match[1]]),
    (r"^stem\.", "_conv_stem."),
    (r"^head_convolution\.", "_conv_head."),
    (r"^head\.", "_fc."),
    (r"\.expand_norm\.", "._bn0."),
    (r"\.depthwise_norm\.", "._bn1."),
    (r"\.project_norm\.", "._bn2."),
    (r"\.squeeze_excite\.(reduce|expand)\.", r"._se_\1."),
    (r"\.(expand|depthwise|project)\.", r"._\1_conv."),
)


timm_rules = renaming(TIMM)


def port_rules(config: EfficientNetConfig) -> list[Rule]:
    """Return the rules for the files of EfficientNet-PyTorch."""

    def numbered(match: re.Match[str]) -> str:
        stage, block = map(int, match.groups())
        return f"_blocks.{sum(config.repeats[:stage]) + block}."

    return renamed(our_names(config), ((r"^stages\.(\d+)\.(\d+)\.", numbered), *PORT))


def read_timm(stored: Stored) -> Reading:
    """Read a timm file; timm's own EfficientNets have the same names, but pad and normalise differently."""
    named = str(stored.config.get("architecture", "tf_"))
    if not named.startswith("tf_"):
        raise ValueError(f"timm's '{named}' pads and normalises differently from the paper (its tf_{named} does not)")
    counts = [stored.count(rf"blocks\.{stage}\.(\d+)\.") for stage in range(len(STAGES))]
    last = ["conv_pwl" if stage else "conv_pw" for stage in range(len(STAGES))]
    blocks = [f"blocks.{stage}.{block}.{last[stage]}" for stage, count in enumerate(counts) for block in range(count)]
    name, config = _network(stored, ("conv_stem", *blocks, "conv_head"), lite=SQUEEZE_TIMM not in stored.shapes)
    size = ENLARGED.get(name, config.image_size[0])
    default = dataclasses.replace(
        timm.CROP_BICUBIC if config.lite else timm.DEIT,
        image_size=(size, size),
        crop_fraction=CROPS[name],
        interpolation="bilinear" if name in ENLARGED else "bicubic",
    )
    usage = timm.usage(stored, default)
    if "architecture" not in stored.config:
        note = "Assumed to be TensorFlow's model (timm's tf_ models); timm's own of the same names pad differently."
        usage = dataclasses.replace(usage, notes=(*usage.notes, note))
    config = dataclasses.replace(
        config, image_size=usage.preprocessing.image_size, num_classes=stored.classes("classifier.weight")
    )
    return reading(stored, config, timm_rules(config), usage)


def read_port(stored: Stored) -> Reading:
    """Read a file of EfficientNet-PyTorch."""
    blocks = [f"_blocks.{block}._project_conv" for block in range(stored.count(r"_blocks\.(\d+)\."))]
    lite = SQUEEZE_PORT not in stored.shapes
    _, config = _network(stored, ("_conv_stem", *blocks, "_conv_head"), lite=lite)
    config = dataclasses.replace(config, num_classes=stored.classes("_fc.weight"))
    images = (LITE_IMAGES if lite else PORT_IMAGES).with_size(config.image_size)
    return reading(stored, config, port_rules(config), Usage(images, notes=() if lite else (ADVERSARIAL,)))


def _network(stored: Stored, convolutions: Sequence[str], *, lite: bool) -> tuple[str, EfficientNetConfig]:
    """Return the network whose first convolution, blocks and last convolution have these layers' outputs, and its name."""
    widths = tuple(stored.shapes[f"{name}.weight"][0] for name in convolutions)
    for name, (width, depth, size, dropout) in EFFICIENTNETS.items():
        config = EfficientNetConfig(image_size=(size, size), width=width, depth=depth, lite=lite, dropout=dropout)
        if config.widths == widths and lite == name.startswith("lite"):
            return name, config
    raise ValueError("its widths and depths are not those of B0 to B7, L2 or Lite0 to Lite4")


SQUEEZE_TIMM = "blocks.0.0.se.conv_reduce.weight"
SQUEEZE_PORT = "_blocks.0._se_reduce.weight"
DIALECTS = (
    Dialect(
        "timm",
        "efficientnet",
        having("conv_stem.weight", "conv_head.weight", "blocks.0.0.conv_dw.weight"),
        read_timm,
        timm_rules,
        ("image_size",),
    ),
    Dialect(
        "original",
        "efficientnet",
        having("_conv_stem.weight", "_conv_head.weight", "_blocks.0._depthwise_conv.weight"),
        read_port,
        port_rules,
        ("image_size",),
    ),
)

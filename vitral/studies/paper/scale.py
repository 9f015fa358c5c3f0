"""How large a study is: the networks, sizes and rates that a budget pays for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from vitral.errors import StudyError, did_you_mean

Value = TypeVar("Value")


@dataclass(frozen=True)
class StudyNetwork:
    """A network of a study: its names in folders and on the page, and the changes to the recipe, its model first."""

    name: str
    label: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """The encoder that the study of shapes varies, and the factors and sides of patches in pixels that it tries besides.

    A wider token has more heads, each as wide as before.
    """

    depth: int
    width: int
    mlp_width: int
    heads: int
    patch: int
    factors: tuple[float, ...]
    patches: tuple[int, ...]

    def changes(self) -> tuple[str, ...]:
        """Return the shape as changes to a recipe."""
        keys = {"depth": self.depth, "width": self.width, "mlp_width": self.mlp_width, "heads": self.heads}
        return (*(f"{key}={value}" for key, value in keys.items()), f"patch_size={self.patch}")


@dataclass(frozen=True)
class Scale:
    """What a budget pays for.

    Attributes:
        recipe: The recipe of training from random weights.
        tuning: The recipe of fine-tuning.
        hours: The time of a study if the machine's speed decides its length; None if the recipes state the steps.
        vits: The Vision Transformers, the smaller first; studies of one network train the last.
        resnets: The ResNets, likewise.
        hybrids: The hybrids, likewise.
        compared: One network of each family, with about the same operations.
        shares: Shares of the training images, ascending; the last is all.
        shape: The encoder of the study of shapes.
        patches: Sizes and strides in pixels.
        rates: Learning rates of each optimizer, ascending.
        sizes: Image sizes of fine-tuning in pixels, ascending; pre-training is at the first.
        labelled: The share of the images whose labels a study with few labels may use.
        few: Shares of the training images whose labels fine-tuning has, ascending.
        shows: What runs of this size can and cannot show.
    """

    name: str
    recipe: str
    tuning: str
    hours: float | None
    vits: tuple[StudyNetwork, ...]
    resnets: tuple[StudyNetwork, ...]
    hybrids: tuple[StudyNetwork, ...]
    compared: tuple[StudyNetwork, ...]
    shares: tuple[str, ...]
    shape: Shape
    patches: tuple[tuple[int, int], ...]
    rates: dict[str, tuple[float, ...]]
    sizes: tuple[int, ...]
    shows: str
    labelled: str = "1/10"
    gpus: int = 1
    few: tuple[str, ...] = ("1/100", "1/10", "1")
    generated: str = "visualatom"
    decoder: tuple[str, ...] = ()


def _network(model: str, label: str, *changes: str, name: str = "") -> StudyNetwork:
    return StudyNetwork(name or model, label, (f"model={model}", *changes))


_VIT = _network("vit-nano4", "ViT, 4 blocks of 64", "width=64", "mlp_width=256", "heads=2", name="vit-4x64")
_SMALL_VIT = _network(
    "vit-nano4", "ViT, 2 blocks of 32", "depth=2", "width=32", "mlp_width=128", "heads=1", name="vit-2x32"
)
_RESNET = _network("resnet-10", "ResNet-10")
# The root of a ResNet, and on each position of its map a token.
_HYBRID = _network(
    "r-vit-ti16",
    "hybrid, ResNet root and 4 blocks of 64",
    "patch_size=1",
    "depth=4",
    "width=64",
    "mlp_width=256",
    "heads=2",
    name="hybrid-4x64",
)
_S16 = _network("vit-s16", "ViT-S/16")
_B16 = _network("vit-b16", "ViT-B/16")
_R50 = _network("bit-r50x1", "BiT-R50x1")
_R152X2 = _network("bit-r152x2", "BiT-R152x2")
_R26S32 = _network("r26-vit-s32", "R26+S/32")
_R50B16 = _network("r50-vit-b16", "R50+ViT-B/16")

LAPTOP = Scale(
    name="laptop",
    recipe="study-laptop",
    tuning="study-laptop-finetune",
    hours=0.95,
    vits=(_SMALL_VIT, _VIT),
    resnets=(_RESNET,),
    hybrids=(_HYBRID, _network("conv-vit-8", "hybrid, whitened patches and 2 blocks")),
    compared=(_VIT, _HYBRID, _RESNET),
    shares=("1/64", "1/8", "1"),
    shape=Shape(depth=4, width=64, mlp_width=128, heads=2, patch=8, factors=(0.5, 2.0), patches=(16, 4)),
    patches=((16, 16), (16, 8), (8, 8), (8, 4), (4, 4)),
    rates={"adam": (3e-4, 1e-3, 3e-3), "sgd": (0.01, 0.03, 0.1), "muon": (0.005, 0.01, 0.02)},
    sizes=(16, 24, 32),
    generated="visualatom-mini",
    decoder=("method.decoder_depth=1", "method.decoder_width=64", "method.decoder_heads=2"),
    shows=(
        "Images of 32 pixels, networks of at most some million parameters and minutes of training show how the arms differ at "
        "the very beginning of training on a small set. They cannot show what the paper is about: what large networks make "
        "of 14 to 300 million images."
    ),
)
H200 = Scale(
    name="h200",
    recipe="study-h200",
    tuning="study-h200-finetune",
    hours=None,
    vits=(_network("vit-ti16", "ViT-Ti/16"), _S16),
    resnets=(_network("resnet-18", "ResNet-18"), _R50),
    hybrids=(_network("r-vit-ti16", "R+Ti/16"), _R26S32),
    compared=(_S16, _R26S32, _R50),
    shares=("1/64", "1/16", "1/4", "1"),
    shape=Shape(depth=6, width=384, mlp_width=768, heads=6, patch=32, factors=(0.5, 2.0, 4.0), patches=(56, 16)),
    patches=((32, 32), (32, 16), (16, 16), (16, 8), (8, 8)),
    rates={"adam": (3e-4, 1e-3, 3e-3), "sgd": (0.03, 0.1, 0.3), "muon": (0.005, 0.01, 0.02)},
    sizes=(224, 288, 384),
    shows=(
        "Networks up to S/16 on some million images show the paper's questions at the size of ImageNet: whether the hybrid's "
        "and the ResNet's lead shrinks as the data grow. Where the ViT overtakes them lies beyond."
    ),
)
CLUSTER = Scale(
    name="cluster",
    recipe="study-cluster",
    tuning="study-cluster-finetune",
    hours=None,
    vits=(_network("vit-b32", "ViT-B/32"), _B16, _network("vit-l16", "ViT-L/16")),
    resnets=(_R50, _R152X2),
    hybrids=(_network("r50-vit-b32", "R50+ViT-B/32"), _R50B16),
    compared=(_B16, _R50B16, _R152X2),
    shares=("1/32", "1/8", "1/4", "1"),
    shape=Shape(depth=8, width=1024, mlp_width=2048, heads=16, patch=32, factors=(0.5, 2.0, 4.0), patches=(56, 16)),
    patches=((32, 32), (32, 16), (16, 16), (16, 8), (14, 14)),
    rates={"adam": (2e-4, 8e-4, 3e-3), "sgd": (0.03, 0.1, 0.3), "muon": (0.005, 0.01, 0.02)},
    sizes=(224, 384, 512),
    shows="The paper's own networks and recipe; what they show depends on the images alone.",
    gpus=64,
)
SCALES = {scale.name: scale for scale in (LAPTOP, H200, CLUSTER)}


def chosen(kind: str, name: str, known: Mapping[str, Value]) -> Value:
    """Return the study or the budget of a name.

    Raises:
        StudyError: There is none of that name.
    """
    if name not in known:
        raise StudyError(f"There is no {kind} '{name}'.{did_you_mean(name, known)} There are {', '.join(known)}.")
    return known[name]

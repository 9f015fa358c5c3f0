"""ResNet's tensors as torchvision names them (models/resnet.py), and timm after it."""

from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.resnet import ResNetConfig
from vitral.weights.dialect import Dialect, Reading, Stored, having, reading, renaming
from vitral.weights.layouts import Renames, from_one
from vitral.weights.names import timm

# torchvision's evaluation (ImageClassification presets): the shorter side to 256, a centre crop of 224, on the image itself.
TORCHVISION = Preprocessing(
    resize="crop",
    crop_fraction=0.875,
    antialias=True,
    mean=IMAGENET_MEAN,
    std=IMAGENET_STD,
    resampler="pillow",
)
RENAMES: Renames = (
    (r"^root\.", "conv1."),
    (r"^root_norm\.", "bn1."),
    (r"^head\.", "fc."),
    (r"^stages\.(\d+)\.", from_one("layer{}.")),
    (r"\.convolutions\.(\d)\.", from_one(".conv{}.")),
    (r"\.norms\.(\d)\.", from_one(".bn{}.")),
    (r"\.projection\.", ".downsample.0."),
    (r"\.projection_norm\.", ".downsample.1."),
)


rules = renaming(RENAMES)


def read(stored: Stored) -> Reading:
    """Read a torchvision or timm file."""
    shapes = stored.shapes
    if shapes["conv1.weight"] != (64, 3, 7, 7) or shapes.get("layer1.0.conv2.weight", (64, 64))[1] != 64:
        raise ValueError("it is another kind of ResNet (another root, groups or widths)")
    usage = timm.usage(stored, TORCHVISION)
    config = ResNetConfig(
        image_size=usage.preprocessing.image_size,
        stages=tuple(stored.count(rf"layer{stage}\.(\d+)\.") for stage in range(1, 5)),
        bottleneck="layer1.0.conv3.weight" in shapes,
        num_classes=stored.classes("fc.weight"),
    )
    return reading(stored, config, rules(config), usage)


MATCHES = having("conv1.weight", "bn1.weight", "layer1.0.conv1.weight")
# The original and timm name them alike.
DIALECTS = tuple(Dialect(name, "resnet", MATCHES, read, rules, ("image_size",)) for name in ("original", "timm"))

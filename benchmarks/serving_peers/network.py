"""What every peer serves: a classifier's network in torch, and its preprocessing as users of torchvision write it."""

import io
from collections.abc import Callable

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

import vitral
from vitral.events import ignore
from vitral.images.preprocessing import Preprocessing


def prepared_by(preprocessing: Preprocessing) -> Callable[[bytes], Tensor]:
    """Return what makes an encoded photo the network's input, by Pillow and torchvision."""
    size, how = list(preprocessing.image_size), InterpolationMode(preprocessing.interpolation)
    if preprocessing.resize == "crop":
        steps = [v2.Resize(preprocessing.before_crop[0], how), v2.CenterCrop(size)]
    else:
        steps = [v2.Resize(size, how)]
    numbers = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(preprocessing.mean, preprocessing.std)]
    pipeline = v2.Compose([*steps, *numbers])
    return lambda content: pipeline(Image.open(io.BytesIO(content)).convert("RGB"))


class Network:
    """A classifier as its users would write it without Vitral's engine.

    Args:
        name: The classifier's folder or name.
    """

    def __init__(self, name: str) -> None:
        classifier = vitral.load(name, listener=ignore)
        self.model, self.names = classifier.model.eval(), classifier.class_names
        self.prepare = prepared_by(classifier.preprocessing)

    @torch.inference_mode()
    def probabilities(self, images: Tensor) -> Tensor:
        """Return the probabilities of prepared images (batch, 3, height, width)."""
        return self.model(images).softmax(1)

    def described(self, probabilities: Tensor) -> dict[str, object]:
        """Return the five most probable classes of an image."""
        best = probabilities.topk(min(5, len(self.names)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return {"predictions": [{"label": self.names[index], "probability": value} for index, value in pairs]}

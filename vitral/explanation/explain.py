"""`explain`: what a classifier says of an image, and which parts of the image it rests on."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32
from PIL import Image
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.inputs import ImageInput, to_pixels
from vitral.classifier.load import as_classifier
from vitral.explanation.drawing import Box, Content, Style, draw
from vitral.explanation.gradcam import class_activation, contributions
from vitral.explanation.overlay import overlay
from vitral.explanation.rollout import attention_rollout, patch_relevance
from vitral.files import write_file
from vitral.images.decode import Pixels
from vitral.images.encode import encode, image_format
from vitral.inference.predictor import Predictor
from vitral.inference.ranking import check_finite
from vitral.models.model import Images, Logits
from vitral.notebook import image
from vitral.outputs import check_file

MARK = b"Vitral explain"  # in every drawing: what bears it may be replaced by another
DIGITS = 16  # of the hash of the image
LARGEST_SHOWN = 720  # pixels of the longer side in a notebook
Method = Literal["attention rollout", "Grad-CAM", "weight times input"]
Relevance = Float[Tensor, "batch rows columns"]  # at least 0


@dataclass(frozen=True, eq=False)
class Explanation:
    """A prediction with the parts of the image that it rests on.

    Attributes:
        photo: the whole image.
        box: the part of it that the network saw: top, left, height and width, pixels.
        label: the most probable class.
        probability: its probability, 0 to 1.
        top: the most probable classes with their probabilities, highest first.
        relevance: one value a patch, or a cell of the last feature map, at least 0; the grid spans `box`.
        method: "attention rollout", of everything that reaches the answer; "Grad-CAM", of what speaks for `label`; or "weight
            times input", of what speaks for it in a linear model on pixels.
        warning: why the map means nothing, as of a classifier at chance; empty if nothing is known against it.
        contributions: of a linear model on pixels what each cell adds to the logit of `label`, below 0 where it speaks against
            it: exactly, so that with the bias they sum to it; None of every other network.
    """

    photo: Pixels
    box: Box
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]
    relevance: Float32[np.ndarray, "rows columns"]
    method: Method
    warning: str = ""
    contributions: Float32[np.ndarray, "rows columns"] | None = None

    def __repr__(self) -> str:
        """Return the answer and what it is explained by in one line."""
        height, width = self.photo.shape[:2]
        rows, columns = self.relevance.shape
        doubt = f"; {self.warning}" if self.warning else ""
        return (
            f"Explanation: {self.label} {self.probability:.1%}, {self.method} on a grid of {rows}x{columns} over an image of "
            f"{height}x{width} pixels{doubt}"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the drawing, made small."""
        drawing = Image.fromarray(self.draw())
        drawing.thumbnail((LARGEST_SHOWN, LARGEST_SHOWN))
        return image(encode(np.asarray(drawing), "JPEG"), f"{self.label} {self.probability:.1%}")

    @property
    def mark(self) -> bytes:
        """What a drawing of this very image, and of no other, holds."""
        shape, pixels = str(self.photo.shape).encode(), np.ascontiguousarray(self.photo).tobytes()
        return MARK + b" " + hashlib.sha256(shape + pixels).hexdigest()[:DIGITS].encode()

    @property
    def image(self) -> Pixels:
        """The part of the image that the network saw, at the image's own resolution."""
        top, left, height, width = self.box
        return self.photo[top : top + height, left : left + width]

    def overlay(self) -> Pixels:
        """Return `image` with the relevance drawn over it and nothing else, at most 1,024 pixels wide and high."""
        return overlay(self.image, self.relevance)

    def draw(self, *, style: Style = "side") -> Pixels:
        """Return a drawing to show: image and map, the label with its probability, and what the colours mean.

        Args:
            style: "side", the image and the map over it side by side; "overlay", the map over the image; "heat", the map.
        """
        content = Content(self.photo, self.box, self.relevance, self.label, self.probability, self.method, self.warning)
        return draw(content, style)

    def save(self, path: str | Path, *, style: Style = "side", overwrite: bool = False) -> None:
        """Write the drawing, in the format that the file's name ends in: .png, .jpg, .jpeg or .webp.

        Args:
            path: the file; an earlier drawing there is replaced, another file only if `overwrite` allows it.
            style: as `draw` takes it.
            overwrite: whether to replace a file that is no such drawing.

        Raises:
            ImageError: the name ends in none of these.
            StorageError: the file cannot be written.
        """
        check_file(path, mark=MARK, overwrite=overwrite)
        kind = image_format(path)
        write_file(Path(path), encode(self.draw(style=style), kind, comment=self.mark.decode()))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the image as JSON values."""
        return {
            "label": self.label,
            "probability": self.probability,
            "top": [{"label": label, "probability": probability} for label, probability in self.top],
            "method": self.method,
            "warning": self.warning,
            "relevance": self.relevance.tolist(),
            **({} if self.contributions is None else {"contributions": self.contributions.tolist()}),
        }


def explain(classifier: Classifier | str | Path, image: ImageInput, *, top: int = 5) -> Explanation:
    """Show where a classifier looked in an image.

    Of a Vision Transformer, hybrids included, by attention rollout (paper appendix D.8). With a class token this is the
    paper's method: the class token's row of the rolled-out attention over the patches. Networks without one have no
    such row; there, as our own extension, the rows of the patches are taken in the shares in which the head pools them:
    equal shares for the global average, the head's own attention, averaged over its heads, for attention pooling.
    Registers are left out. Of a linear model on pixels by what each cell of the shrunk image adds to the logit, which is
    exact; of every other network by Grad-CAM (arXiv 1610.02391) on its last feature map.

    Args:
        classifier: a network with its preprocessing: itself, or whatever `load` takes.
        image: a path, encoded bytes, a PIL image or a uint8 array.
        top: how many classes to name.

    Raises:
        ImageError: the image cannot be read.
        ModelError: the network has neither attention nor a feature map, or its weights are damaged.
    """
    classifier = as_classifier(classifier)
    pixels = to_pixels(image)
    images = classifier.preprocessing(pixels)[None]
    method = method_for(classifier.predictor)
    logits, values = WAYS[method](classifier.predictor, images)
    probabilities = classifier.to_probabilities(logits)[0]
    check_finite(probabilities[None], [str(image) if isinstance(image, str | Path) else "the image"])
    named = classifier.name_top(probabilities, top)
    return Explanation(
        photo=pixels,
        box=classifier.preprocessing.box(pixels.shape[0], pixels.shape[1]),
        label=named[0][0],
        probability=named[0][1],
        top=named,
        relevance=values[0].relu().numpy(),
        method=method,
        warning=classifier.doubt(),
        contributions=values[0].numpy() if method == "weight times input" else None,
    )


def method_for(predictor: Predictor) -> Method:
    """Return how a network is explained."""
    if predictor.has_attention:
        return "attention rollout"
    return "weight times input" if predictor.is_linear else "Grad-CAM"


def rollout(predictor: Predictor, images: Images) -> tuple[Logits, Relevance]:
    """Return the logits of prepared images, and how much each patch reaches the pooled representation.

    Raises:
        ModelError: the network is no Vision Transformer.
    """
    attended = predictor.attention(images)
    relevance = patch_relevance(
        attention_rollout(attended.attentions),
        grid=attended.grid,
        num_prefix_tokens=attended.num_prefix_tokens,
        weights=attended.pooling,
    )
    return attended.logits, relevance


def grad_cam(predictor: Predictor, images: Images) -> tuple[Logits, Relevance]:
    """Return the logits of prepared images, and what of the last feature map speaks for the most probable class of each.

    Raises:
        ModelError: the network ends in no feature map.
    """
    seen = predictor.class_maps(images)
    return seen.logits, class_activation(seen.maps, seen.gradients)


def weight_times_input(predictor: Predictor, images: Images) -> tuple[Logits, Float[Tensor, "batch rows columns"]]:
    """Return the logits of prepared images, and what each cell adds to the largest logit of each, or takes from it."""
    seen = predictor.class_maps(images)
    return seen.logits, contributions(seen.maps, seen.gradients)


WAYS: dict[Method, Callable[[Predictor, Images], tuple[Logits, Float[Tensor, "batch rows columns"]]]] = {
    "attention rollout": rollout,
    "Grad-CAM": grad_cam,
    "weight times input": weight_times_input,
}

"""`explain`: what a classifier says of a picture, and which parts of the picture it rests on."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from PIL import Image, PngImagePlugin

from vitral.classifier.classifier import Classifier, Picture, to_pixels
from vitral.explanation.attention import as_transformer, attend
from vitral.explanation.overlay import Style, overlay
from vitral.explanation.rollout import attention_rollout, patch_relevance
from vitral.files import write_file
from vitral.images.decode import Pixels
from vitral.outputs import check_file

MARK = b"Vitral explain"  # in the file, as the software that wrote it: such a drawing may be replaced by another


@dataclass(frozen=True, eq=False)
class Explanation:
    """A prediction with the patches that it rests on.

    Attributes:
        image: the part of the picture that the network saw, at the picture's own resolution.
        label: the most probable class.
        probability: its probability, 0 to 1.
        top: the most probable classes with their probabilities, highest first.
        relevance: one value a patch, at least 0; the grid spans `image`.
    """

    image: Pixels
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]
    relevance: Float32[np.ndarray, "rows columns"]

    def overlay(self, *, style: Style = "paper") -> Pixels:
        """Return `image` with the relevance drawn over it, "paper" or "heat"."""
        return overlay(self.image, self.relevance, style=style)

    def save(self, path: str | Path, *, style: Style = "paper", overwrite: bool = False) -> None:
        """Write the overlay as a PNG.

        Args:
            path: the file; an earlier drawing there is replaced, another file only if `overwrite` allows it.
            style: "paper" or "heat".
            overwrite: whether to replace a file that is no such drawing.

        Raises:
            StorageError: the file cannot be written.
        """
        check_file(path, mark=MARK, overwrite=overwrite)
        buffer = io.BytesIO()
        said = PngImagePlugin.PngInfo()
        said.add_text("Software", MARK.decode())
        Image.fromarray(self.overlay(style=style)).save(buffer, "PNG", pnginfo=said)
        write_file(Path(path), buffer.getvalue())

    def to_json(self) -> dict[str, Any]:
        """Return everything but the picture as JSON values."""
        return {
            "label": self.label,
            "probability": self.probability,
            "top": [{"label": label, "probability": probability} for label, probability in self.top],
            "relevance": self.relevance.tolist(),
        }


def explain(classifier: Classifier, picture: Picture, *, top: int = 5) -> Explanation:
    """Show where a classifier looked in a picture, by attention rollout (paper appendix D.8).

    With a class token this is the paper's method: the class token's row of the rolled-out attention over the patches.
    Networks without one have no such row; there, as our own extension, the rows of the patches are taken in the shares
    in which the head pools them: equal shares for the global average, the head's own attention, averaged over its
    heads, for attention pooling. Registers are left out.

    Args:
        classifier: a Vision Transformer with its preprocessing.
        picture: a path, encoded bytes, a PIL image or a uint8 array.
        top: how many classes to name.

    Raises:
        ImageError: the picture cannot be read.
        ModelError: the network is no Vision Transformer.
    """
    config = as_transformer(classifier.model).config
    pixels = to_pixels(picture)
    device = next(classifier.parameters()).device
    attended = attend(classifier.model, classifier.preprocessing(pixels)[None].to(device))
    relevance = patch_relevance(
        attention_rollout(attended.attentions),
        grid=config.grid,
        num_prefix_tokens=config.num_prefix_tokens,
        weights=attended.pooling,
    )[0]
    values, indices = attended.logits[0].float().softmax(dim=-1).topk(min(top, len(classifier.class_names)))
    ranked = zip(indices.tolist(), values.tolist(), strict=True)
    named = tuple((classifier.class_names[index], probability) for index, probability in ranked)
    return Explanation(
        image=classifier.preprocessing.view(pixels),
        label=named[0][0],
        probability=named[0][1],
        top=named,
        relevance=relevance.cpu().numpy(),
    )

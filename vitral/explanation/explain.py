"""`explain`: what a classifier says of an image, and which parts of the image it rests on."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from PIL import Image

from vitral.advice import function
from vitral.classifier.classifier import Classifier
from vitral.classifier.inputs import ImageInput, to_pixels
from vitral.classifier.load import as_classifier
from vitral.errors import ModelError, did_you_mean
from vitral.events import Listener, show
from vitral.explanation.drawing import Box, Content, Style, draw, overlay
from vitral.explanation.faithfulness import UNSCORED, Faithfulness, faithfulness
from vitral.explanation.methods import Choice, Method, choose_method, compute, why_not_attention
from vitral.explanation.nearest import Neighbour, TrainingImages
from vitral.files import write_file
from vitral.images.decode import Pixels
from vitral.images.depth import at_depth
from vitral.images.drawing import encode, image_format
from vitral.inference.ranking import check_finite
from vitral.notebook import image
from vitral.outputs import check_file
from vitral.tasks.unlabelled import check_classifies

MARK = b"Vitral explain"  # in every drawing: what bears it may be replaced by another
DIGITS = 16  # of the hash of the image
SHOWN_CLASSES = 10  # that an error names
LARGEST_SHOWN = 720  # pixels of the longer side in a notebook


@dataclass(frozen=True, eq=False)
class Explanation:
    """A prediction with the parts of the image that it rests on.

    Attributes:
        photo: The whole image.
        box: The part of it that the network saw: top, left, height and width, pixels.
        label: The class that is explained: the most probable one, unless another was named.
        probability: Its probability, 0 to 1.
        top: The most probable classes with their probabilities, highest first.
        relevance: One value a patch, or a cell of the last feature map, at least 0; the grid spans `box`.
        method: "class-specific relevance" or "Grad-CAM", of what speaks for `label`; "attention rollout", of everything that
            reaches the answer; "attention", of what one layer looks at; or "weight times input", of what speaks for it
            in a linear model on pixels.
        warning: Why the map means nothing, as of a classifier at chance; empty if nothing is known against it.
        contributions: What each cell adds to the logit of `label` in a linear model on pixels, below 0 where it speaks against
            it: exactly, so that with the bias they sum to it; None of every other network.
        part: The layer and the head of "attention", such as "layer 12 of 12, head 3 of 6"; empty of other methods.
        reason: Why the network could not be explained by its attention, if one would expect it.
        faithfulness: Deletion and insertion scores of the map, if they were measured and it has more than one value.
        unscored: Why there are none though they were wanted; else empty.
        nearest: The images that the network sees as most like this one, if they were looked for.
        nearest_of: What they are the nearest of: "training images", or "images of photos" if it was not trained on these.
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
    part: str = ""
    reason: str = ""
    faithfulness: Faithfulness | None = None
    unscored: str = ""
    nearest: tuple[Neighbour, ...] = ()
    nearest_of: str = "training images"

    def __repr__(self) -> str:
        """Return the answer and what it is explained by in one line."""
        height, width = self.photo.shape[:2]
        rows, columns = self.relevance.shape
        doubt = f"; {self.warning}" if self.warning else ""
        return (
            f"Explanation: {self.headline}, {self.described} on a grid of {rows}x{columns} over an image "
            f"of {height}x{width} pixels{doubt}"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the drawing, made small."""
        drawing = Image.fromarray(self.draw())
        drawing.thumbnail((LARGEST_SHOWN, LARGEST_SHOWN))
        return image(encode(np.asarray(drawing), "JPEG"), self.headline)

    @property
    def headline(self) -> str:
        """The class that is explained and its probability; then the answer, if it is another class."""
        explained, (answer, probability) = f"{self.label} {self.probability:.1%}", self.top[0]
        return explained if answer == self.label else f"map of {explained}, answer {answer} {probability:.1%}"

    @property
    def described(self) -> str:
        """The method, and of what part of the network."""
        return f"{self.method} of {self.part}" if self.part else self.method

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
        content = Content(
            self.photo,
            self.box,
            self.relevance,
            self.label,
            self.probability,
            self.described,
            self.warning,
            answer=None if self.top[0][0] == self.label else self.top[0],
            nearest=tuple((neighbour.image, neighbour.label, neighbour.similarity) for neighbour in self.nearest),
            nearest_of=self.nearest_of,
        )
        return draw(content, style)

    def save(self, path: str | Path, *, style: Style = "side", overwrite: bool = False) -> None:
        """Write the drawing, in the format that the file's name ends in: .png, .jpg, .jpeg or .webp.

        Args:
            path: The file; an earlier drawing there is replaced, another file only if `overwrite` allows it.
            style: The style, as `draw` takes it.
            overwrite: Whether to replace a file that is no such drawing.

        Raises:
            ImageError: The name ends in none of these.
            StorageError: The file cannot be written.
        """
        check_file(path, mark=MARK, overwrite=overwrite)
        kind = image_format(path)
        write_file(Path(path), encode(self.draw(style=style), kind, comment=self.mark.decode()))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the image as JSON values."""
        told = {"part": self.part, "reason": self.reason, "unscored": self.unscored}
        nearest = [neighbour.to_json() for neighbour in self.nearest]
        return {
            "label": self.label,
            "probability": self.probability,
            "top": [{"label": label, "probability": probability} for label, probability in self.top],
            "method": self.method,
            **{name: value for name, value in told.items() if value},
            **({} if self.faithfulness is None else asdict(self.faithfulness)),
            **({"nearest_of": self.nearest_of, "nearest": nearest} if nearest else {}),
            "warning": self.warning,
            "relevance": self.relevance.tolist(),
            **({} if self.contributions is None else {"contributions": self.contributions.tolist()}),
        }


def explain(
    classifier: Classifier | str | Path,
    image: ImageInput,
    *,
    top: int = 5,
    method: Choice = "auto",
    label: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    score: bool = False,
    training: TrainingImages | None = None,
    listener: Listener = show,
) -> Explanation:
    """Show where a classifier looked in an image.

    - "rollout": attention rollout (paper appendix D.8), of everything that reaches the answer. With a class token this is the
      paper's method: the class token's row of the rolled-out attention over the patches. Networks without one have no such
      row; there, as our own extension, the rows of the patches are taken in the shares in which the head pools them: equal
      shares for the global average, the head's own attention, averaged over its heads, for attention pooling. Registers are
      left out. For Vision Transformers, hybrids, and the backbone of T2T-ViT, whose tokens its token layers have mixed
      before. Not for CvT, because its keys are of fewer positions than its queries, nor for CoAtNet, which pools between its
      layers of attention.
    - "attention": where one layer looks, by the same row or shares; of CoAtNet and of CvT's stages without a class token the
      mean of all queries. For every network with attention.
    - "relevance": the attention that speaks for a class, followed from the answer to the image (arXiv 2103.15679), for the
      networks that rollout is for.
    - "grad-cam": what of the last feature map speaks for a class (arXiv 1610.02391), for convolutional networks, CoAtNet and
      hybrids; and of the tokens that enter the last block's attention for Vision Transformers, T2T-ViT and CvT.
    - "auto": relevance for Vision Transformers and hybrids; of a linear model on pixels what each cell of the shrunk image
      adds to the logit, which is exact; Grad-CAM for every other network. Where a layer or head is named, attention.

    Args:
        classifier: A network with its preprocessing: itself, or whatever `load` takes.
        image: A path, encoded bytes, a PIL image or a uint8 array.
        top: How many classes to name.
        method: One of the above.
        label: The class to explain, by its name; None for the most probable.
        layer: The layer of "attention", counted from 1 among the layers of attention; None for the last.
        head: The head of "attention", counted from 1; None for the mean of all.
        score: Whether to measure how faithful the map is, which takes 33 passes.
        training: Images among which the nearest to this one are looked for.
        listener: What receives the progress of the score; the screen if left out.

    Raises:
        ImageError: The image cannot be read.
        ModelError: The network does not allow the method, has no such class, layer or head, knows no classes, or is damaged.
    """
    classifier = as_classifier(classifier)
    check_classifies(classifier.task, function("explain"))
    predictor = classifier.predictor
    index = None if label is None else _class_index(classifier, label)
    chosen = choose_method(predictor, method, of_class=index is not None, layer=layer, head=head)
    pixels = at_depth(to_pixels(image), classifier.preprocessing.bits)
    prepared = classifier.preprocessing(pixels)
    maps = compute(predictor, prepared[None], chosen, target=index, layer=layer, head=head)
    probabilities = classifier.to_probabilities(maps.logits)[0]
    check_finite(probabilities[None].numpy(), [str(image) if isinstance(image, str | Path) else "the image"])
    named = classifier.name_top(probabilities, top)
    index = classifier.class_names.index(named[0][0]) if index is None else index
    relevance = maps.values[0].relu().numpy()
    scores = faithfulness(classifier.probabilities, prepared, relevance, index, listener=listener) if score else None
    return Explanation(
        photo=pixels,
        box=classifier.preprocessing.box(pixels.shape[0], pixels.shape[1]),
        label=classifier.class_names[index],
        probability=float(probabilities[index]),
        top=named,
        relevance=relevance,
        method=chosen,
        warning=classifier.doubt(),
        contributions=maps.values[0].numpy() if chosen == "weight times input" else None,
        part=maps.part,
        reason=why_not_attention(predictor, chosen) if method == "auto" else "",
        faithfulness=scores,
        unscored=UNSCORED if score and scores is None else "",
        nearest=() if training is None else training.nearest(predictor.features(prepared[None])[0], pixels),
        nearest_of="training photos" if training is None else training.described,
    )


def _class_index(classifier: Classifier, label: str) -> int:
    names = classifier.class_names
    if label not in names:
        few = ", ".join(names[:SHOWN_CLASSES]) + (", ..." if len(names) > SHOWN_CLASSES else "")
        advice = did_you_mean(label, names) or f" Its classes are {few}."
        raise ModelError(f"The classifier has no class '{label}'.{advice}")
    if classifier.predictor.num_classes != len(names):
        raise ModelError(
            "The classifier has no logit of its own for every class, so that a single one cannot be explained."
        )
    return names.index(label)

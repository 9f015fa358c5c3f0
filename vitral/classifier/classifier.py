"""`Classifier`: a network that knows how to prepare its images and what its classes are called."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from vitral.classifier.chance import Standing
from vitral.data.unlabelled import Unlabelled, list_unlabelled
from vitral.errors import ImageError, ModelError
from vitral.events import Listener, Message, Progress
from vitral.images.decode import Pixels, read_image, to_rgb
from vitral.images.preprocessing import Preprocessing
from vitral.models.catalog import describe
from vitral.models.cost import count_parameters
from vitral.models.model import Images, Logits, Model
from vitral.notebook import table
from vitral.progress import show

BASELINE = "/baseline_"  # between a split and a simple classifier's name, in the name of its accuracy among the scores
BASELINES = {
    "knn": "nearest-neighbour vote",
    "pixel_neighbour": "nearest neighbour on bare pixels",
    "pixel_linear": "linear model on bare pixels",
}
SHOWN_NAMES, SHOWN_IN_A_TABLE, LONGEST_NAME = 4, 12, 24  # of classes, where there is room for a line
HEADLINES = ("/top1", "/map")  # how the one score ends by which networks are compared
ImageInput = str | Path | bytes | Image.Image | np.ndarray


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of one image.

    Attributes:
        source: the path, or "image 3" for one given in memory.
        label: the most probable class.
        probability: its probability, 0 to 1.
        top: the most probable classes with their probabilities, highest first.
    """

    source: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        top = [{"label": label, "probability": probability} for label, probability in self.top]
        return {"source": self.source, "label": self.label, "probability": self.probability, "top": top}


@dataclass(frozen=True)
class Provenance:
    """Where a classifier came from and what it scored; plain JSON values throughout.

    Attributes:
        source: the weights that it started from.
        training: recipe, steps, data and versions, as they were; empty for weights as published.
        scores: figures by name, such as "test/top1".
        notes: what a user should know of it, one line each.
    """

    source: str = "random weights"
    training: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()


class Classifier(nn.Module):
    """A network with its preprocessing, its class names in order, and its provenance.

    Calling it takes a batch of prepared images (batch, 3, height, width) and gives logits; `predict` takes images.

    Args:
        model: the network.
        preprocessing: how an image becomes its input; of the network's size.
        class_names: one name a logit, in order; None names them "class 0", "class 1", ...
        provenance: where it came from.
        multi_label: whether an image may have several of the classes, or none; each then has a probability of its own.

    Raises:
        ModelError: names or sizes do not fit the network.
    """

    def __init__(
        self,
        model: Model,
        preprocessing: Preprocessing,
        class_names: Sequence[str] | None = None,
        *,
        provenance: Provenance | None = None,
        multi_label: bool = False,
    ) -> None:
        super().__init__()
        names = tuple(class_names or (f"class {index}" for index in range(model.num_classes)))
        if len(names) != model.num_classes:
            raise ModelError(f"The network has {model.num_classes} classes, but {len(names)} names were given.")
        if len(set(names)) != len(names):
            raise ModelError("Two classes have the same name; each needs its own.")
        if preprocessing.image_size != model.image_size:
            raise ModelError(
                f"The network takes {model.image_size} pixels, its preprocessing {preprocessing.image_size}."
            )
        self.model = model
        self.preprocessing = preprocessing
        self.class_names = names
        self.provenance = provenance or Provenance()
        self.multi_label = multi_label
        self.eval()

    def __repr__(self) -> str:
        """Return what it is in a few lines; `model` prints every layer."""
        height, width = self.model.image_size
        scores = "".join(
            f", {value:.1%} of its {name.removesuffix('/top1')} images right"
            for name, value in self.provenance.scores.items()
            if name.endswith("/top1")
        )
        kind = "labels" if self.multi_label else "classes"
        return (
            f"Classifier: {describe(self.model.config)}, images of {height}x{width} pixels, {len(self.class_names)} {kind} "
            f"({some_of(self.class_names)})\nfrom {self.provenance.source}{scores}"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        height, width = self.model.image_size
        count = len(self.class_names)
        scores = [(name, f"{value:.1%}") for name, value in self.provenance.scores.items() if name.endswith(HEADLINES)]
        return table(
            "Classifier",
            [
                ("Network", f"{describe(self.model.config)}, {count_parameters(self.model):,} parameters"),
                (
                    "Labels" if self.multi_label else "Classes",
                    f"{count:,}: {some_of(self.class_names, SHOWN_IN_A_TABLE)}",
                ),
                ("Images", f"{height}x{width} pixels"),
                ("Started from", self.provenance.source),
                *scores,
                ("Beware", self.doubt() or self.shortfall()),
            ],
        )

    def forward(self, images: Images) -> Logits:
        """Return the logits of prepared images."""
        return self.model(images)

    def features(self, images: Images) -> Float[Tensor, "batch features"]:
        """Return the pooled representations of prepared images."""
        return self.model.features(images)

    def doubt(self) -> str:
        """Return in one sentence why its answers mean nothing, or may, as far as its own scores tell; else nothing."""
        if not self.provenance.training and self.provenance.source.startswith("random weights"):
            return "The weights are random: its predictions mean nothing until it is trained."
        scores = self.provenance.scores
        for split in (name.removesuffix("/top1_low") for name in scores if name.endswith("/top1_low")):
            known = [scores.get(f"{split}/{name}", math.nan) for name in ("top1", "top1_low", "chance")]
            if all(0 <= value <= 1 for value in known) and (said := Standing(*known).sentence(split)):
                return said
        return ""

    def shortfall(self) -> str:
        """Return in one sentence which simple classifier did best, if better than it; empty if none is known to."""
        scores = self.provenance.scores
        rivals = [name for name in scores if BASELINE in name and f"{name.partition(BASELINE)[0]}/top1" in scores]
        if not rivals:
            return ""
        best = max(rivals, key=lambda name: scores[name])
        split, _, baseline = best.partition(BASELINE)
        own = scores[f"{split}/top1"]
        if own >= scores[best]:
            return ""
        plain = BASELINES.get(baseline, baseline.replace("_", " "))
        return f"To be doubted: {own:.1%} of its {split} images right, where a mere {plain} got {scores[best]:.1%}."

    def predict(
        self,
        images: ImageInput | Iterable[ImageInput],
        *,
        top: int = 5,
        batch_size: int = 16,
        skip_bad_images: bool = False,
        listener: Listener = show,
    ) -> list[Prediction]:
        """Return a prediction for each image, in order.

        Args:
            images: one or several of: an image file, a folder or archive (all images in it, by name), whatever else
                `finetune` takes as data (a table, shards, an address, hf:OWNER/NAME, "digits"), encoded bytes, a PIL
                image, or an array (height, width, 3) or (height, width) of uint8.
            top: how many classes to name.
            batch_size: images computed at once.
            skip_bad_images: leave out what cannot be read, with a warning to the listener, in place of an error.
            listener: hears progress and warnings; they are written to the screen if left out.

        Raises:
            ImageError: an image cannot be read; the message names it.
            DataError: an archive, a table or a data set cannot be read.
            ModelError: the network gives no number, as damaged weights do.
        """
        sources = list(_sources(images, listener))
        predictions: list[Prediction] = []
        loaded = self._load(sources, skip_bad_images=skip_bad_images, listener=listener)
        while batch := list(islice(loaded, batch_size)):
            names, images = zip(*batch, strict=True)
            probabilities = self.probabilities(torch.stack(images))
            check_finite(probabilities, names)
            predictions += [self._prediction(*row, top=top) for row in zip(names, probabilities, strict=True)]
            listener(Progress("predict", len(predictions), len(sources)))
        return predictions

    def probabilities(self, images: Images) -> Float[Tensor, "batch classes"]:
        """Return the probabilities of prepared images, in float32 on the CPU: a softmax, or a sigmoid if multi-label."""
        device = next(self.parameters()).device
        with torch.inference_mode():
            return self.to_probabilities(self(images.to(device)))

    def to_probabilities(self, logits: Logits) -> Float[Tensor, "batch classes"]:
        """Return what the network's logits mean, in float32 on the CPU: a softmax, or a sigmoid if multi-label."""
        logits = logits.float()
        return (logits.sigmoid() if self.multi_label else logits.softmax(dim=-1)).cpu()

    def _load(
        self, sources: list[Unlabelled], *, skip_bad_images: bool, listener: Listener
    ) -> Iterator[tuple[str, Tensor]]:
        for source in sources:
            try:
                yield source.name, self.preprocessing(source.read())
            except ImageError as error:
                if not skip_bad_images:
                    raise
                listener(Message(f"Skipped: {error}", warning=True))

    def _prediction(self, name: str, probabilities: Float[Tensor, " classes"], *, top: int) -> Prediction:
        values, indices = probabilities.topk(min(top, len(probabilities)))
        ranked = tuple(
            (self.class_names[index], value) for index, value in zip(indices.tolist(), values.tolist(), strict=True)
        )
        return Prediction(source=name, label=ranked[0][0], probability=ranked[0][1], top=ranked)


def some_of(names: Sequence[str], most: int = SHOWN_NAMES) -> str:
    """Return the first of some names, and a sign that there are more."""
    shown = ", ".join(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, …"


def _sources(images: ImageInput | Iterable[ImageInput], listener: Listener) -> Iterator[Unlabelled]:
    if isinstance(images, str | Path | bytes | Image.Image | np.ndarray):
        images = [images]
    for index, image in enumerate(images):
        if isinstance(image, str | Path):
            yield from list_unlabelled(str(image), listener)
        else:
            yield Unlabelled(f"image {index}", partial(to_pixels, image))


def check_finite(values: Float[Tensor, "images classes"], names: Sequence[str]) -> None:
    """Refuse what a network with damaged weights says.

    Raises:
        ModelError: a value is no finite number; the message names the first image.
    """
    broken = (~torch.isfinite(values)).any(dim=1).nonzero()
    if len(broken):
        raise ModelError(
            f"The network gives no number (NaN) for '{names[int(broken[0])]}': its weights are damaged, or its training "
            "diverged; load an earlier checkpoint."
        )


def to_pixels(image: ImageInput) -> Pixels:
    """Return an image in any of the forms that `predict` takes as RGB pixels.

    Raises:
        ImageError: it cannot be read.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8:
            raise ImageError(f"An array must be uint8 with values 0 to 255, not {image.dtype}.")
        return to_rgb(Image.fromarray(image))
    return to_rgb(image) if isinstance(image, Image.Image) else read_image(image)

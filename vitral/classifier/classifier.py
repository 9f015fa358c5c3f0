"""`Classifier`: a predictor with its preprocessing, its class names and its provenance and `Tuning`."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.advice import counted
from vitral.classifier import summary
from vitral.classifier.find_regions import find_in_each
from vitral.classifier.inputs import ImageInput, list_images, pixels_of
from vitral.classifier.metadata import Calibration, Provenance
from vitral.classifier.novelty import KnownImages, Novelties, Novelty
from vitral.classifier.predicted_regions import PredictedRegions
from vitral.classifier.prediction import Prediction
from vitral.data.image_files import prepare
from vitral.described import Kept
from vitral.errors import ImageError, ModelError, VitralError
from vitral.events import Listener, Message, Progress, show
from vitral.images.decode import Pixels
from vitral.images.geometry import Geometry
from vitral.images.preprocessing import Preprocessing
from vitral.inference.engines import Computation, Engine, Precision
from vitral.inference.native import NativeAspect
from vitral.inference.predictor import Image, Predictor, in_batches
from vitral.inference.quantization import Quantization
from vitral.inference.ranking import check_finite, rank
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.model import Features, Images, Logits, Model
from vitral.tasks.dense import dense_task
from vitral.tasks.regions import FoundRegions
from vitral.tasks.registry import task_of
from vitral.tasks.shown import photos_of
from vitral.tasks.task import Probabilities, Task
from vitral.tasks.unlabelled import check_knows_classes

Answers = tuple[Probabilities, Novelties | None]
MOST_SHOWN = 64  # of predictions at once that can show their images in a notebook


@dataclass(frozen=True)
class Tuning(Kept):
    """The most accurate of the settings that answer within a time; kept in the classifier's folder.

    Attributes:
        image_size: Height and width of the network's images, pixels.
        merge: The number of tokens that each block but the last merges (ToMe); 0 for none.
        milliseconds: The median time that one prepared image takes.
        limit: The time that the user allowed, milliseconds.
        data: The dataset whose validation images it was chosen on.
        images: The number of these images.
        exact: The headline figure of the network itself on these images, at its own size in fp32, 0 to 1.
        score: The headline figure of this setting on the same images, 0 to 1.
    """

    called = "Its setting"

    image_size: tuple[int, int]
    engine: Engine
    precision: Precision
    merge: int
    milliseconds: float
    limit: float
    machine: str
    threads: int
    data: str
    images: int
    exact: float
    score: float

    def __post_init__(self) -> None:
        if self.merge < 0 or not all(math.isfinite(time) and time > 0 for time in (self.milliseconds, self.limit)):
            raise VitralError("A setting has times above 0, and merges 0 tokens or more.")

    @property
    def way(self) -> Computation:
        """What computes, in which precision, and with how many tokens merged."""
        return Computation(self.engine, self.precision, self.merge)

    def sentence(self) -> str:
        """Return what it says, in one sentence."""
        return (
            f"Tuned to {self.limit:.4g} ms a photo: {self.way}, at {self.image_size[0]}x{self.image_size[1]} pixels, "
            f"{self.milliseconds:.3g} ms on {self.machine} with "
            f"{counted(self.threads, 'thread')}; {self.score:.2%} of {photos_of('validation', self.images)} of "
            f"{self.data}, {self.exact:.2%} unchanged."
        )


class Classifier(nn.Module):
    """A predictor with its preprocessing, its class names in order, and its provenance.

    Calling it takes a batch of prepared images (batch, 3, height, width) and gives logits; `predict` takes images.
    As a module it has the network's parameters, and gradients flow through its logits and features, so that it can be
    trained; everything that only predicts goes through the predictor.

    Args:
        model: The network, or a predictor of another runtime.
        preprocessing: The preprocessing that makes an image the network's input, at the network's size.
        class_names: The class names in order, one a logit unless the task differs; None names them "class 0", "class 1", ...
        provenance: The classifier's origin, training and scores.
        calibration: The temperature and threshold of its probabilities; None for the network's own.
        quantization: The ranges by which the network computes in int8; None before `quantize`.
        task: what a label is, and with it what the logits mean.
        multi_label: a short way to say the task: whether an image may have several of the classes, or none.

    Attributes:
        predictor: computes logits, features and what explanations need.
        model: the network, if it is in torch; assigning another one replaces the predictor, too.
        setting: The setting that `tune` found, which is used unless another is given; None where nobody has tuned it.
        folder: The folder that it was read from; None for a classifier that was made here.

    Raises:
        ModelError: names or sizes do not fit the network.
    """

    model: Model

    def __init__(
        self,
        model: Model | Predictor,
        preprocessing: Preprocessing,
        class_names: Sequence[str] | None = None,
        *,
        provenance: Provenance | None = None,
        calibration: Calibration | None = None,
        quantization: Quantization | None = None,
        task: Task | None = None,
        multi_label: bool = False,
    ) -> None:
        super().__init__()
        self.predictor: Predictor = model if isinstance(model, Predictor) else TorchPredictor(model)
        if isinstance(self.predictor, TorchPredictor):
            super().__setattr__("model", self.predictor.model)
        count = self.predictor.num_classes
        names = tuple(class_names or (f"class {index}" for index in range(count)))
        self.task = task or task_of(several=multi_label)
        if self.task.outputs(len(names)) != count:
            raise ModelError(f"The network has {count} classes, but {len(names)} names were given.")
        if len(set(names)) != len(names):
            raise ModelError("Two classes have the same name; each needs its own.")
        if preprocessing.image_size != self.predictor.image_size:
            raise ModelError(
                f"The network takes {self.predictor.image_size} pixels, its preprocessing {preprocessing.image_size}."
            )
        self.preprocessing = preprocessing
        self.class_names = names
        self.provenance = provenance or Provenance()
        self.calibration = calibration
        self.quantization = quantization
        self.setting: Tuning | None = None
        self.folder: Path | None = None
        self._remembered: tuple[KnownImages, Novelty | None, tuple[int, ...]] | None = None
        self.eval()

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401  # as nn.Module has it
        """Set an attribute; a new `model` also becomes the one that predicts."""
        super().__setattr__(name, value)
        if name == "model":
            self.predictor = TorchPredictor(value)
            self.quantization = self._remembered = None  # which were another network's

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as nn.Module has it
        """Return a submodule, parameter or buffer.

        Raises:
            ModelError: `model` is asked for, and the classifier has no network in torch.
        """
        if name == "model" and "model" not in self._modules:
            raise ModelError(
                f"{self.predictor.describe()} does not run in torch, so it can predict and be evaluated, but not be "
                "trained, saved or converted; load the classifier that it was made from."
            )
        return super().__getattr__(name)

    def __repr__(self) -> str:
        """Return what it is in a few lines; `model` prints every layer."""
        return summary.text(self.predictor, self.class_names, self.provenance, task=self.task)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return summary.html(self.predictor, self.class_names, self.provenance, task=self.task)

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several of the classes, or none."""
        return self.task == task_of(several=True)

    def remember(self, known: KnownImages | None, novelty: Novelty | None = None) -> None:
        """Keep images as the network sees them, and from where on an image is too unlike them; as long as it stays as it is."""
        self._remembered = None if known is None else (known, novelty, self._versions())

    def _versions(self) -> tuple[int, ...]:
        """Return how often each of the network's tensors was written."""
        return tuple(
            0 if value.is_inference() else value._version for value in self.state_dict(keep_vars=True).values()
        )

    @property
    def known_images(self) -> KnownImages | None:
        """Images of its data as the network sees them; None where none are kept, or the network has changed since."""
        kept = self._remembered
        return None if kept is None or kept[2] != self._versions() else kept[0]

    @property
    def novelty(self) -> Novelty | None:
        """From where on an image is of none of the classes; None where nothing tells, or the network has changed since."""
        return None if self._remembered is None or self.known_images is None else self._remembered[1]

    def forward(self, images: Images) -> Logits:
        """Return the logits of prepared images, differentiable if the network is in torch."""
        return self.model(images) if self._in_torch() else self.predictor.logits(images)

    def features(self, images: Images) -> Features:
        """Return the pooled representations of prepared images, differentiable if the network is in torch."""
        return self.model.features(images) if self._in_torch() else self.predictor.features(images)

    def _in_torch(self) -> bool:
        return "model" in self._modules

    def doubt(self) -> str:
        """Return in one sentence why its own scores make its predictions doubtful; empty if they do not."""
        return self.provenance.doubt()

    def shortfall(self) -> str:
        """Return in one sentence which simple classifier did best, if it beat this one; empty if none is known to."""
        return self.provenance.shortfall()

    def predict(
        self,
        images: ImageInput | Iterable[ImageInput],
        *,
        top: int = 5,
        batch_size: int = 16,
        native_aspect: bool = False,
        skip_bad_images: bool = False,
        listener: Listener = show,
    ) -> list[Prediction]:
        """Return a prediction for each image, in order.

        Args:
            images: one or several of: an image file, a folder or archive (all images in it, by name), whatever else
                `finetune` takes as data (a table, shards, an address, hf:OWNER/NAME, "digits"), encoded bytes, an open
                file of them, a PIL image, or an array (height, width, 3) or (height, width) of uint8.
            top: how many classes to name.
            batch_size: images computed at once.
            native_aspect: show the network each image whole and at its own shape, with about as many pixels; images of all
                shapes are computed at once (NaViT's packing), by the network itself in float32. Only of Vision Transformers.
                Whether that is more accurate `aspects` tells. Whether images are of none of the classes is not told.
            skip_bad_images: leave out what cannot be read, with a warning to the listener, instead of an error.
            listener: receives progress and warnings; they are written to the screen if left out.

        Raises:
            ImageError: an image cannot be read; the message names it.
            DataError: an archive, a table or a dataset cannot be read.
            ModelError: the network gives no number, as damaged weights do; it takes images of one shape only; `top` or
                `batch_size` is below 1; or it learned without labels.
        """
        check_knows_classes(self.task)
        if self.task.dense:
            raise ModelError(f"Photos of this classifier {self.task.labelled}; find_regions returns what is in photos.")
        listed = list_images(images, listener)
        to_input, compute = self._at_native_aspect() if native_aspect else (self.preprocessing, self._of_one_size)
        prepared = prepare(listed, to_input, skip_bad_images=skip_bad_images, listener=listener)
        predictions: list[Prediction] = []
        for names, batch in in_batches(prepared, batch_size):
            predictions += self.predictions(names, *compute(batch), top=top)
            listener(Progress("predict", len(predictions), len(listed)))
        if len(listed) > MOST_SHOWN:
            return predictions
        images_of = {image.name: image for image in listed}
        return [replace(found, pixels=pixels_of(images_of[found.source])) for found in predictions]

    def _of_one_size(self, images: Sequence[Image]) -> Answers:
        return self.answers(torch.stack(list(images)))

    def _at_native_aspect(self) -> tuple[Callable[[Pixels], Image], Callable[[Sequence[Image]], Answers]]:
        """Return what prepares images at their own shape, and what answers to several."""
        packing = NativeAspect(self.model)
        return (
            lambda image: packing.prepare(image, self.preprocessing),
            lambda images: (self.to_probabilities(packing.logits(images)), None),
        )

    @property
    def tells_novelty(self) -> bool:
        """Whether it tells images of none of the classes: it has a limit, and computes the network as it is."""
        return self.novelty is not None and not self.predictor.merge and self.predictor.quantization is None

    def find_regions(
        self,
        images: ImageInput | Iterable[ImageInput],
        *,
        windows: float | None = None,
        skip_bad_images: bool = False,
        listener: Listener = show,
    ) -> list[PredictedRegions]:
        """Return what is found in each image, in order, in the image's own pixels.

        Args:
            images: As `predict` takes them.
            windows: How many times as large as the network's input the shorter side of each image is seen, through windows, so
                that small things in large images are found: from 1 on, and so that none is seen larger than eight times its own
                size; None for images as a whole, as in training.
            skip_bad_images: Leave out what cannot be read, with a warning to the listener, instead of an error.
            listener: Receives progress and warnings; they are written to the screen if left out.

        Raises:
            ImageError: An image cannot be read; the message names it.
            ModelError: It classifies images as a whole, the network gives no number, or `windows` is out of range.
        """
        found = []
        for each in find_in_each(self, list_images(images, listener), listener, windows=windows):
            if isinstance(each, PredictedRegions):
                found.append(each)
            elif skip_bad_images:
                listener(Message(each.reason, warning=True))
            else:
                raise ImageError(each.reason)
        return found

    def answers(self, images: Images) -> Answers:
        """Return the probabilities of prepared images, and how far each is from those of the classes; None if nothing tells.

        Raises:
            ModelError: There are too few classes for probabilities.
        """
        if not self.tells_novelty:
            return self.probabilities(images), None
        probabilities, novelties, _ = self.answers_with_features(images)
        return probabilities, novelties

    def answers_with_features(self, images: Images) -> tuple[Probabilities, Novelties | None, Features]:
        """Return what `answers` does, and the pooled representations."""
        probabilities, features = self.with_features(images)
        novelty, known = self.novelty, self.known_images
        if novelty is None or known is None or not self.tells_novelty:
            return probabilities, None, features
        return probabilities, known.space.novelty(features, novelty.distance) / novelty.threshold, features

    def with_features(self, images: Images) -> tuple[Probabilities, Features]:
        """Return the probabilities and the pooled representations of prepared images, in one pass where that is possible."""
        features = self.predictor.features(images)
        # A distillation head reads another token.
        if not self._in_torch() or getattr(self.model, "distillation_head", None) is not None:
            return self.probabilities(images), features
        with torch.inference_mode():
            head = self.model.head
            logits = head(features.to(head.weight))
        return self.to_probabilities(logits), features

    def find(self, images: Images, views: Sequence[Geometry]) -> list[FoundRegions]:
        """Return what is found in prepared images, in the pixels of the photos, given the steps from each photo to its image.

        Raises:
            ModelError: It classifies images as a whole, or the network gives no number.
        """
        return dense_task(self.task).find(self.predictor.answers(images), views)

    def probabilities(self, images: Images) -> Float[Tensor, "batch classes"]:
        """Return the probabilities of prepared images, in float32 on the CPU.

        Raises:
            ModelError: There are too few classes for probabilities: a network with one output gives every image the same.
        """
        if len(self.class_names) < self.task.fewest_classes:
            raise ModelError(
                f"A network with one output has the same answer for every image where images {self.task.labelled}; give it two."
            )
        if self.calibration is None or self.calibration.temperature == 1:
            return self.predictor.probabilities(images, self.task)
        return self.to_probabilities(self.predictor.logits(images))

    def to_probabilities(self, logits: Logits) -> Float[Tensor, "batch classes"]:
        """Return what the network's logits mean to its task, at its temperature, in float32 on the CPU."""
        if self.calibration is not None and self.calibration.temperature != 1:
            logits = logits.float() / self.calibration.temperature
        return self.task.probabilities(logits).float().cpu()

    def name_top(self, probabilities: Float[Tensor, " classes"], top: int) -> tuple[tuple[str, float], ...]:
        """Return the names of one image's most probable classes with their probabilities, highest first."""
        return tuple((self.class_names[index], probability) for index, probability in rank(probabilities.numpy(), top))

    def predictions(
        self, names: Sequence[str], probabilities: Probabilities, novelties: Novelties | None, *, top: int
    ) -> list[Prediction]:
        """Return what `answers` says of some images, each with the names of its `top` most probable classes.

        Raises:
            ModelError: The network gives no number.
        """
        check_finite(probabilities.numpy(), names)
        threshold = None if self.calibration is None else self.calibration.threshold
        far = [None] * len(names) if novelties is None else novelties.tolist()
        rows = zip(names, probabilities, far, strict=True)
        return [Prediction.ranked(name, self.name_top(row, top), threshold, novelty) for name, row, novelty in rows]


def fingerprint(classifier: Classifier) -> str:
    """Return a hash of everything that a classifier's answers follow from."""
    digest = hashlib.sha256(repr((classifier.class_names, classifier.preprocessing, classifier.calibration)).encode())
    if classifier.tells_novelty:
        digest.update(repr(classifier.novelty).encode())
    digest.update(
        f"{classifier.task.name} {classifier.predictor.describe()}{classifier.predictor.fingerprint}".encode()
    )
    for name, value in classifier.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()

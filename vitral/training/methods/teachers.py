"""Another classifier as a teacher: its answers to the student's images, in the student's classes or in place of labels."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.advice import argument
from vitral.classifier.classifier import Classifier, fingerprint
from vitral.classifier.load import load
from vitral.data.names import side_by_side
from vitral.data.source import DataSet, Source
from vitral.data.subset import Relabelled
from vitral.errors import DataError, ModelError, TrainingError
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener, Message
from vitral.inference.torch_predictor import evaluating
from vitral.models.layers import Maps
from vitral.models.model import Features, Images, Logits, Model
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.tasks.unlabelled import UNLABELLED
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Normalize
from vitral.training.optimization.optimizers import training_device
from vitral.training.optimization.state import Held, held

TEACHER = "teacher"  # the entry of a checkpoint for the teacher's fingerprint
SHOWN = 12  # characters of a fingerprint in a message


class Teacher:
    """A classifier whose weights are frozen.

    It sees the same images as the student, mixed or not, in its own normalisation and at its own size.

    Args:
        source: The teacher, as `load` takes it.
        student: The network that learns from the teacher.
        context: The student's normalisation and classes, and the listener.

    Attributes:
        classifier: The teacher.
        task: What a label is to it.
        columns: The columns of its logits that are the student's classes, see `columns`; None for all of them.

    Raises:
        WeightsError: There is no such classifier.
        ModelError: The classifier is not computed by torch.
    """

    def __init__(self, source: str, student: Model, context: Context) -> None:
        self.source, self.context = source, context
        self.classifier = load(source, tuned=False, listener=context.listener)
        self.network: Model = self.classifier.model
        self.task = self.classifier.task
        self.columns: Tensor | None = None
        self.digest = torch.tensor(list(bytes.fromhex(fingerprint(self.classifier))), dtype=torch.uint8)
        like = next(student.parameters())
        self.network.to(like.device).eval().requires_grad_(requires_grad=False)
        assert context.normalize is not None, "a student that sees images has a normalisation"
        scale, shift = _affine(context.normalize, like)
        own = self.classifier.preprocessing
        teacher_scale, teacher_shift = _affine(own.normalize, like)
        # From the student's values to the teacher's: both are affine in the pixels.
        self._scale = teacher_scale / scale
        self._shift = teacher_shift - shift * self._scale

    def match(self) -> None:
        """Let the answers be those for the student's classes, in the student's order.

        Raises:
            ModelError: The teacher does not know one of them.
        """
        self.columns = columns(self.classifier, self.context.class_names, self.source)

    def announce(self) -> None:
        """Report the teacher, and how its classes were matched."""
        predictor, classes = self.classifier.predictor, len(self.classifier.class_names)
        matched = "" if self.columns is None else f", of which {len(self.columns)} are matched by name"
        self.context.listener(Message(f"Teacher: {predictor.describe()}, {classes} classes{matched}."))

    def images(self, images: Images) -> Images:
        """Return the student's input as the teacher's."""
        seen = images * self._scale.to(images.dtype) + self._shift.to(images.dtype)
        if images.shape[-2:] == self.network.image_size:
            return seen
        return functional.interpolate(
            seen, size=self.network.image_size, mode="bilinear", antialias=True, align_corners=False
        )

    @torch.no_grad()
    def logits(self, images: Images) -> Logits:
        """Return the teacher's logits of the student's input, in the student's classes if they are matched."""
        with evaluating(self.network):
            return select_columns(self.network(self.images(images)), self.columns)

    @torch.no_grad()
    def everything(self, images: Images) -> tuple[Logits, Features, Maps]:
        """Return the teacher's logits, pooled features and feature maps of the student's input."""
        with evaluating(self.network):
            seen = self.images(images)
            encoded = self.network.encode(seen)
            features = self.network.pool(encoded)
            two_heads = getattr(self.network.config, "distilled", False)
            logits = self.network(seen) if two_heads else self.network.head(features)
            return select_columns(logits, self.columns), features, encoded.maps


class Taught(Method):
    """A method with a teacher, which must stay the same throughout a run."""

    teacher: Teacher

    def take_teacher(self, source: str) -> None:
        """Load the teacher, match its classes with the student's, and report both.

        Raises:
            WeightsError: There is no such teacher.
            ModelError: It does not know one of the classes, or gives an image several.
        """
        self.teacher = Teacher(source, self.network, self.context)
        check_one_class(self.teacher.task)
        self.teacher.match()
        self.teacher.announce()

    def state_dict(self) -> Mapping[str, Held]:
        """Return the teacher's fingerprint."""
        return held({TEACHER: self.teacher.digest})

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Check that the teacher is still the same.

        Raises:
            TrainingError: The teacher differs.
            ValueError: The state is of another method.
        """
        if saved.keys() != {TEACHER}:
            raise ValueError("it is not of a method with a teacher")
        began, now = torch.as_tensor(saved[TEACHER]).cpu(), self.teacher.digest
        if not torch.equal(began, now):
            shown = [bytes(digest.tolist()).hex()[:SHOWN] for digest in (began, now)]
            raise TrainingError(
                f"The run began with another teacher ({shown[0]}...) than '{self.teacher.source}' is now ({shown[1]}...). "
                "Bring back the first teacher, or start a new run."
            )


def check_one_class(task: Task) -> None:
    """Refuse, by a `ModelError`, a task whose images may have several classes, because softmax answers are of one class."""
    if not task.exclusive:
        raise ModelError(f"Distillation needs images of one class each. These images {task.labelled}.")


def check_no_experts(network: Model) -> None:
    """Refuse, by a `ModelError`, a network with experts, because nothing would spread its tokens over them."""
    if getattr(network.config, "experts", None) is not None:
        raise ModelError("This method has no loss that spreads tokens over experts; take a network without them.")


def check_one_head(network: Model) -> None:
    """Refuse, by a `ModelError`, a network with a distillation token, because its second head would learn nothing."""
    if getattr(network.config, "distilled", False):
        raise ModelError(
            "The second head of a distilled network would learn nothing; take a network without a distillation token."
        )


def _affine(normalize: Normalize, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return a normalisation's scale and shift for each channel, measured on black and white."""
    black, white = (
        normalize(torch.full((1, 3, 1, 1), value, dtype=torch.uint8, device=like.device)).float() for value in (0, 255)
    )
    return (white - black) / 255.0, black


def columns(teacher: Classifier, class_names: tuple[str, ...], source: str) -> Tensor | None:
    """Return the columns of a teacher's logits that are the student's classes, in the student's order; None for all of them.

    A teacher without class names, such as bare weights, counts as one of the same classes in the same order.

    Raises:
        ModelError: The teacher does not know one of the classes; the message shows both lists.
    """
    known = teacher.class_names
    unnamed = known == tuple(f"class {index}" for index in range(len(known)))
    if not class_names or unnamed:
        if class_names and len(known) != len(class_names):
            raise ModelError(
                f"The teacher '{source}' has {len(known)} classes without names, the data have {len(class_names)}; take a "
                "teacher of the same classes."
            )
        return None
    if known == class_names:
        return None
    if set(class_names) - set(known):
        raise ModelError(
            f"The teacher '{source}' does not know all classes. {side_by_side(known, class_names)} Take a teacher of these "
            "classes, or one that knows more."
        )
    return torch.tensor([known.index(name) for name in class_names])


def select_columns(logits: Float[Tensor, "batch known"], which: Tensor | None) -> Logits:
    """Return the logits of the student's classes, in the student's order; `which` comes from `columns`."""
    return logits if which is None else logits[:, which.to(logits.device)]


@torch.no_grad()
def patch_width(network: Model) -> int:
    """Return the width of a network's patches, or of its last feature maps."""
    like = next(network.parameters())
    image = torch.zeros(1, 3, *network.image_size, device=like.device, dtype=like.dtype)
    with evaluating(network):
        return network.encode(image).maps.shape[1]


def with_answers(data: DataSet, teacher: str, listener: Listener) -> DataSet:
    """Return images without labels, labelled with the class that a teacher finds most probable; other data as they are.

    Their accuracy is agreement with the teacher, and a note says so. The teacher answers whole images; a resumed run computes
    the answers again.

    Args:
        data: The dataset; none of its splits is endless.
        teacher: The teacher, as `load` takes it.
        listener: The listener for progress.

    Raises:
        DataError: A split is endless.
        ModelError: The teacher knows no classes, or an image may have several.
        WeightsError: There is no such teacher.
    """
    if data.task.scored:
        return data
    if any(source.endless for source in data.splits.values()):
        raise DataError(f"{data.name} is endless, so no teacher can answer all of it; name a folder of images.")
    classifier = load(teacher, tuned=False, listener=listener)
    if not classifier.task.exclusive:
        raise ModelError(
            f"'{teacher}' cannot label images, because its own images {classifier.task.labelled}. Name another "
            f"{argument('teacher')}, or learn only its features with {argument('overrides', ['method.answers=0'])}."
        )
    images = sum(map(len, data.splits.values()))
    listener(Message(f"The teacher answers {images:,} images. Accuracy will mean agreement with its answers."))
    classifier.to(training_device())
    splits = {name: _answered(source, classifier, listener) for name, source in data.splits.items()}
    note = (
        f"The images have no labels. The answers of '{teacher}' stand in for them, so accuracy means agreement with it."
    )
    return replace(
        data, splits=splits, class_names=classifier.class_names, task=SINGLE_LABEL, notes=(*data.notes, note)
    )


def _answered(source: Source, teacher: Classifier, listener: Listener) -> Source:
    probabilities, _ = predict_probabilities(teacher, source, task=UNLABELLED, listener=listener)
    return Relabelled(source, probabilities.argmax(dim=1).numpy())

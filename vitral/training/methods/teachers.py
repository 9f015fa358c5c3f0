"""Another classifier as a teacher: its answers to the images that the student sees, in the student's classes."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitral.classifier.classifier import Classifier
from vitral.classifier.fingerprint import fingerprint
from vitral.classifier.load import load
from vitral.data.names import side_by_side
from vitral.errors import ModelError, TrainingError
from vitral.events import Message
from vitral.inference.torch_predictor import evaluating
from vitral.models.model import Features, Images, Logits, Model
from vitral.models.tokens import Maps
from vitral.tasks.task import Task
from vitral.training.methods.method import Context, Method
from vitral.training.methods.views import Normalize
from vitral.training.optimization.state import Held, held

TEACHER = "teacher"  # the entry of a checkpoint that says which it was
SHOWN = 12  # characters of a fingerprint that a message repeats


class Teacher:
    """A classifier that learns nothing any more.

    It sees the very images that the student sees, mixed and all, in its own normalisation and at its own size.

    Args:
        source: what `load` takes.
        student: that learns from it.
        context: the student's normalisation, and the listener.

    Attributes:
        classifier: the teacher.

    Raises:
        WeightsError: there is no such classifier.
        ModelError: it is not computed by torch.
    """

    def __init__(self, source: str, student: Model, context: Context) -> None:
        self.source = source
        self.classifier = load(source, tuned=False, listener=context.listener)
        self.network: Model = self.classifier.model
        self.digest = torch.tensor(list(bytes.fromhex(fingerprint(self.classifier))), dtype=torch.uint8)
        like = next(student.parameters())
        self.network.to(like.device).eval().requires_grad_(requires_grad=False)
        assert context.normalize is not None, "a student that sees images has a normalisation"
        ours, theirs = (_affine(one, like) for one in (context.normalize, self.classifier.preprocessing.normalize))
        # Student's values to the teacher's: both are affine in the pixels.
        self._scale = theirs[0] / ours[0]
        self._shift = theirs[1] - ours[1] * self._scale

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
        """Return the teacher's logits of the student's input."""
        with evaluating(self.network):
            return self.network(self.images(images))

    @torch.no_grad()
    def everything(self, images: Images) -> tuple[Logits, Features, Maps]:
        """Return the teacher's logits, pooled features and feature maps of the student's input."""
        with evaluating(self.network):
            seen = self.images(images)
            encoded = self.network.encode(seen)
            features = self.network.pool(encoded)
            two_heads = getattr(self.network.config, "distilled", False)
            return self.network(seen) if two_heads else self.network.head(features), features, encoded.maps

    def check_same(self, digest: Tensor) -> None:
        """Refuse another teacher than the one with which a run began.

        Raises:
            TrainingError: it is another.
        """
        if not torch.equal(digest.cpu(), self.digest):
            began = bytes(digest.cpu().tolist()).hex()[:SHOWN]
            raise TrainingError(
                f"The run began with another teacher ({began}...) than '{self.source}' is now "
                f"({bytes(self.digest.tolist()).hex()[:SHOWN]}...); bring that one back, or begin anew."
            )


class Taught(Method):
    """A method with a teacher, which may not be exchanged in the middle of a run."""

    teacher: Teacher

    def state_dict(self) -> Mapping[str, Held]:
        """Return which teacher it is."""
        return held({TEACHER: self.teacher.digest})

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Make sure that the teacher is still the same.

        Raises:
            TrainingError: it is another.
            ValueError: it is of another method.
        """
        if saved.keys() != {TEACHER}:
            raise ValueError("it is not of a method with a teacher")
        self.teacher.check_same(torch.as_tensor(saved[TEACHER]))


def check_one_class(task: Task) -> None:
    """Refuse images that may have several classes, whose answers cannot be compared so.

    Raises:
        ModelError: the task's may.
    """
    if not task.exclusive:
        raise ModelError(f"Distillation compares answers of one class an image, and these images {task.labelled}.")


def check_no_experts(network: Model) -> None:
    """Refuse a network with experts, whose tokens nothing would spread.

    Raises:
        ModelError: it has some.
    """
    if getattr(network.config, "experts", None) is not None:
        raise ModelError("This method has no loss that spreads tokens over experts; take a network without them.")


def check_one_head(network: Model) -> None:
    """Refuse a network with a distillation token, whose second head would learn nothing.

    Raises:
        ModelError: it has one.
    """
    if getattr(network.config, "distilled", False):
        raise ModelError(
            "The second head of a distilled network would learn nothing; take a network without a distillation token."
        )


def _affine(normalize: Normalize, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return scale and shift of a normalisation, for each channel, from what it makes of black and of white."""
    black, white = (
        normalize(torch.full((1, 3, 1, 1), value, dtype=torch.uint8, device=like.device)).float() for value in (0, 255)
    )
    return (white - black) / 255.0, black


def columns(teacher: Classifier, class_names: tuple[str, ...], source: str) -> Tensor | None:
    """Return which of a teacher's logits are the student's classes, in the student's order; None for all as they are.

    A teacher that knows no names, as weights without any, is taken to have the same classes in the same order.

    Raises:
        ModelError: the teacher does not know one of the classes; both lists are shown.
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


def chosen(logits: Float[Tensor, "batch known"], which: Tensor | None) -> Logits:
    """Return some of the logits, in another order."""
    return logits if which is None else logits[:, which.to(logits.device)]


@torch.no_grad()
def patch_width(network: Model) -> int:
    """Return the width of a network's patches, or of its last feature maps."""
    like = next(network.parameters())
    with evaluating(network):
        return network.encode(torch.zeros(1, 3, *network.image_size, device=like.device, dtype=like.dtype)).maps.shape[
            1
        ]


def announce(teacher: Teacher, which: Tensor | None, context: Context) -> None:
    """Say which teacher it is, and how its classes were matched."""
    classes = len(teacher.classifier.class_names)
    matched = "" if which is None else f", of which {len(which)} are matched by name"
    context.listener(Message(f"Teacher: {teacher.classifier.predictor.describe()}, {classes} classes{matched}."))

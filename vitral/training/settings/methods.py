"""The section of a recipe that says how a network learns: each method has its own, told apart by its name."""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitral import plugins
from vitral.errors import PluginError, did_you_mean
from vitral.training.settings.sections import Section


class MethodSettings(Section):
    """What can be set of a method; a method from elsewhere derives its own section from this one, with a name of its own.

    Attributes:
        name: of the method.
    """

    uses_labels: ClassVar[bool] = True
    mixes: ClassVar[bool] = True  # whether it can learn from images that are mixed

    name: str


class SupervisedSettings(MethodSettings):
    """Learn the labels by the loss of the section `objective`."""

    name: Literal["supervised"] = "supervised"


class MaskedPatchesSettings(MethodSettings):
    """Learn the colours of hidden patches (paper appendix B.1.2), which needs no labels.

    Attributes:
        share: of the patches that are hidden.
    """

    uses_labels = False
    mixes = False

    name: Literal["masked-patches"] = "masked-patches"
    share: float = Field(default=0.5, gt=0, lt=1)


class ProceduralSettings(MethodSettings):
    """Learn which symbols are hidden in sequences of nested brackets (arXiv 2511.13945), which needs no images.

    Attributes:
        kinds: of brackets (k).
        share: of the symbols that are hidden.
    """

    uses_labels = False
    mixes = False

    name: Literal["procedural"] = "procedural"
    kinds: int = Field(default=64, ge=1, le=100_000)
    share: float = Field(default=0.5, gt=0, lt=1)


class DistillationSettings(MethodSettings):
    """Learn from another classifier's answers to the same images, beside the labels or instead of them.

    Attributes:
        teacher: what `vitral.load` takes: a run or classifier folder, a weights file, published weights by name.
        answers: "hard", the teacher's most probable class, or "soft", all its probabilities.
        temperature: by which the logits of both are divided where answers are soft; 3 in DeiT's paper, 1 to 10 in function
            matching.
        weight: the teacher's share of the loss, the labels' being the rest: 0.5 in DeiT's hard distillation, 0.1 in its soft
            one; 1 for the teacher alone, which is function matching.
    """

    name: Literal["distillation"] = "distillation"
    teacher: str
    answers: Literal["hard", "soft"] = "hard"
    temperature: float = Field(default=1.0, gt=0)
    weight: float = Field(default=0.5, gt=0, le=1)

    @model_validator(mode="after")
    def _no_idle_settings(self) -> "DistillationSettings":
        if self.answers == "hard" and self.temperature != 1:
            raise ValueError("temperature belongs to soft answers")
        return self


class FeatureDistillationSettings(MethodSettings):
    """Learn another network's features and answers, which needs no labels.

    Attributes:
        teacher: what `vitral.load` takes.
        features: weight of the features' part of the loss: pooled ones by their angle, patches by their distance.
        answers: weight of the answers' part, the divergence of function matching; 0 for a teacher without a head, or one whose
            classes do not matter.
        temperature: by which the logits of both are divided.
    """

    uses_labels = False

    name: Literal["feature-distillation"] = "feature-distillation"
    teacher: str
    features: float = Field(default=1.0, gt=0)
    answers: float = Field(default=1.0, ge=0)
    temperature: float = Field(default=1.0, gt=0)


class NoisyStudentSettings(MethodSettings):
    """Learn the labels, and a teacher's answers to images without labels (Noisy Student, arXiv 1911.04252).

    Attributes:
        teacher: what `vitral.load` takes.
        unlabelled: data whose labels are not read, such as "unlabelled:FOLDER".
        ratio: images of them for each labelled one, and how much more their loss weighs; 14 and 28 in the paper, 1 and 3 in
            its code.
        confidence: the probability of its most probable class above which an image is learned from.
        per_class: images of each class that the teacher finds, those of rare classes several times, of frequent ones the
            surest; 130,000 in the paper. None for as many as a class has on average.
    """

    name: Literal["noisy-student"] = "noisy-student"
    teacher: str
    unlabelled: str
    ratio: float = Field(default=3.0, gt=0)
    confidence: float = Field(default=0.3, ge=0, lt=1)
    per_class: int | None = Field(default=None, ge=1)


class MetaPseudoLabelsSettings(MethodSettings):
    """A teacher that learns from how its student fares, beside the labels (Meta Pseudo Labels, arXiv 2003.10580).

    Attributes:
        unlabelled: data whose labels are not read, such as "unlabelled:FOLDER".
        ratio: images of them for each labelled one.
        magnitude: of the RandAugment of their strong view.
        student_wait: updates before the student learns.
        teacher_rate: the teacher's learning rate, as a multiple of the student's.
        uda_weight: of the teacher's consistency between the weak and the strong view (UDA), after `uda_steps`.
        uda_temperature: by which the weak view's logits are divided.
        uda_threshold: the probability from which on an image counts there.
        uda_steps: updates over which its weight grows.
        baseline: what stays, at an update, of the moving average that is taken off the student's progress.
    """

    mixes = False

    name: Literal["meta-pseudo-labels"] = "meta-pseudo-labels"
    unlabelled: str
    ratio: float = Field(default=7.0, gt=0)
    magnitude: float = Field(default=16.0, ge=0, le=30)
    student_wait: int = Field(default=3000, ge=0)
    teacher_rate: float = Field(default=1.0, gt=0)
    uda_weight: float = Field(default=8.0, ge=0)
    uda_temperature: float = Field(default=0.7, gt=0)
    uda_threshold: float = Field(default=0.6, ge=0, lt=1)
    uda_steps: int = Field(default=5000, ge=1)
    baseline: float = Field(default=0.99, ge=0, lt=1)


class SemanticSoftmaxSettings(MethodSettings):
    """A softmax on each level of a tree of labels (ImageNet-21K-P, arXiv 2104.10972).

    Attributes:
        tree: a text file with a line for each label: the label, a tab, and the one above it; or the label alone.
        heaviest: weight of a level at the most.
        teacher: a classifier of the same classes, whose answers are learned level by level, too; None for labels alone.
        distillation: weight of that.
    """

    name: Literal["semantic-softmax"] = "semantic-softmax"
    tree: str
    heaviest: float = Field(default=20.0, ge=1)
    teacher: str | None = None
    distillation: float = Field(default=1.0, gt=0)


class MaskedAutoencoderSettings(MethodSettings):
    """Rebuild hidden patches from the visible ones (MAE, arXiv 2111.06377), which needs no labels.

    Attributes:
        share: of the patches that are hidden, which the encoder never sees.
        decoder_depth: blocks of the decoder, which is thrown away in the end.
        decoder_width: of its tokens.
        decoder_heads: of its attention.
        normalized: whether each patch is to be rebuilt with a mean of 0 and a variance of 1.
    """

    uses_labels = False
    mixes = False

    name: Literal["masked-autoencoder"] = "masked-autoencoder"
    share: float = Field(default=0.75, gt=0, lt=1)
    decoder_depth: int = Field(default=8, ge=1, le=100)
    decoder_width: int = Field(default=512, ge=4, le=16384, multiple_of=4)
    decoder_heads: int = Field(default=16, ge=1)
    normalized: bool = True

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "MaskedAutoencoderSettings":
        if self.decoder_width % self.decoder_heads:
            raise ValueError(f"{self.decoder_heads} heads do not divide a width of {self.decoder_width}")
        return self


class LeJepaSettings(MethodSettings):
    """Make views of an image agree and all features an isotropic Gaussian (LeJEPA, arXiv 2511.08544), which needs no labels.

    Attributes:
        views: of every image.
        weight: of the Gaussian's part of the loss (lambda), the agreement's being the rest.
        dimensions: of a projection.
        hidden: width of the projector's two hidden layers.
        directions: along which projections are compared with a Gaussian, drawn anew at every step.
    """

    uses_labels = False
    mixes = False

    name: Literal["lejepa"] = "lejepa"
    views: int = Field(default=4, ge=2, le=32)
    weight: float = Field(default=0.02, gt=0, lt=1)
    dimensions: int = Field(default=16, ge=1, le=16384)
    hidden: int = Field(default=2048, ge=1, le=65536)
    directions: int = Field(default=256, ge=1, le=65536)


SECTIONS: dict[str, type[MethodSettings]] = {
    "supervised": SupervisedSettings,
    "masked-patches": MaskedPatchesSettings,
    "procedural": ProceduralSettings,
    "distillation": DistillationSettings,
    "feature-distillation": FeatureDistillationSettings,
    "noisy-student": NoisyStudentSettings,
    "meta-pseudo-labels": MetaPseudoLabelsSettings,
    "semantic-softmax": SemanticSoftmaxSettings,
    "masked-autoencoder": MaskedAutoencoderSettings,
    "lejepa": LeJepaSettings,
}


def _add(name: str, thing: object) -> None:
    """Add the section of a plugin's method."""
    section = getattr(thing, "Settings", None)
    if not (isinstance(section, type) and issubclass(section, MethodSettings)):
        raise PluginError(f"The method '{name}' must have its section of a recipe, a MethodSettings, as `Settings`.")
    if section.model_fields["name"].default != name or name in SECTIONS:
        raise PluginError(f"The method '{name}' must be called so in its section, and no other may be.")
    SECTIONS[name] = section


plugins.subscribe("method", _add)


def method_settings(values: Any) -> MethodSettings:  # noqa: ANN401  # whatever a recipe holds there
    """Return the section that a tree of values stands for; supervised learning where no name is given.

    Raises:
        ValueError: no such method, or what it refuses.
    """
    if isinstance(values, MethodSettings):
        return values
    if not isinstance(values, dict):
        raise ValueError("it is a section, not a value; set method.name")
    name = str(values.get("name", "supervised"))
    if name not in SECTIONS:
        raise ValueError(f"there is no method '{name}', only {', '.join(SECTIONS)}{did_you_mean(name, SECTIONS)}")
    return SECTIONS[name].model_validate(values)


def older_spelling(values: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with a method that is spelled as an objective, as earlier versions did, in its own section."""
    objective = values.get("objective")
    if not isinstance(objective, dict) or not {"masked_share"} & objective.keys() and objective.get("name") != MASKED:
        return values
    kept = {key: value for key, value in objective.items() if key != "masked_share"}
    if kept.get("name") != MASKED:
        return values | {"objective": kept}  # a share that meant nothing
    share = {"share": objective["masked_share"]} if "masked_share" in objective else {}
    del kept["name"]
    return values | {"objective": kept, "method": {"name": MASKED, **share}}


MASKED = "masked-patches"

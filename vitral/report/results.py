"""The content of a report: plain values, all optional except title and facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, UInt8

from vitral.data.source import BadImage
from vitral.evaluation.baselines import Baselines
from vitral.explanation.network import AttentionDistance
from vitral.images.decode import Pixels
from vitral.tasks.task import Result


@dataclass(frozen=True)
class Curve:
    """The history of one run; runs of one name, such as several seeds, share a colour.

    Each row has its "step" and figures by name: "loss", "accuracy", "validation/loss", "validation/accuracy".
    """

    name: str
    rows: Sequence[Mapping[str, int | float]]


@dataclass(frozen=True)
class CurveGroup:
    """Runs drawn into the same plots, under a title such as "Pre-training"."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Verdict:
    """What a reader must know about a result before anything else: a problem, its likely reason, the command that helps.

    The result is of no use if it `failed`; else it is only weaker, or less sure, than expected.
    """

    problem: str
    reason: str = ""
    command: str = ""
    failed: bool = True


@dataclass(frozen=True, eq=False)
class CaptionedImage:
    """An image, as pixels or an encoded PNG or JPEG, with its caption, which is the alternative text too."""

    content: Pixels | bytes
    caption: str


@dataclass(frozen=True, eq=False)
class AttentionImage:
    """A classified image, its file or its name in a built-in dataset, and the most probable class with its probability.

    The overlay has the relevance drawn over the image; there is none for a model at chance. `truth` is the class of the image,
    or its labels with commas, and `right` whether the most probable class is it, or one of them.
    """

    image: Pixels
    overlay: UInt8[np.ndarray, "drawn_height drawn_width 3"] | None
    truth: str
    predicted: str
    probability: float
    description: str
    right: bool


@dataclass(frozen=True, eq=False)
class PhotoPair:
    """A photo twice, small: with what is marked in it, and with what was found; its figure as it is to be read."""

    truth: Pixels
    found: Pixels
    figure: str
    note: str
    description: str


@dataclass(frozen=True)
class PhotoPairs:
    """Photos with regions on them under a heading each, and the classes that are there with their colours."""

    groups: tuple[tuple[str, tuple[PhotoPair, ...]], ...]
    classes: tuple[tuple[str, tuple[int, int, int]], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunReport:
    """Everything that a page may show, in order.

    Attributes:
        facts: The facts: network, data, recipe and so on, as pairs of name and value.
        summary: One or two sentences under the heading.
        verdict: What a reader must know first, such as that the model is no better than chance; the worst first.
        command: The command that reproduces it.
        following: The commands that one wants next, each with its purpose.
        plan: What was decided before the training and why, one line each; what belongs to another is indented.
        plan_title: The heading of that, which says what became of it.
        split: The split that `evaluation` is of.
        example_images: Images of the split by their position in it: those that the tables of `evaluation` name.
        patch_filters: Principal components of the patch embedding, values 0 to 1.
        kind: "run" or "scores"; a page replaces only one of its own kind.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    summary: str = ""
    verdict: tuple[Verdict, ...] = ()
    command: str = ""
    following: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    plan_title: str = ""
    bad_images: tuple[BadImage, ...] = ()
    images: tuple[CaptionedImage, ...] = ()
    curves: tuple[CurveGroup, ...] = ()
    baselines: Baselines | None = None
    evaluation: Result | None = None
    split: str = "test"
    example_images: Mapping[int, Pixels] = field(default_factory=dict)
    mistakes: tuple[AttentionImage, ...] = ()
    examples: tuple[AttentionImage, ...] = ()
    regions: PhotoPairs | None = None
    method: str = ""
    patch_filters: Float32[np.ndarray, "filters patch_height patch_width 3"] | None = None
    position_similarity: Float32[np.ndarray, "rows columns rows columns"] | None = None
    attention_distance: AttentionDistance | None = None
    kind: str = "scores"

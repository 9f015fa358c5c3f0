"""How good is a classifier whose images may have several labels, or none: average precision by class, F1, exact matches."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from vitral.errors import DataError, ModelError
from vitral.notebook import table

THRESHOLD = 0.5  # the probability from which a label counts as given


@dataclass(frozen=True)
class MultiLabelEvaluation:
    """The scores of a multi-label classifier on one split.

    Attributes:
        num_examples: images, each counted once.
        class_names: the classifier's labels, in order.
        mean_average_precision: mean over the labels that some image has, 0 to 1.
        average_precision: by label; None for a label that no image has.
        f1_micro: F1 over all decisions at a probability of 0.5.
        f1_macro: mean of the labels' own F1.
        exact_match: share of images whose labels are all right, and no other given.
        support: images by label.
    """

    num_examples: int
    class_names: tuple[str, ...]
    mean_average_precision: float
    average_precision: tuple[float | None, ...]
    f1_micro: float
    f1_macro: float
    exact_match: float
    support: tuple[int, ...]

    def __repr__(self) -> str:
        """Return the figures that matter most in one line; `to_json` gives them all."""
        return (
            f"MultiLabelEvaluation: mean average precision {self.mean_average_precision:.1%}, F1 {self.f1_micro:.1%}, "
            f"{self.num_examples:,} images, {len(self.class_names)} labels"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return table(
            "Evaluation",
            [
                ("Mean average precision", f"{self.mean_average_precision:.1%} on {self.num_examples:,} images"),
                ("Labels", f"{len(self.class_names):,}"),
                ("F1", f"{self.f1_micro:.1%}"),
                ("Exactly right", f"{self.exact_match:.1%}"),
            ],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "MultiLabelEvaluation":
        """Return the scores that `to_json` gave."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**fields)

    def scores(self) -> dict[str, float]:
        """Return the figures that a classifier keeps of itself."""
        return {"map": self.mean_average_precision, "f1": self.f1_micro, "exact_match": self.exact_match}

    def headline(self) -> float:
        """Return the one figure by which networks are compared, the larger the better."""
        return self.mean_average_precision

    def sentence(self, split: str) -> str:
        """Return the result in one sentence."""
        return (
            f"Mean average precision {self.mean_average_precision:.1%}, F1 {self.f1_micro:.1%} on {self.num_examples} "
            f"{split} images of {len(self.class_names)} labels."
        )


def evaluate_multi_label(
    probabilities: Float[Tensor, "examples classes"],
    labels: Float[Tensor, "examples classes"],
    *,
    class_names: Sequence[str],
) -> MultiLabelEvaluation:
    """Score predicted probabilities against the labels, 0 or 1 each.

    Raises:
        DataError: there are no images.
        ModelError: a probability is no number, as damaged weights give it.
    """
    values, truth = probabilities.double().numpy(), labels.numpy() > 0
    if not len(values):
        raise DataError("There are no images to evaluate; name a split that has some.")
    if not np.isfinite(values).all():
        raise ModelError("The network gives no number (NaN) for some images: its weights are damaged.")
    given = values >= THRESHOLD
    precision = tuple(
        float(average_precision_score(truth[:, place], values[:, place])) if truth[:, place].any() else None
        for place in range(truth.shape[1])
    )
    known = [value for value in precision if value is not None]
    return MultiLabelEvaluation(
        num_examples=len(values),
        class_names=tuple(class_names),
        mean_average_precision=float(np.mean(known)) if known else 0.0,
        average_precision=precision,
        f1_micro=float(f1_score(truth, given, average="micro", zero_division=0.0)),
        f1_macro=float(f1_score(truth, given, average="macro", zero_division=0.0)),
        exact_match=float((given == truth).all(axis=1).mean()),
        support=tuple(int(count) for count in truth.sum(axis=0)),
    )

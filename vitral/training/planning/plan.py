"""`Plan`: everything that is decided of a run before its first step; `Session` and `Run`: what it is decided of."""

import dataclasses
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.provenance import Provenance
from vitral.data.source import DataSet
from vitral.events import Listener
from vitral.images.augment import Augmentation
from vitral.models.cost import count_parameters
from vitral.models.model import Model
from vitral.models.naming import describe
from vitral.training.planning.attempts import Attempt
from vitral.training.planning.cost import Cost
from vitral.training.planning.request import Asked, Request
from vitral.training.settings.recipe import Recipe

FIRST_ALONE = (
    "A linear layer in closed form is fitted, on pixels or the frozen features of trained weights; nothing else."
)
FIRST_THEN = (
    "First a linear layer in closed form, on pixels or the frozen features of trained weights, saved at once; after training "
    "the better on the validation images is kept."
)

Origin = Literal["recipe", "model", "weights"]


@dataclass(frozen=True)
class Plan:
    """What `resolve` decides.

    Attributes:
        start: what the weights come from, as `finetune` takes it: a model's name or trained weights.
        origin: whether the network is the recipe's, one that is named next to it, or comes with trained weights.
        recipe: the settings, resolved.
        augmentation: of the training images.
        reasons: why these settings, one line each.
        cost: what training is expected to take; None before the network was measured.
        attempts: the ways to learn that are tried one after the other, the cheapest first; empty where there is one, the
            recipe's.
        from_probe: whether training begins with the linear probe as its head, where that is the first classifier.
        why_none: why nothing is trained; empty where something is.
    """

    start: str
    origin: Origin
    recipe: Recipe
    augmentation: Augmentation
    reasons: tuple[str, ...]
    cost: Cost | None = None
    attempts: tuple[Attempt, ...] = ()
    from_probe: bool = False
    why_none: str = ""

    def of(self, attempt: Attempt) -> "Plan":
        """Return the plan of one of the attempts."""
        recipe = self.recipe.with_changes(attempt.changes)
        return replace(
            self,
            recipe=recipe,
            augmentation=recipe.augmentation or self.augmentation,
            attempts=(),
            from_probe=attempt.from_probe,
        )


@dataclass(frozen=True)
class Session:
    """One command at work: what was asked, the folder that it has and the data that it read.

    Attributes:
        command: what the user asked for, of which this run may be a part.
        request: what is asked for of this run.
        folder: the run folder.
        data: what to learn.
        listener: receives messages and progress.
        started: `time.monotonic()` when the command began.
        loaded: the trained weights, where they were loaded before the data; for one run alone, which changes them.
        resume: whether the folder holds a run to continue with.
        further: whether a run that is finished continues: the user gave it more time.
        data_changed: whether the user said that the data may have changed since the run began.
        validate: whether to look at the validation split while training, and not only to score it at the end.
        exactly: whether a recipe was named, here or when the run began, or the run is one of a study: what is delivered is what
            that recipe trains, however it compares with simpler classifiers.
    """

    command: Asked
    request: Request
    folder: Path
    data: DataSet
    listener: Listener
    started: float
    loaded: Classifier | None = field(default=None, repr=False)
    resume: bool = False
    further: bool = False
    data_changed: bool = False
    validate: bool = True
    exactly: bool = False

    @property
    def budget_seconds(self) -> float | None:
        """The time that the run may take, measured from `started`; None for as long as it needs."""
        return self.request.asked.budget_seconds

    def left(self) -> float:
        """Return the seconds until the command must have ended; infinite without a budget."""
        budget = self.budget_seconds
        return math.inf if budget is None else budget - (time.monotonic() - self.started)


@dataclass(frozen=True)
class Run:
    """A plan with everything that it is carried out on.

    Attributes:
        session: what was asked, the folder and the data.
        plan: what was decided.
        classifier: the network in its starting state, with head, size, preprocessing and class names in place.
        judging: other data by which its features are followed; None for those that it learns from.
        learned: whether the trained weights that it starts from have learned from the same data before.
        scored: of training images, where there are no others to score on, how many are scored within the time; None for all.
    """

    session: Session
    plan: Plan
    classifier: Classifier
    judging: DataSet | None = None
    learned: bool = False
    scored: int | None = None

    @property
    def kind(self) -> str:
        """What the command was: "fine-tune" or "pre-train"."""
        return self.session.request.asked.kind

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.session.folder

    @property
    def data(self) -> DataSet:
        """What to learn."""
        return self.session.data

    @property
    def recipe(self) -> Recipe:
        """The settings, resolved."""
        return self.plan.recipe

    @property
    def cost(self) -> Cost:
        """What training is expected to take."""
        assert self.plan.cost is not None, "the network was not measured"
        return self.plan.cost

    @property
    def why_no_first(self) -> str:
        """Why the run has no first classifier before it trains; empty if it has one."""
        if self.kind != "fine-tune" or self.session.exactly:
            return "a recipe was named, and what it trains is delivered"
        if not self.session.request.asked.baselines:
            return f"no simple classifier is fitted with {argument('baselines', False)}"
        if not self.data.task.closed_form or not self.recipe.method.uses_labels:
            return "there is one only where every image has one class, and the network learns those"
        return ""

    def classifier_of(self, model: Model, provenance: Provenance | None = None) -> Classifier:
        """Return the run's classifier with a network in the state that training gave it, and images at that network's size."""
        return Classifier(
            model,
            self.classifier.preprocessing.with_size(model.image_size),
            self.classifier.class_names,
            provenance=provenance,
            task=self.data.task,
        )

    def lines(self) -> list[str]:
        """Return what the data are, the network, and every setting with its reason, a line each."""
        model, data = self.classifier.model, self.data
        alone = self.session.request.asked.quick or self.plan.why_none
        counts = ", ".join(f"{name} {count}" for name, count in data.counts().items())
        return [
            f"Found {data.name}: {data.what()}; images: {counts}.",
            *data.notes,
            f"Network: {describe(model.config)}, {count_parameters(model):,} parameters, images of "
            f"{model.image_size[0]}x{model.image_size[1]} pixels, from {self.classifier.provenance.source}.",
            *self.plan.reasons,
            *(() if self.why_no_first else (FIRST_ALONE if alone else FIRST_THEN,)),
        ]

    def __repr__(self) -> str:
        """Return the lines; `to_json` gives the figures."""
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        model, data, start = self.classifier.model, self.data, self.session.request.start
        return {
            "kind": self.kind,
            "data": {"name": data.name, "classes": len(data.class_names), "images": data.counts()},
            "notes": list(data.notes),
            "bad_images": [{"path": bad.path, "reason": bad.reason} for bad in data.bad_images],
            "network": {
                "name": describe(model.config),
                "parameters": count_parameters(model),
                "image_size": list(model.image_size),
                "source": self.classifier.provenance.source,
            },
            "start": None if start is None else dataclasses.asdict(start),
            "recipe": self.recipe.model_dump(mode="json"),
            "augmentation": dataclasses.asdict(self.plan.augmentation),
            "reasons": list(self.plan.reasons),
            "attempts": [dataclasses.asdict(attempt) for attempt in self.plan.attempts],
            "budget_seconds": self.session.budget_seconds,
            "cost": None if self.session.request.asked.quick else dataclasses.asdict(self.cost),
        }

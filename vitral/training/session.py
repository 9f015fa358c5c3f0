"""`Session`: one command at work; `Run`: a plan with everything that it is carried out on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import RANDOM, Provenance
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet, Routine, Source
from vitral.events import Listener
from vitral.models.families import count_parameters, describe
from vitral.models.model import Model
from vitral.tasks.task import Figure, Task
from vitral.training.choose.draft import Draft, why_no_first
from vitral.training.clock import Clock, Schedule
from vitral.training.facts import Facts
from vitral.training.methods.method import training_batches
from vitral.training.plan import Cost, Plan
from vitral.training.records.data_record import Further
from vitral.training.request import Request
from vitral.training.settings.durations import roughly, rounded
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import ObjectiveSettings

FIRST_ALONE = "A linear layer alone is fitted, in closed form: on pixels, or on the features of trained weights."
FIRST_THEN = (
    "First a linear layer is fitted, in closed form: on pixels, or on the features of trained weights. It is saved at once; "
    "after training the better one on the validation photos is selected."
)
FIRST_BELOW = (
    "First a linear layer is fitted, in closed form: on pixels, or on the features of trained weights. It is saved at once; as "
    "no validation photos compare them, it gives way to what is trained."
)
UNMEASURED = "measured after the first classifier"
PURPOSES = {"train": "training", "validation": "validation", "test": "testing"}


def _place(split: str) -> int:
    return [*PURPOSES, split].index(split)


@dataclass(frozen=True)
class Session:
    """One command at work: its request, the folder that it has and the data that it read.

    Attributes:
        command: What the user requested, of which this run may be a part.
        request: What is requested of this run.
        plan: The plan of a run that continues; None where it is to be made.
        draft: What the plan is made from; None where there is one.
        facts: What was looked at so far; None before that.
        loaded: The trained weights, where they are loaded; for one run alone, which changes them.
        more_time: Whether a run that is finished continues, because the user gave it more time.
        retry: Whether attempts that were given up are tried again.
        validate: Whether to validate while training, and not only to score at the end.
    """

    command: Request
    request: Request
    folder: Path
    data: DataSet
    clock: Clock
    listener: Listener
    plan: Plan | None = None
    draft: Draft | None = None
    facts: Facts | None = None
    loaded: Classifier | None = field(default=None, repr=False)
    more_time: bool = False
    retry: bool = False
    validate: bool = True

    @property
    def task(self) -> Task:
        """What a label is."""
        return self.data.task

    @property
    def headline(self) -> Figure:
        """The figure by which a classifier of the data is judged."""
        return self.task.headline

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.data.class_names)

    @property
    def splits(self) -> Mapping[str, Source]:
        """The images by split."""
        return self.data.splits

    @property
    def scored_images(self) -> Source:
        """The images that are scored at the end."""
        return self.splits[self.data.scored_split()]


@dataclass(frozen=True, kw_only=True)
class Run(Session):
    """A command that is planned: with everything that its plan is carried out on.

    Attributes:
        plan: What was decided.
        classifier: The network in its starting state, with head, size, preprocessing and class names in place.
        judging: Other data by which its features are followed; None for those that it learns from.
        schedule: How the time is expected to be spent; None where nothing is trained.
    """

    plan: Plan
    classifier: Classifier
    judging: DataSet | None = None
    schedule: Schedule | None = None

    @property
    def kind(self) -> str:
        """The command: "fine-tune" or "pre-train"."""
        return self.request.kind

    @property
    def model(self) -> Model:
        """The network in its starting state."""
        return self.classifier.model

    @property
    def source(self) -> str:
        """Where the weights come from, for people."""
        provenance = self.classifier.provenance
        return provenance.source

    @property
    def recipe(self) -> Recipe:
        """The settings of the network and of all attempts, but for what each of several changes."""
        return self.plan.recipe

    @property
    def objective(self) -> ObjectiveSettings:
        """The recipe's settings of what is minimised."""
        return self.recipe.objective

    @property
    def cost(self) -> Cost:
        """What training is expected to take."""
        assert self.plan.cost is not None, "the network was not measured"
        return self.plan.cost

    @property
    def why_no_first(self) -> str:
        """Why the run has no first classifier before it trains; empty if it has one."""
        return why_no_first(self.request, self.plan, self.task)

    def batches(self, further: Further | None = None) -> TrainingBatches:
        """Return the training images by step, as the network sees them; `further` is what `open_further` gave, if it did."""
        preprocessing = self.classifier.preprocessing
        return training_batches(
            self.splits["train"],
            self.recipe,
            image_size=self.model.image_size,
            augmentation=self.recipe.augmentation or self.plan.augmentation,
            task=self.task,
            num_classes=self.num_classes,
            fill=preprocessing.mean_colour,
            further=further,
            listener=self.listener,
        )

    def with_recipe(self, recipe: Recipe) -> "Run":
        """Return the run with the recipe of what it trained."""
        return replace(self, plan=replace(self.plan, recipe=recipe))

    def classifier_of(self, model: Model, provenance: Provenance | None = None) -> Classifier:
        """Return the run's classifier with a network in the state that training gave it, and images at that network's size."""
        begun = self.classifier
        preprocessing = begun.preprocessing
        return Classifier(
            model,
            preprocessing.with_size(model.image_size),
            begun.class_names,
            provenance=provenance,
            task=self.task,
        )

    def summary(self) -> tuple[str, ...]:
        """Return what was found, the model and the time, a line each: what one must know before the run begins."""
        data, model = self.data, self.model
        there = data.counts()
        counts = [f"{there[name]} for {PURPOSES.get(name, name)}" for name in sorted(there, key=_place)]
        counts[0] = counts[0].replace(" for", " photos for")
        height, width = model.image_size
        size = f"{height}" if height == width else f"{height}x{width}"
        network = f"{describe(model.config)}, {count_parameters(model) / 1e6:.2g} M parameters, photos at {size} pixels"
        return (
            f"Found   {data.what()} in {data.name}: {', '.join(counts)}",
            f"Model   {network}. {self._origin()}",
            f"Time    {self._duration()}",
        )

    def _origin(self) -> str:
        """Return where the weights come from, for people; of random ones why."""
        chosen = self.plan.chosen
        if chosen is not None and not chosen.name:
            return chosen.lines[0]
        return "Training starts from zero" if self.source.startswith(RANDOM) else f"Trained weights: {self.source}"

    def _duration(self) -> str:
        """Return how long the command is expected to take."""
        budget, planned = self.request.budget_seconds, self.schedule
        if planned is None:
            if self.request.quick or self.plan.why_none:
                left = "a linear layer alone, without training"
            elif self.request.resume:
                left = "as long as the rest of the training takes"
            else:
                return UNMEASURED if budget is None else f"stops after {rounded(budget)}"
            return left if budget is None else f"at most {rounded(budget)}: {left}"
        if budget is None:
            return f"about {roughly(planned.seconds)}"
        if planned.training >= self.cost.seconds:
            return f"stops after {rounded(budget)}"
        # Without a recipe the length and what is tried follow from the time: how long all would take is nowhere settled.
        whole = planned.seconds - planned.training + self.cost.seconds
        more = (
            f"the whole recipe takes about {roughly(whole)}"
            if self.request.recipe
            else "more time may give a better classifier"
        )
        return f"stops after {rounded(budget)} ({more})"

    def notes(self) -> list[str]:
        """Return what one must know of the data, a line each, besides what is done with all data."""
        return [note for note in self.data.notes if not isinstance(note, Routine)]

    def details(self) -> list[str]:
        """Return how the data were split and every setting with its reason, a line each."""
        alone, planned, chosen = self.request.quick or self.plan.why_none, self.schedule, self.plan.chosen
        judged = "validation" in self.data.splits
        said = () if chosen is None or chosen.name else chosen.lines  # with the model
        return [
            *(note for note in self.data.notes if isinstance(note, Routine)),
            *(reason for reason in self.plan.reasons if reason not in said),
            *(() if planned is None else (self.cost.sentence(), planned.sentence())),
            *(() if self.why_no_first else (FIRST_ALONE if alone else FIRST_THEN if judged else FIRST_BELOW,)),
        ]

    def lines(self) -> list[str]:
        """Return what was found, the model, the time, and every setting with its reason, a line each."""
        return [*self.summary(), *self.notes(), *self.details()]

    def __repr__(self) -> str:
        """Return the lines; `to_json` gives the figures."""
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        model, data, plan = self.model, self.data, self.plan.to_json()
        names = ("recipe", "augmentation", "reasons", "attempts", "cost")
        return {
            "kind": self.kind,
            "data": {"name": data.name, "classes": len(data.class_names), "images": data.counts()},
            "notes": list(data.notes),
            "bad_images": [asdict(bad) for bad in data.bad_images],
            "network": {
                "name": describe(model.config),
                "parameters": count_parameters(model),
                "image_size": list(model.image_size),
                "source": self.source,
            },
            "start": plan["chosen"],
            **{name: plan[name] for name in names},
            "budget_seconds": self.request.budget_seconds,
            "schedule": None if self.schedule is None else vars(self.schedule),
        }

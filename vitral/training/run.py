"""One run, whatever its kind: pictures, baselines, training, classifier, scores, all in one folder.

runs/photos/
  recipe.toml        the settings as resolved; running it again gives the same weights
  run.json           command, data, machine, versions
  pictures/          what the network saw
  baselines.json     k-nearest-neighbour and linear probe on the frozen features, before training
  metrics.jsonl      loss, accuracy and learning rate by step
  tensorboard/       the same for TensorBoard
  checkpoints/       what a resumed run goes on from
  classifier/        the result
  evaluation.json    its scores on the test split
"""

import dataclasses
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from vitral.classifier.classifier import Classifier, Provenance
from vitral.classifier.folder import save
from vitral.classifier.load import RUN_CLASSIFIER
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet, Source
from vitral.errors import TrainingError
from vitral.evaluation.evaluate import evaluate_source, predict_probabilities
from vitral.evaluation.fewshot import Baselines, score_baselines
from vitral.evaluation.metrics import Evaluation
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.images.augment import Augmentation
from vitral.images.contact_sheet import contact_sheet
from vitral.models.catalog import describe
from vitral.models.cost import count_parameters
from vitral.models.model import Model
from vitral.models.vit import ViT
from vitral.training.environment import environment
from vitral.training.loop import RECIPE_FILE, TrainingResult, Validate, train
from vitral.training.recipe import Recipe

Kind = Literal["fine-tune", "pre-train"]
RUNS = Path("runs")
RUN_FILE = "run.json"  # what a run started from, on what data and machine
VALIDATION_PICTURES = 2000  # of an endless source, which has no last picture


@dataclass(frozen=True)
class Plan:
    """Everything decided before the first step.

    Attributes:
        kind: fine-tune or pre-train.
        folder: the run folder.
        data: what to learn.
        data_spec: how the user named it.
        start: what the weights came from, as `finetune` takes it; None where the recipe says it.
        classifier: the network in its starting state, with head, size, preprocessing and class names in place.
        recipe: the settings, resolved.
        augmentation: of the training pictures.
        reasons: why these settings, one line each.
        budget_seconds: the time that the run may take, measured from `started`; None for as long as it needs.
        started: `time.monotonic()` when the command began.
        resume: whether the folder holds a run to go on with.
        baselines: whether to score the frozen features first.
    """

    kind: Kind
    folder: Path
    data: DataSet
    data_spec: str
    start: str | None
    classifier: Classifier
    recipe: Recipe
    augmentation: Augmentation
    reasons: tuple[str, ...]
    budget_seconds: float | None
    started: float
    resume: bool
    baselines: bool


@dataclass(frozen=True)
class RunResult:
    """What a run gave.

    Attributes:
        plan: what was decided.
        training: steps, history and speed.
        classifier: the finished classifier.
        classifier_folder: where it lies.
        baselines: scores of the frozen features, where they were asked for.
        evaluation: scores on the test split, or on the validation split of a source without one.
        seconds: the whole run's time.
    """

    plan: Plan
    training: TrainingResult
    classifier: Classifier
    classifier_folder: Path
    baselines: Baselines | None
    evaluation: Evaluation
    seconds: float

    @property
    def split(self) -> str:
        """The split that `evaluation` is of."""
        return scored_split(self.plan.data)

    def command(self) -> str:
        """Return what one would type to make the run again."""
        plan = self.plan
        verb = "finetune" if plan.kind == "fine-tune" else "pretrain"
        start = "" if plan.start is None else f"--from {shlex.quote(plan.start)} "
        recipe = shlex.quote(str(plan.folder / RECIPE_FILE))
        return f"vitral {verb} --data {shlex.quote(plan.data_spec)} {start}--recipe {recipe}"

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        return {
            "folder": str(self.plan.folder),
            "classifier": str(self.classifier_folder),
            "steps": self.training.steps,
            "seconds": self.seconds,
            "baselines": None if self.baselines is None else dataclasses.asdict(self.baselines),
            "evaluation": self.evaluation.to_json(),
        }

    def next_commands(self) -> list[str]:
        """Return the commands that a user would want next, ready to paste."""
        example = self.plan.data.splits[self.split].describe(0)
        picture = shlex.quote(example if Path(example).is_file() else "PICTURE.jpg")
        data, folder = shlex.quote(self.plan.data_spec), shlex.quote(str(self.plan.folder))
        lines = [
            "Next:",
            f"  vitral evaluate --data {data} --classifier {folder}",
            f"  vitral predict {picture} --classifier {folder}",
        ]
        if isinstance(self.classifier.model, ViT):  # the others have no attention to show
            lines.append(f"  vitral explain {picture} --classifier {folder}")
        return lines


def scored_split(data: DataSet) -> str:
    """Return the split that a run is scored on: test, or validation where there is no test."""
    return "test" if "test" in data.splits else "validation"


def free_folder(name: str) -> Path:
    """Return runs/NAME, or runs/NAME-2 and so on where that is taken."""
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip("-.") or "run"
    folder, number = RUNS / stem, 1
    while folder.exists():
        number += 1
        folder = RUNS / f"{stem}-{number}"
    return folder


def execute(plan: Plan, listener: Listener) -> RunResult:
    """Carry out a plan."""
    _announce(plan, listener)
    _write_description(plan)
    batches = TrainingBatches(
        plan.data.splits["train"],
        batch_size=plan.recipe.batch_size,
        image_size=plan.classifier.model.image_size,
        augmentation=plan.augmentation,
        seed=plan.recipe.seed,
    )
    _write_pictures(plan, batches)
    baselines = _baselines(plan, listener) if plan.baselines else None
    training = train(
        plan.classifier.model,
        batches,
        recipe=plan.recipe,
        normalize=plan.classifier.preprocessing.normalize,
        folder=plan.folder,
        validate=_validation(plan),
        resume=plan.resume,
        budget_seconds=_time_left(plan),
        listener=listener,
    )
    return _finish(plan, training, baselines, listener)


def _announce(plan: Plan, listener: Listener) -> None:
    model = plan.classifier.model
    counts = ", ".join(f"{name} {_count(split)}" for name, split in plan.data.splits.items())
    lines = [
        f"Found {plan.data.name}: {len(plan.data.class_names)} classes; pictures: {counts}.",
        *plan.data.notes,
        f"Network: {describe(model.config)}, {count_parameters(model):,} parameters, pictures of "
        f"{model.image_size[0]}x{model.image_size[1]} pixels, from {plan.classifier.provenance.source}.",
        *plan.reasons,
        f"Run folder: {plan.folder}",
    ]
    for line in lines:
        listener(Message(line))
    for bad in plan.data.bad_images:
        listener(Message(f"Left out: {bad.path} ({bad.reason})", warning=True))


def _count(source: Source) -> str:
    return "endless" if source.endless else str(len(source))


def _write_description(plan: Plan) -> None:
    path = plan.folder / RUN_FILE
    if plan.resume and path.is_file():
        return  # it tells how the run began, and the resumption may yet be refused
    description = {
        "kind": plan.kind,
        "data": plan.data_spec,
        "data_fingerprint": plan.data.fingerprint,
        "from": plan.start,
        "source": plan.classifier.provenance.source,
        "class_names": list(plan.data.class_names),
        "pictures": {name: _count(split) for name, split in plan.data.splits.items()},
        "notes": list(plan.data.notes),
        "bad_images": [dataclasses.asdict(bad) for bad in plan.data.bad_images],
        "environment": environment(),
    }
    write_file(path, json.dumps(description, indent=2, default=str))


def _write_pictures(plan: Plan, batches: TrainingBatches) -> None:
    path = plan.folder / "pictures" / "training.png"
    if plan.resume and path.is_file():
        return
    batch = batches.batch(0)
    names = plan.data.class_names
    images = list(batch.images[:32].permute(0, 2, 3, 1).numpy())
    labels = [names[label] for label in batch.labels[:32].tolist()]
    write_file(path, contact_sheet(images, labels))


def _baselines(plan: Plan, listener: Listener) -> Baselines:
    path = plan.folder / "baselines.json"
    if plan.resume and path.is_file():
        return Baselines(**json.loads(path.read_text()))
    baselines = score_baselines(plan.classifier, plan.data, listener=listener)
    write_file(path, json.dumps(dataclasses.asdict(baselines)))
    listener(
        Message(
            f"Before training, on the network's frozen features: k-nearest-neighbour {baselines.knn:.1%}, "
            f"linear probe {baselines.linear_probe:.1%} of {baselines.split}. Fine-tuning should beat both."
        )
    )
    return baselines


def _validation(plan: Plan) -> Validate | None:
    source = plan.data.splits.get("validation")
    if source is None:
        return None

    def validate(model: Model) -> dict[str, float]:
        # The averaged network is not the one that the plan began with, only of its kind.
        classifier = Classifier(model, plan.classifier.preprocessing, plan.classifier.class_names)
        probabilities, labels = predict_probabilities(classifier, source, limit=VALIDATION_PICTURES)
        correct = probabilities.argmax(dim=1) == labels
        picked = probabilities[torch.arange(len(labels)), labels].clamp_min(1e-12)
        return {
            "validation/accuracy": float(correct.float().mean()),
            "validation/loss": float(-np.log(picked.double().numpy()).mean()),
        }

    return validate


def _time_left(plan: Plan) -> float | None:
    if plan.budget_seconds is None:
        return None
    left = plan.budget_seconds - (time.monotonic() - plan.started)
    if left <= 0:
        raise TrainingError("The time budget was used up before training began; give the run more with --time.")
    return left


def _finish(plan: Plan, training: TrainingResult, baselines: Baselines | None, listener: Listener) -> RunResult:
    split = scored_split(plan.data)
    evaluation = evaluate_source(plan.classifier, plan.data.splits[split], limit=VALIDATION_PICTURES, listener=listener)
    classifier = Classifier(
        plan.classifier.model.cpu(),
        plan.classifier.preprocessing,
        plan.classifier.class_names,
        provenance=_provenance(plan, training, evaluation, split),
    )
    folder = save(classifier, plan.folder / RUN_CLASSIFIER)
    write_file(plan.folder / "evaluation.json", json.dumps(evaluation.to_json(), indent=2))
    seconds = time.monotonic() - plan.started
    return RunResult(plan, training, classifier, folder, baselines, evaluation, seconds)


def _provenance(plan: Plan, training: TrainingResult, evaluation: Evaluation, split: str) -> Provenance:
    scores = {f"{split}/top1": evaluation.top1, f"{split}/ece": evaluation.ece, f"{split}/nll": evaluation.nll}
    return Provenance(
        source=plan.classifier.provenance.source,
        training={
            "kind": plan.kind,
            "data": plan.data_spec,
            "data_fingerprint": plan.data.fingerprint,
            "steps": training.steps,
            "recipe": plan.recipe.model_dump(mode="json"),
            "environment": environment(),
        },
        scores=scores,
    )

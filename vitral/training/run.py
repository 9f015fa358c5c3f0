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
import math
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from vitral import distributed
from vitral.classifier.classifier import BASELINE, Classifier, Provenance
from vitral.classifier.folder import save
from vitral.classifier.load import RUN_CLASSIFIER
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet, Source
from vitral.errors import TrainingError
from vitral.evaluation.evaluate import AnyEvaluation, evaluate_source, predict_probabilities
from vitral.evaluation.fewshot import Baselines, extract_features, fit_linear_probe, score_baselines
from vitral.evaluation.multilabel import evaluate_multi_label
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.images.augment import Augmentation
from vitral.images.contact_sheet import contact_sheet
from vitral.models.catalog import describe
from vitral.models.cost import count_parameters
from vitral.models.model import Model
from vitral.training.asked import Asked, command_of, kept, read_run
from vitral.training.budget import Budget, Reserve
from vitral.training.data_record import check_data, data_changes, keep_data, record_change
from vitral.training.environment import environment, git_state
from vitral.training.estimate import Cost
from vitral.training.loop import TrainingResult, Validate, train
from vitral.training.mixing import mixes
from vitral.training.recipe import Recipe
from vitral.training.recipe_file import RECIPE_FILE
from vitral.training.rehearsal import REHEARSAL_SHARE, Allowance, allow, limited, time_images
from vitral.training.run_folder import RUN_FILE
from vitral.training.state import CHECKPOINTS, newest_state

Kind = Literal["fine-tune", "pre-train"]
VALIDATION_PICTURES = 2000  # of an endless source, which has no last picture
PROBE_PICTURES = 4000  # likewise, to fit a head on
UNSCORED = (
    "There are no images to validate or score on, so the scores will be of the training images themselves: give a class at "
    "least three images, or put some into a val/ folder."
)
WORTHWHILE_STEPS = 50  # that a budget should have room for, when another is proposed
RESUMED = "resumed_with"  # in run.json: other means than those it began with
BITS = ("threads", "torch", "processor", "accelerator")  # of the environment: what changes the last bits
FEW_PICTURES = 5000  # for which starting workers takes longer than they save


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
        cost: what training is expected to take.
        resume: whether the folder holds a run to go on with.
        baselines: whether to score the frozen features first.
        asked: what the user asked for.
        further: whether a run that is finished goes on: the user gave it more time.
        data_changed: whether the user said that the data may have changed since the run began.
        validate: whether to look at the validation split while training, and not only to score it at the end.
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
    cost: Cost
    resume: bool
    baselines: bool
    asked: Asked
    further: bool = False
    data_changed: bool = False
    validate: bool = True

    def left(self) -> float:
        """Return the seconds until the command must have ended; infinite without a budget."""
        return math.inf if self.budget_seconds is None else self.budget_seconds - (time.monotonic() - self.started)


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
    evaluation: AnyEvaluation
    seconds: float

    @property
    def split(self) -> str:
        """The split that `evaluation` is of."""
        return self.plan.data.scored_split()

    def command(self) -> str:
        """Return what was typed, and what one would type for the same weights again, a line each."""
        plan = self.plan
        first = kept(plan.folder) or plan.asked
        again = dataclasses.replace(plan.asked, source=plan.start, model=None, sweep=False)
        return "\n".join(
            (
                shlex.join(command_of(first)),
                f"{shlex.join(command_of(again, recipe=str(plan.folder / RECIPE_FILE)))}  # the same weights again",
            )
        )

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
        return [
            "Next:",
            f"  vitral evaluate --data {data} --classifier {folder}"
            + (" --split train" if self.split == "train" else ""),
            f"  vitral predict {picture} --classifier {folder}",
            f"  vitral explain {picture} --classifier {folder}",
        ]


def execute(plan: Plan, listener: Listener) -> RunResult:
    """Carry out a plan."""
    _announce(plan, listener)
    plan, validating, budget = _within_time(plan, listener)
    batches = TrainingBatches(
        plan.data.splits["train"],
        batch_size=plan.recipe.batch_size,
        image_size=plan.classifier.model.image_size,
        augmentation=plan.augmentation,
        seed=plan.recipe.seed,
        num_classes=len(plan.data.class_names) if plan.data.multi_label else None,
        rank=distributed.rank(),
        world=distributed.world(),
        lead=mixes(plan.recipe.mixing),
        fill=plan.classifier.preprocessing.mean_colour,
    )
    _check_data(plan, listener)
    if distributed.is_main():
        _write_description(plan)
        _write_pictures(plan, batches)
    # Several labels have neither neighbours' votes nor a closed form of the kind.
    comparable = not plan.data.multi_label and plan.data.scored_split() != "train"
    baselines = _baselines(plan, listener) if plan.baselines and comparable else None
    training = train(
        plan.classifier.model,
        batches,
        recipe=plan.recipe,
        normalize=plan.classifier.preprocessing.normalize,
        folder=plan.folder,
        validate=_validation(plan, validating),
        resume=plan.resume,
        further=plan.further,
        remarks=_remarks(plan),
        budget=budget,
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
    if plan.data.scored_split() == "train":
        listener(Message(UNSCORED, warning=True))
    for bad in plan.data.bad_images:
        listener(Message(f"Left out: {bad.path} ({bad.reason})", warning=True))


def _count(source: Source) -> str:
    return "endless" if source.endless else str(len(source))


def _write_description(plan: Plan) -> None:
    begun = read_run(plan.folder)
    if "environment" in begun:
        return  # it tells how the run began
    description = begun | {
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
        "git": git_state(),
    }
    write_file(plan.folder / RUN_FILE, json.dumps(description, indent=2, default=str))
    keep_data(plan.folder, plan.data)


def _check_data(plan: Plan, listener: Listener) -> None:
    """Refuse to go on with other data, or note it if the user allows them; warn of what else changes the last bits."""
    if not plan.resume:
        return
    refusal: TrainingError | None = None
    if distributed.is_main():
        try:
            changed = check_data(plan.folder, plan.data, changed=plan.data_changed)
            if changed:
                state = newest_state(plan.folder / CHECKPOINTS)
                record_change(plan.folder, plan.data, changed, step=0 if state is None else state.step)
                listener(
                    Message(
                        f"The data changed since the run began, and it goes on: {'; '.join(changed)}.", warning=True
                    )
                )
            _compare_machines(plan, listener)
        except TrainingError as error:
            refusal = error
    if refusal := distributed.broadcast(refusal):
        raise refusal


def _compare_machines(plan: Plan, listener: Listener) -> None:
    run = read_run(plan.folder)
    before, now = run.get("environment"), environment()
    if not isinstance(before, dict):
        return
    if differences := [
        f"{key} {before.get(key)}, now {now.get(key)}" for key in BITS if before.get(key) != now.get(key)
    ]:
        listener(
            Message(
                f"The run began with other means ({'; '.join(differences)}): it goes on, but its last bits will be others than "
                "those of a run that was not interrupted.",
                warning=True,
            )
        )
        resumed = run.get(RESUMED)
        entry = {key: now.get(key) for key in BITS}
        write_file(plan.folder / RUN_FILE, json.dumps(run | {RESUMED: [*(resumed or []), entry]}, indent=2))


def _remarks(plan: Plan) -> tuple[str, ...]:
    """Return why running the recipe again would not give the same weights, one line each."""
    run = read_run(plan.folder)
    remarks = [f"the data changed after step {change.get('after_step')}" for change in data_changes(plan.folder)]
    remarks += (
        ["it was gone on with by other means (threads, versions or processor; see run.json)"]
        if run.get(RESUMED)
        else []
    )
    return tuple(remarks)


def _write_pictures(plan: Plan, batches: TrainingBatches) -> None:
    path = plan.folder / "pictures" / "training.png"
    if plan.resume and path.is_file():
        return
    batch = batches.batch(0)
    images = list(batch.images[:32].permute(0, 2, 3, 1).numpy())
    labels = [_named(plan.data, index) for index in batch.indices[:32].tolist()]
    write_file(path, contact_sheet(images, labels))


def _named(data: DataSet, index: int) -> str:
    label = data.splits["train"].label(index)
    return ", ".join(data.class_names[place] for place in (label if isinstance(label, tuple) else (label,)))


def _baselines(plan: Plan, listener: Listener) -> Baselines:
    path = plan.folder / "baselines.json"
    if plan.resume and path.is_file():
        return Baselines(**json.loads(path.read_text()))
    baselines = score_baselines(plan.classifier, plan.data, listener=listener)
    if distributed.is_main():
        write_file(path, json.dumps(dataclasses.asdict(baselines)))
    listener(
        Message(
            f"Before training, on the network's frozen features: k-nearest-neighbour {baselines.knn:.1%}, "
            f"linear probe {baselines.linear_probe:.1%} of {baselines.split}. Fine-tuning should beat both."
        )
    )
    return baselines


def _validation(plan: Plan, source: Source | None) -> Validate | None:
    if source is None or not plan.validate or plan.recipe.objective.name == "masked-patches":
        return None  # a head that nothing has trained has nothing to say

    def validate(model: Model, listener: Listener) -> dict[str, float]:
        classifier = _classifier(plan, model)
        probabilities, labels = predict_probabilities(
            classifier, source, limit=VALIDATION_PICTURES, workers=_workers(plan), listener=listener
        )
        if not torch.isfinite(probabilities).all():
            return {"validation/accuracy": math.nan}
        if plan.data.multi_label:
            scores = evaluate_multi_label(probabilities, labels, class_names=classifier.class_names)
            return {"validation/map": scores.mean_average_precision, "validation/f1": scores.f1_micro}
        correct = probabilities.argmax(dim=1) == labels
        picked = probabilities[torch.arange(len(labels)), labels].clamp_min(1e-12)
        return {
            "validation/accuracy": float(correct.float().mean()),
            "validation/loss": float(-np.log(picked.double().numpy()).mean()),
        }

    return validate


def _within_time(plan: Plan, listener: Listener) -> tuple[Plan, Source | None, Budget]:
    """Return the plan with as many images to score on as the budget allows, those of each validation, and the budget."""
    splits, split = plan.data.splits, plan.data.scored_split()
    validation = splits.get("validation")
    if plan.budget_seconds is None:
        return plan, validation, Budget(None)
    seconds = REHEARSAL_SHARE * plan.budget_seconds
    image_seconds = time_images(plan.classifier, splits[split], seconds)
    counts = {"validation": 0 if validation is None else len(validation), "scored": len(splits[split])}
    allowed = distributed.broadcast(allow(image_seconds, plan.left(), **counts))
    _refuse_too_short(plan, allowed)
    seed = plan.recipe.seed
    validating = None if validation is None else limited(plan.data, "validation", allowed.validation, seed=seed)
    scored = limited(plan.data, split, allowed.scored, seed=seed)
    reasons = plan.reasons
    if allowed.validation < counts["validation"] or allowed.scored < counts["scored"]:
        reasons = (*reasons, _cut(plan, allowed, counts))
        listener(Message(reasons[-1]))
    plan = replace(plan, data=replace(plan.data, splits={**splits, split: scored}), reasons=reasons)
    reserve = Reserve(
        validation=allowed.validation * allowed.image_seconds,
        scoring=allowed.scored / allowed.validation if allowed.validation else 0.0,
        ending=allowed.ending + (0.0 if allowed.validation else allowed.scored * allowed.image_seconds),
    )
    return plan, validating, Budget(plan.budget_seconds, started=plan.started, reserve=reserve)


def _cut(plan: Plan, allowed: Allowance, counts: dict[str, int]) -> str:
    split = plan.data.scored_split()
    return (
        f"To keep --time, each validation is of {allowed.validation:,} of {counts['validation']:,} images and the score of "
        f"{allowed.scored:,} of {counts['scored']:,} {split} images; 'vitral evaluate' scores all."
    )


def _refuse_too_short(plan: Plan, allowed: Allowance) -> None:
    left, step = plan.left(), plan.recipe.batch_size / plan.cost.images_per_second
    needed = allowed.least + step
    if plan.budget_seconds is None or not distributed.broadcast(left < needed):
        return
    spent = plan.budget_seconds - left
    least = math.ceil((spent + needed) * 1.2 + WORTHWHILE_STEPS * step)
    raise TrainingError(
        f"--time {plan.budget_seconds:.0f}s is too short: {spent:.0f} s went by before training could begin, and one step with "
        f"scoring and report takes about {needed:.0f} s more. Give it at least --time {least}s."
    )


def _finish(plan: Plan, training: TrainingResult, baselines: Baselines | None, listener: Listener) -> RunResult:
    split = plan.data.scored_split()
    trained = _classifier(plan, training.model)
    if plan.recipe.objective.name == "masked-patches":
        _fit_head(plan, trained, listener)
    evaluation = evaluate_source(
        trained, plan.data.splits[split], limit=VALIDATION_PICTURES, workers=_workers(plan), listener=listener
    )
    classifier = _classifier(plan, training.model.cpu(), _provenance(plan, training, evaluation, baselines, split))
    folder = plan.folder / RUN_CLASSIFIER
    if distributed.is_main():
        save(classifier, folder)
        write_file(plan.folder / "evaluation.json", json.dumps(evaluation.to_json(), indent=2))
    distributed.barrier()
    seconds = time.monotonic() - plan.started
    return RunResult(plan, training, classifier, folder, baselines, evaluation, seconds)


def _classifier(plan: Plan, model: Model, provenance: Provenance | None = None) -> Classifier:
    return Classifier(
        model,
        plan.classifier.preprocessing,
        plan.classifier.class_names,
        provenance=provenance,
        multi_label=plan.data.multi_label,
    )


def _workers(plan: Plan) -> int:
    return 0 if len(plan.data.splits["train"]) < FEW_PICTURES else plan.recipe.workers


def _fit_head(plan: Plan, classifier: Classifier, listener: Listener) -> None:
    """Give a network that learned without labels a head, in closed form on its features, so that it is a classifier."""
    train = plan.data.splits["train"]
    features, labels = extract_features(classifier, train, limit=PROBE_PICTURES, listener=listener)
    weight, bias = fit_linear_probe(features, labels)
    head = classifier.model.head
    with torch.no_grad():
        head.weight[: len(weight)].copy_(weight)
        head.bias.copy_(functional.pad(bias, (0, len(head.bias) - len(bias)), value=-math.inf))
    listener(
        Message("The network learned without labels; its head is a linear probe on the training pictures' features.")
    )


def _provenance(
    plan: Plan, training: TrainingResult, evaluation: AnyEvaluation, baselines: Baselines | None, split: str
) -> Provenance:
    scores = {f"{split}/{name}": value for name, value in evaluation.scores().items()}
    beside = {} if baselines is None else dataclasses.asdict(baselines)
    scores |= {
        f"{split}{BASELINE}{name}": value
        for name, value in beside.items()
        if isinstance(value, float) and beside["split"] == split
    }
    return Provenance(
        source=plan.classifier.provenance.source,
        training={
            "kind": plan.kind,
            "data": plan.data_spec,
            "data_fingerprint": plan.data.fingerprint,
            "data_changes": data_changes(plan.folder),
            "steps": training.steps,
            "skipped_batches": list(training.skipped),
            "recipe": plan.recipe.model_dump(mode="json"),
            "environment": environment(),
        },
        scores=scores,
    )

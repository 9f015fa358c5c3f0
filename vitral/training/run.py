"""One run, whatever its kind: images, baselines, training, classifier, scores, all in one folder.

runs/photos/
  recipe.toml        the settings as resolved; running it again gives the same weights
  run.json           command, data, machine, versions
  images/          what the network saw
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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch.nn import functional

from vitral import distributed
from vitral.classifier.classifier import BASELINE, Classifier, Provenance
from vitral.classifier.folder import save, update_provenance
from vitral.classifier.load import RUN_CLASSIFIER
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet, Source
from vitral.described import fits
from vitral.errors import TrainingError
from vitral.evaluation.evaluate import AnyEvaluation, evaluate_source, predict_probabilities
from vitral.evaluation.fewshot import Baselines, extract_features, fit_linear_probe, score_baselines
from vitral.evaluation.multilabel import evaluate_multi_label
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.images.contact_sheet import contact_sheet
from vitral.models.catalog import describe
from vitral.models.cost import count_parameters
from vitral.models.model import Model
from vitral.notebook import curve, table
from vitral.training.diagnosis import Diagnosis, diagnose_run, merged, too_late
from vitral.training.loop import TrainingResult, Validate, train
from vitral.training.mixing import mixes
from vitral.training.planning.budget import overrun
from vitral.training.planning.plan import Plan
from vitral.training.planning.rehearsal import within_time
from vitral.training.records.asked import ask_again, command_of, last_asked, read_run
from vitral.training.records.checkpoints import CHECKPOINTS, newest_state
from vitral.training.records.data_record import check_data, data_changes, keep_data, record_change, redrawn
from vitral.training.records.environment import environment, git_state
from vitral.training.records.recipe_file import RECIPE_FILE, kept_remarks, recipe_begun
from vitral.training.records.run_folder import RUN_FILE

VALIDATION_IMAGES = 2000  # of an endless source, which has no last image
PROBE_IMAGES = 4000  # likewise, to fit a head on
BASELINE_SHARE = 0.05  # of the budget, or of the time that training is expected to take, for baselines
BASELINE_SECONDS = 5.0  # that they may take in any case, where there is no budget
UNSCORED = (
    "There are no images to validate or score on, so the scores will be of the training images themselves: give a class at "
    "least three images, or put some into a val/ folder."
)
RESUMED = "resumed_with"  # in run.json: other means than those it began with
BITS = ("threads", "torch", "processor", "accelerator")  # of the environment: what changes the last bits
FEW_IMAGES = 5000  # for which starting workers takes longer than they save


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
        diagnosis: what is wrong with the result, the worst first; empty if nothing is.
    """

    plan: Plan
    training: TrainingResult
    classifier: Classifier
    classifier_folder: Path
    baselines: Baselines | None
    evaluation: AnyEvaluation
    seconds: float
    diagnosis: tuple[Diagnosis, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the result is of no use."""
        return any(found.failed for found in self.diagnosis)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        losses = [row["loss"] for row in self.training.history if "loss" in row]
        return table(f"Run {self.plan.folder}", self._facts(), below=curve(losses, "training loss by step"))

    def _facts(self) -> list[tuple[str, str]]:
        steps, folder = f"{self.training.steps:,} steps in {self.seconds:.0f} s", str(self.classifier_folder)
        return [
            *(("Beware" if found.failed else "Note", found.sentence()) for found in merged(self.diagnosis)),
            ("Result", self.evaluation.sentence(self.split)),
            ("Length", steps),
            ("Classifier", folder),
        ]

    def at_its_end(self) -> "RunResult":
        """Return the result with the time that the command took by now, and with that called late if it is."""
        seconds, budget = time.monotonic() - self.plan.started, self.plan.budget_seconds
        diagnosis = self.diagnosis
        if budget is not None and overrun(seconds, budget):
            diagnosis = (*diagnosis, too_late(seconds, budget))
        return replace(self, seconds=seconds, diagnosis=diagnosis)

    def __repr__(self) -> str:
        """Return what came out in three lines; `to_json` gives the figures."""
        done = f"{self.plan.kind} on {self.plan.data.name}, {self.training.steps:,} steps, {self.seconds:.0f} s"
        return f"RunResult: {done}\n{self.evaluation.sentence(self.split)}\nclassifier in {self.classifier_folder}"

    @property
    def split(self) -> str:
        """The split that `evaluation` is of."""
        return self.plan.data.scored_split()

    def command(self) -> str:
        """Return what was last asked, and what one would type to run its recipe again and what that gives, a line each."""
        plan = self.plan
        asked = last_asked(plan.folder) or plan.asked
        again = dataclasses.replace(plan.asked, source=plan.start, model=None, sweep=False)
        rerun = shlex.join(command_of(again, recipe=str(plan.folder / RECIPE_FILE)))
        remarks = kept_remarks(plan.folder)
        gives = f"not the same weights again: {'; '.join(remarks)}" if remarks else "the same weights again"
        return f"{shlex.join(command_of(asked))}\n{rerun}  # {gives}"

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        return {
            "diagnosis": [dataclasses.asdict(found) for found in self.diagnosis],
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
        image = shlex.quote(example if Path(example).is_file() else "IMAGE.jpg")
        data, folder = shlex.quote(self.plan.data_spec), shlex.quote(str(self.plan.folder))
        scores = f"  vitral evaluate --data {data} --classifier {folder}"
        if self.failed:
            helps = dict.fromkeys(f"  {found.command}" for found in self.diagnosis if found.command)
            return ["Next:", *helps, scores]
        return [
            "Next:",
            scores + (" --split train" if self.split == "train" else ""),
            f"  vitral predict {image} --classifier {folder}",
            f"  vitral explain {image} --classifier {folder}",
        ]


def execute(plan: Plan, listener: Listener) -> RunResult:
    """Carry out a plan."""
    _announce(plan, listener)
    whole = plan
    plan, validating, budget = within_time(plan, listener)
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
        _write_description(whole)
        if plan.resume:
            ask_again(
                plan.folder,
                budget_seconds=plan.asked.budget_seconds if plan.further else None,
                overrides=plan.asked.overrides,
            )
        _write_images(plan, batches)
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
        f"Found {plan.data.name}: {len(plan.data.class_names)} classes; images: {counts}.",
        *plan.data.notes,
        f"Network: {describe(model.config)}, {count_parameters(model):,} parameters, images of "
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
        "images": {name: _count(split) for name, split in plan.data.splits.items()},
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
            recipe_begun(plan.folder, plan.recipe)  # before anything of this resumption is written down
            changed = check_data(plan.folder, plan.data, changed=plan.data_changed)
            if changed:
                state = newest_state(plan.folder / CHECKPOINTS)
                record_change(plan.folder, plan.data, changed, step=0 if state is None else state.step)
                said = f"The data changed since the run began, and it goes on: {'; '.join(changed)}."
                for line in (said, *redrawn(plan.folder)):
                    listener(Message(line, warning=True))
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


def _write_images(plan: Plan, batches: TrainingBatches) -> None:
    path = plan.folder / "images" / "training.png"
    if plan.resume and path.is_file():
        return
    batch = batches.batch(0)
    images = list(batch.images[:32].permute(0, 2, 3, 1).numpy())
    labels = [_named(plan.data, index) for index in batch.indices[:32].tolist()]
    write_file(path, contact_sheet(images, labels))


def _named(data: DataSet, index: int) -> str:
    label = data.splits["train"].label(index)
    return ", ".join(data.class_names[place] for place in (label if isinstance(label, tuple) else (label,)))


def _baselines(plan: Plan, listener: Listener) -> Baselines | None:
    path = plan.folder / "baselines.json"
    if plan.resume and (kept := distributed.broadcast(_kept_baselines(path))) is not None:
        return kept
    expected = plan.cost.seconds if plan.budget_seconds is None else plan.budget_seconds
    seconds = max(BASELINE_SHARE * expected, BASELINE_SECONDS if plan.budget_seconds is None else 0.0)
    baselines = score_baselines(plan.classifier, plan.data, seconds=seconds, listener=listener)
    if baselines is None:
        listener(
            Message(
                f"No baselines: nearest neighbours and linear probes would take longer than {seconds:.1f} s, "
                f"{BASELINE_SHARE:.0%} of the run's time."
            )
        )
        return None
    if distributed.is_main():
        write_file(path, json.dumps(dataclasses.asdict(baselines)))
    listener(Message(f"{baselines.sentence()} Fine-tuning should beat all of them."))
    return baselines


def _kept_baselines(path: Path) -> Baselines | None:
    """Return those that the run had before it was stopped; None where there are none, or damaged ones."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    hints = get_type_hints(Baselines)
    whole = isinstance(values, dict) and values.keys() == hints.keys()
    return Baselines(**values) if whole and all(fits(hints[name], value) for name, value in values.items()) else None


def _validation(plan: Plan, source: Source | None) -> Validate | None:
    if source is None or not plan.validate or plan.recipe.objective.name == "masked-patches":
        return None  # a head that nothing has trained has nothing to say

    def validate(model: Model, listener: Listener) -> dict[str, float]:
        classifier = _classifier(plan, model)
        probabilities, labels = predict_probabilities(
            classifier, source, limit=VALIDATION_IMAGES, workers=_workers(plan), listener=listener
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


def _finish(plan: Plan, training: TrainingResult, baselines: Baselines | None, listener: Listener) -> RunResult:
    split = plan.data.scored_split()
    trained = _classifier(plan, training.model)
    if plan.recipe.objective.name == "masked-patches":
        _fit_head(plan, trained, listener)
    folder = plan.folder / RUN_CLASSIFIER
    if distributed.is_main():  # before all else: no figure and no drawing is worth a trained network
        save(_classifier(plan, training.model, _provenance(plan, training, {})), folder)
    evaluation = evaluate_source(
        trained, plan.data.splits[split], limit=VALIDATION_IMAGES, workers=_workers(plan), listener=listener
    )
    diagnosis = diagnose_run(plan, training, baselines, evaluation)
    provenance = _provenance(plan, training, _scores(evaluation, baselines, split))
    classifier = _classifier(plan, training.model.cpu(), provenance)
    if distributed.is_main():
        update_provenance(classifier, folder)
        said = {"diagnosis": [dataclasses.asdict(found) for found in diagnosis], **evaluation.to_json()}
        write_file(plan.folder / "evaluation.json", json.dumps(said, indent=2))
    distributed.barrier()
    for found in merged(diagnosis):
        listener(Message(found.sentence(), warning=True, verdict=True))
    seconds = time.monotonic() - plan.started
    return RunResult(plan, training, classifier, folder, baselines, evaluation, seconds, diagnosis)


def _classifier(plan: Plan, model: Model, provenance: Provenance | None = None) -> Classifier:
    return Classifier(
        model,
        plan.classifier.preprocessing,
        plan.classifier.class_names,
        provenance=provenance,
        multi_label=plan.data.multi_label,
    )


def _workers(plan: Plan) -> int:
    return 0 if len(plan.data.splits["train"]) < FEW_IMAGES else plan.recipe.workers


def _fit_head(plan: Plan, classifier: Classifier, listener: Listener) -> None:
    """Give a network that learned without labels a head, in closed form on its features, so that it is a classifier."""
    train = plan.data.splits["train"]
    features, labels = extract_features(classifier, train, limit=PROBE_IMAGES, listener=listener)
    weight, bias = fit_linear_probe(features, labels)
    head = classifier.model.head
    with torch.no_grad():
        head.weight[: len(weight)].copy_(weight)
        head.bias.copy_(functional.pad(bias, (0, len(head.bias) - len(bias)), value=-math.inf))
    listener(
        Message("The network learned without labels; its head is a linear probe on the training images' features.")
    )


def _scores(evaluation: AnyEvaluation, baselines: Baselines | None, split: str) -> dict[str, float]:
    scores = {f"{split}/{name}": value for name, value in evaluation.scores().items()}
    beside = {} if baselines is None else dataclasses.asdict(baselines)
    return scores | {
        f"{split}{BASELINE}{name}": value
        for name, value in beside.items()
        if isinstance(value, float) and beside["split"] == split
    }


def _provenance(plan: Plan, training: TrainingResult, scores: Mapping[str, float]) -> Provenance:
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

"""What a run delivers: saved, scored, diagnosed, and with the images that it remembers."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vitral import distributed, torchrun
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save, update_provenance, write_known_images
from vitral.classifier.metadata import LOGIT_ADJUSTMENT, RARE_CLASSES, Calibration
from vitral.classifier.novelty import KnownImages, Novelty
from vitral.data.source import Source
from vitral.data.subset import Subset
from vitral.errors import ModelError, StorageError
from vitral.evaluation.baselines import Baselines, Labels, extract_features
from vitral.evaluation.evaluate import evaluate_source
from vitral.evaluation.opening import TEST, note_look
from vitral.evaluation.probes import check_features
from vitral.evaluation.region_baselines import score_region_baselines
from vitral.evaluation.region_scores import fitted_task
from vitral.evaluation.unknown_classes import BYTES, LEAST_AREA, MOST_BYTES, chosen, remembered, set_limit
from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.models.model import Features
from vitral.paths import CLASSIFIER, EVALUATION_FILE
from vitral.tasks.dense import FITTED, DenseTask
from vitral.tasks.dense_result import DenseResult
from vitral.tasks.task import Result
from vitral.training.candidates.adjusted import LogitAdjustment, adjust
from vitral.training.candidates.first import FirstClassifier
from vitral.training.candidates.result import Choice, RunResult, choice_entry, choose, named_scores, provenance
from vitral.training.clock import BASELINES_SHARE, LIMIT_SHARE, SIMPLE_SECONDS
from vitral.training.loop import TrainingResult
from vitral.training.optimization.optimizers import training_device
from vitral.training.records.run_folder import update_run
from vitral.training.scoring.diagnosis import diagnose_run, merged
from vitral.training.scoring.validation import VALIDATION_IMAGES, Scoring, scoring_workers, to_score, with_time_left
from vitral.training.session import Run

SHOWN_FROM = f"validation/{FITTED}"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run delivers, and how it came to that.

    Attributes:
        run: The run, with the recipe of the training.
        classifier: What is delivered, on the device that scores it.
        training: The training of the network that was trained, or of the best of several; of no steps where none was.
        choice: What was tried and what of it is delivered; None where only one network was to be trained.
        is_saved: Whether the run's folder holds the classifier already.
        fitted_on: What its head was fitted on, and the labels, where nothing else was trained; None otherwise.
        adjustment: What was done to the logits of a trained network for unequal classes; None before that.
    """

    run: Run
    classifier: Classifier
    training: TrainingResult
    choice: Choice | None
    is_saved: bool = False
    fitted_on: tuple[Features, Labels] | None = None
    adjustment: LogitAdjustment | None = None

    @property
    def trained(self) -> bool:
        """Whether what is delivered was trained, and is not the first classifier."""
        return self.choice is None or self.choice.trained

    def scored(self, scores: Mapping[str, float], rare: str = "") -> Classifier:
        """Return the classifier with what is known of it: of a trained one the run, of the first one what it says itself.

        `rare` is how well the rare classes do, in a sentence; empty where none is.
        """
        delivered, own = self.classifier, self.classifier.provenance
        further = {RARE_CLASSES: {"sentence": rare}} if rare else {}
        if self.trained:
            further |= self._adjusted()
            known = provenance(self.run, self.training, scores, self.choice)
            return self.run.classifier_of(delivered.model, replace(known, training={**known.training, **further}))
        training = {**own.training, **choice_entry(self.choice), **further}
        described = replace(own, training=training, scores={**own.scores, **scores})
        return Classifier(
            delivered.model, delivered.preprocessing, delivered.class_names, provenance=described, task=delivered.task
        )

    def _adjusted(self) -> dict[str, Any]:
        """Return the entry of what was done to the logits, by this command or by one whose classifier is delivered again."""
        if self.adjustment is None:
            provenance = self.classifier.provenance
            earlier = provenance.training.get(LOGIT_ADJUSTMENT)
            return {LOGIT_ADJUSTMENT: earlier} if earlier else {}
        return {LOGIT_ADJUSTMENT: self.adjustment.to_json()} if self.adjustment.sentence() else {}


def first_outcome(run: Run, first: FirstClassifier) -> Outcome:
    """Return the first classifier as what a run delivers that trained nothing."""
    task, classifier = run.data.task, first.load().to(training_device())
    choice = choose([first.candidate], task.headline)
    return Outcome(run, classifier, TrainingResult(classifier.model), choice, fitted_on=first.fitted_on)


def finish(outcome: Outcome, scoring: Scoring, baselines: Baselines | None) -> RunResult:
    """Save and score what a run delivers, and tell what is to be told of it.

    Args:
        outcome: What it delivers.
        scoring: What it is scored on.
        baselines: Scores of simple classifiers.
    """
    run = to_score(outcome.run, with_time_left(outcome.run, scoring))
    outcome, data = replace(outcome, run=run), run.data
    choice, split, folder = outcome.choice, data.scored_split(), run.folder / CLASSIFIER
    if torchrun.is_main() and not outcome.is_saved:  # before all else: no figure is worth a trained network
        save(outcome.scored({}), folder)
    if outcome.trained:
        outcome = _balanced(outcome, scoring)
    if choice is not None and len(choice.candidates) > 1:
        run.listener(Message(choice.sentence()))
    if split == TEST and torchrun.is_main():
        note_look(run.folder, data, run.kind)
    calibration = outcome.classifier.calibration = _shown_from(outcome, scoring)
    task = outcome.classifier.task = fitted_task(outcome.classifier, scoring.validating)
    evaluation = _evaluated(run, outcome.classifier, split)
    beside = baselines if outcome.trained else None  # a simple classifier would be compared with itself
    diagnosis = diagnose_run(run, outcome.training, beside, evaluation)
    known = _remembered(run, outcome.classifier, outcome.fitted_on, scoring.remembered)
    outcome.classifier.cpu()
    classifier = outcome.scored(named_scores(evaluation, beside, split), evaluation.rare_sentence(split))
    classifier.remember(*known)
    classifier.calibration = calibration
    classifier.task = task
    entry = choice_entry(choice)
    if torchrun.is_main():
        write_known(classifier, folder, run.listener)
        found = {"diagnosis": [dataclasses.asdict(finding) for finding in diagnosis]}
        scores = {**found, **entry, "split": split, **evaluation.to_json()}
        write_file(run.folder / EVALUATION_FILE, json.dumps(scores, indent=2, default=str))
        if entry:
            update_run(run.folder, entry)
    distributed.barrier()
    for finding in merged(diagnosis):
        run.listener(Message(finding.sentence(), warning=True, verdict=True))
    return RunResult(
        run, outcome.training, classifier, folder, baselines, evaluation, run.clock.spent(), diagnosis, choice
    )


def _shown_from(outcome: Outcome, scoring: Scoring) -> Calibration | None:
    """Return from where on what is delivered is sure of regions, as the first classifier says or the last validation told."""
    if not outcome.trained:
        return outcome.classifier.calibration
    told = [row[SHOWN_FROM] for row in outcome.training.history if SHOWN_FROM in row]
    data, images = outcome.run.data, 0 if scoring.validating is None else len(scoring.validating)
    return Calibration.of_regions(told[-1] if told else None, data.name, images)


def write_known(classifier: Classifier, folder: Path, listener: Listener) -> None:
    """Write what is now known of a classifier into its folder; without the images that it remembers where they do not fit."""
    try:
        write_known_images(classifier, folder)
    except StorageError as error:
        listener(Message(f"The classifier remembers no images: {error}", warning=True))
        classifier.remember(None)
        update_provenance(classifier, folder)


def _balanced(outcome: Outcome, scoring: Scoring) -> Outcome:
    """Return what a run delivers with its logits adjusted for unequal classes where that pays, and saved so."""
    adjustment, changed = adjust(outcome.run, outcome.classifier, scoring)
    outcome = replace(outcome, adjustment=adjustment)
    if changed and torchrun.is_main():
        save(outcome.scored({}), outcome.run.folder / CLASSIFIER)
    return outcome


def _evaluated(run: Run, classifier: Classifier, split: str) -> Result:
    data, task, source = run.data, run.data.task, run.data.splits[split]
    if not task.scored:  # no image need be looked at for that
        unknown = torch.zeros(len(source), 0)
        return task.score(unknown, unknown, class_names=data.class_names, describe=source.describe)
    scores = evaluate_source(
        classifier, source, limit=VALIDATION_IMAGES, workers=scoring_workers(run), listener=run.listener
    )
    if isinstance(scores, DenseResult) and isinstance(task, DenseTask) and run.request.baselines:
        seconds = SIMPLE_SECONDS if run.clock.seconds is None else BASELINES_SHARE * run.clock.seconds
        return scores.beside(score_region_baselines(task, data, pixels=not task.counted, seconds=seconds))
    return scores.trained_on(data.class_images())


def _remembered(
    run: Run, classifier: Classifier, fitted_on: tuple[Features, Labels] | None, images: int | None
) -> tuple[KnownImages | None, Novelty | None]:
    """Return the images that a run's classifier is to remember, and its limit for images of none of its classes, which is said.

    Args:
        run: The run.
        classifier: What it delivers.
        fitted_on: What its head was fitted on, and the labels, if it learned nothing but that; else None.
        images: How many there is time to look at otherwise; None for as many as are kept.
    """
    unfit = not (run.task.exclusive and run.task.scored) or run.splits["train"].endless
    if unfit or (fitted_on is None and images == 0):
        return None, None
    try:
        known = _known(run, classifier, fitted_on, images)
    except ModelError:  # the network gives no finite numbers, of which the diagnosis speaks
        return None, None
    limit = set_limit(known, classifier.class_names, learned=fitted_on is None)
    if limit is None:
        line = "Photos of none of the classes will not be recognised: too few photos, or features that do not tell them"
        run.listener(Message(f"{line} (AUROC below {LEAST_AREA:g}).", detail=True))
    else:
        run.listener(Message(limit.sentence(), detail=True))
    return known, limit


def _known(
    run: Run, classifier: Classifier, fitted_on: tuple[Features, Labels] | None, images: int | None
) -> KnownImages:
    seed = run.recipe.seed
    if fitted_on is not None:
        return remembered(*fitted_on, seed=seed)
    most = MOST_BYTES // (BYTES * classifier.model.num_features)
    most = most if images is None else min(most, images)
    validation = run.splits.get("validation")
    judged = 0 if validation is None else min(len(validation), round(LIMIT_SHARE * most))
    parts = [_seen(run, classifier, run.splits["train"], most - judged)]
    if validation is not None:
        parts.append(_seen(run, classifier, validation, judged))
    features, labels = (torch.cat([part[column] for part in parts]) for column in (0, 1))
    check_features(features)
    return KnownImages(features, labels, torch.arange(len(labels)) >= len(parts[0][1]))


def _seen(run: Run, classifier: Classifier, source: Source, most: int) -> tuple[Features, Labels]:
    few = chosen(torch.from_numpy(source.labels()), most, seed=run.recipe.seed).tolist()
    return extract_features(classifier, Subset(source, few), listener=run.listener)

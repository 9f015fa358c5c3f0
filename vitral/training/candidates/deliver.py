"""What a run delivers: saved, scored, diagnosed."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from vitral import distributed, torchrun
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save, update_provenance
from vitral.classifier.provenance import Provenance
from vitral.evaluation.baselines import Baselines
from vitral.evaluation.evaluate import evaluate_source
from vitral.evaluation.looks import TEST, note_look
from vitral.events import Message
from vitral.files import write_file
from vitral.layout import CLASSIFIER
from vitral.tasks.task import Result
from vitral.training.candidates.choice import Choice, choose
from vitral.training.candidates.description import choice_entry, named_scores, provenance
from vitral.training.candidates.first import FirstClassifier
from vitral.training.candidates.result import RunResult
from vitral.training.loop import TrainingResult
from vitral.training.optimization.precision import training_device
from vitral.training.records.run_file import update_run
from vitral.training.scoring.diagnosis import diagnose_run, merged
from vitral.training.scoring.validation import VALIDATION_IMAGES, scoring_workers
from vitral.training.scoring.within_time import Scoring, to_score
from vitral.training.session import Run


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run delivers, and how it came to that.

    Attributes:
        run: The run, with the recipe of the training.
        classifier: What is delivered, on the device that scores it.
        training: The training of the network that was trained, or of the best of several; None where nothing was trained.
        trained: Whether it is that network which is delivered.
        choice: What was tried and what of it is delivered; None where only one thing was to be tried.
        is_saved: Whether the run's folder holds the classifier already.
    """

    run: Run
    classifier: Classifier
    training: TrainingResult | None
    trained: bool
    choice: Choice | None
    is_saved: bool = False

    def described(self, scores: Mapping[str, float]) -> Classifier:
        """Return the classifier with what is known of it: of a trained one the run, of the first one what it says itself."""
        delivered, own = self.classifier, self.classifier.provenance
        if self.trained:
            assert self.training is not None, "a network that was trained has a training"
            return self.run.classifier_of(delivered.model, provenance(self.run, self.training, scores, self.choice))
        training = {**own.training, **choice_entry(self.choice, self.run)}
        described = Provenance(own.source, training, {**own.scores, **scores}, own.notes)
        return Classifier(
            delivered.model, delivered.preprocessing, delivered.class_names, provenance=described, task=delivered.task
        )


def first_outcome(run: Run, first: FirstClassifier) -> Outcome:
    """Return the first classifier as what a run delivers that trained nothing."""
    choice = choose([first.candidate], run.data.task.headline)
    return Outcome(run, first.load().to(training_device()), None, False, choice)


def finish(outcome: Outcome, scoring: Scoring, baselines: Baselines | None) -> RunResult:
    """Save and score what a run delivers, and tell what is to be told of it.

    Args:
        outcome: What it delivers.
        scoring: What it is scored on.
        baselines: Scores of simple classifiers.
    """
    outcome = replace(outcome, run=to_score(outcome.run, scoring))
    run, choice, split = outcome.run, outcome.choice, outcome.run.data.scored_split()
    folder = run.folder / CLASSIFIER
    if torchrun.is_main() and not outcome.is_saved:  # before all else: no figure is worth a trained network
        save(outcome.described({}), folder)
    if choice is not None and len(choice.candidates) > 1:
        run.listener(Message(choice.sentence(run.data.task.headline)))
    if split == TEST and torchrun.is_main():
        note_look(run.folder, run.data, run.kind)
    evaluation = _evaluated(outcome, split)
    training = outcome.training or _untrained(outcome.classifier)
    beside = baselines if outcome.trained else None  # a simple classifier would be compared with itself
    diagnosis = diagnose_run(run, training, beside, evaluation)
    outcome.classifier.cpu()
    classifier = outcome.described(named_scores(evaluation, beside, split))
    entry = choice_entry(choice, run)
    if torchrun.is_main():
        update_provenance(classifier, folder)
        found = {"diagnosis": [dataclasses.asdict(finding) for finding in diagnosis]}
        scores = {**found, **entry, "split": split, **evaluation.to_json()}
        write_file(run.folder / "evaluation.json", json.dumps(scores, indent=2, default=str))
        if entry:
            update_run(run.folder, entry)
    distributed.barrier()
    for finding in merged(diagnosis):
        run.listener(Message(finding.sentence(), warning=True, verdict=True))
    return RunResult(run, training, classifier, folder, baselines, evaluation, run.clock.spent(), diagnosis, choice)


def _evaluated(outcome: Outcome, split: str) -> Result:
    run, source = outcome.run, outcome.run.data.splits[split]
    if not run.data.task.scored:  # no image need be looked at for that
        unknown = torch.zeros(len(source), 0)
        return run.data.task.score(unknown, unknown, class_names=run.data.class_names, describe=source.describe)
    return evaluate_source(
        outcome.classifier, source, limit=VALIDATION_IMAGES, workers=scoring_workers(run), listener=run.listener
    )


def _untrained(delivered: Classifier) -> TrainingResult:
    return TrainingResult(
        model=delivered.model,
        steps=0,
        best_step=None,
        best_accuracy=None,
        history=[],
        seconds=0.0,
        images_per_second=0.0,
    )

"""Fit temperature and threshold of a classifier on its validation images, and say what they change."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import folder_that_keeps, read, update_provenance
from vitral.classifier.load import as_classifier
from vitral.classifier.metadata import Calibration
from vitral.data.classes import Reading
from vitral.data.source import DataSet
from vitral.deployment.confidence import (
    Answered,
    Confidences,
    Labels,
    Logits,
    Right,
    answered_from,
    area_under_risk,
    at_coverages,
    fit_temperature,
    fit_threshold,
    log_probabilities,
    negative_log_likelihood,
    temperature_helps,
)
from vitral.deployment.judge import VALIDATION
from vitral.errors import DataError, WeightsError
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.opening import TEST, matched, open_split, open_test
from vitral.events import Listener, show
from vitral.inference.predictor import collect
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.reliability import expected_calibration_error, reliability
from vitral.tasks.shown import NO_VALUE, Presentable, Table, range_text, table_of

STEP = 1e-6  # to which a threshold is rounded down
USUAL = 0.95  # the accuracy of sure answers that is proposed where none was given
NONE_FITS = "Every validation image is classified right, so that no temperature can be fitted: the probabilities stay."
NONE_HELPS = (
    "Probabilities stay as they are: what some validation images choose as temperature does not help the others."
)


@dataclass(frozen=True)
class Effect:
    """What temperature and threshold change on the images of a split; before is with those that the classifier has.

    Attributes:
        accuracy: The accuracy of all answers, which the temperature does not change, 0 to 1.
        nll: Mean negative log-likelihood in nats, before and after.
        ece: Expected calibration error over 15 bins, 0 to 1, before and after.
        aurc: Area under risk and coverage, 0 to 1, with the temperature.
        answered_before: The answers that the classifier's present threshold leaves; None without one.
        answered: The answers that the threshold leaves; None without one.
        coverages: The accuracy where at least 100, 95, 90, 80, 70 and 50 % of the images are answered.
    """

    images: int
    accuracy: float
    nll: tuple[float, float]
    ece: tuple[float, float]
    aurc: float
    answered_before: Answered | None
    answered: Answered | None
    coverages: tuple[Answered, ...]


@dataclass(frozen=True, repr=False)
class Calibrated(Presentable):
    """A fitted calibration.

    Attributes:
        effects: The changes by split: on the validation images that they were fitted on, and on test images.
        remark: The reason why no temperature was fitted, or what became of a threshold that was not wanted; else empty.
        changed: Whether anything was fitted; if not, the calibration is what the classifier had, or changes nothing.
    """

    calibration: Calibration
    effects: Mapping[str, Effect]
    remark: str = ""
    changed: bool = True

    def sentence(self) -> str:
        """Return what was fitted in one sentence, or why nothing was."""
        return self.calibration.sentence() if self.changed else self.remark

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the tables."""
        answered = self.effects[VALIDATION].answered
        fitted = self.calibration.sentence() if self.changed else ""
        known = "" if answered is None else _how_sure(answered)
        return tuple(filter(None, (*self._failures(), fitted, self.remark, known)))

    def _failures(self) -> list[str]:
        """Return what test images say against it."""
        effect = self.effects.get(TEST)
        if effect is None or not self.changed:
            return []
        failures = []
        if effect.nll[1] > effect.nll[0]:
            failures.append(
                f"On the test images it makes probabilities worse: a negative log-likelihood of {effect.nll[1]:.4f} instead of "
                f"{effect.nll[0]:.4f}, a calibration error of {effect.ece[1]:.4f} instead of {effect.ece[0]:.4f}."
            )
        wanted, answered = self.calibration.wanted, effect.answered
        if wanted is not None and answered is not None and (answered.accuracy or 0.0) < wanted:
            failures.append(
                f"On the test images the threshold misses its aim: {_percent(answered.accuracy)} of {answered.images:,} sure "
                f"answers are right, where {wanted:.1%} were wanted."
            )
        return failures

    def tables(self) -> tuple[Table, ...]:
        """Return what it changes, split by split, and accuracy against coverage."""
        rows = [row for split, effect in self.effects.items() for row in _rows(split, effect)]
        split, effect = list(self.effects.items())[-1]
        return (
            Table("What it changes", ("", "Before", "After"), tuple(rows)),
            table_of(
                f"Answering only where it is sure, {split} images",
                effect.coverages,
                (
                    ("Answered", lambda answered: f"{answered.coverage:.1%}"),
                    ("Right", lambda answered: _percent(answered.accuracy)),
                    ("From probability", lambda answered: f"{answered.threshold:.1%}"),
                ),
            ),
        )


def _how_sure(answered: Answered) -> str:
    interval = wilson_interval(round((answered.accuracy or 0.0) * answered.images), answered.images)
    return (
        f"The threshold is known from {answered.images:,} validation images: {answered.accuracy:.1%} of them are right (95% "
        f"interval {range_text(interval, 1)})."
    )


def _rows(split: str, effect: Effect) -> list[tuple[str, str, str]]:
    of = f"{effect.images:,} {split} images"
    rows = [
        (f"Calibration error, {of}", f"{effect.ece[0]:.4f}", f"{effect.ece[1]:.4f}"),
        (f"Negative log-likelihood, {of}", f"{effect.nll[0]:.4f}", f"{effect.nll[1]:.4f}"),
    ]
    if effect.answered is not None or effect.answered_before is not None:
        before, after = (_right_of(effect, answered) for answered in (effect.answered_before, effect.answered))
        rows.append((f"Right of those answered, {of}", before, after))
    return rows


def _right_of(effect: Effect, answered: Answered | None) -> str:
    if answered is None:
        return f"{effect.accuracy:.2%} of all"
    return f"{_percent(answered.accuracy)} of {answered.coverage:.1%}"


def _percent(share: float | None) -> str:
    return NO_VALUE if share is None else f"{share:.2%}"


def calibrate(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    accuracy: float | None = None,
    write: bool = False,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Calibrated:
    """Fit a classifier's temperature on its validation images, and the threshold from which its answers are accurate enough.

    Both are fitted on the validation split alone; test images, where there are any, show what they change. A temperature
    counts where it helps on images that did not choose it (ten-fold on the validation images). Nothing is changed unless
    `write` says so, nor where no temperature helps and no threshold is asked for.

    Args:
        classifier: The classifier itself, or whatever `load` takes.
        data: The data that it was trained on, or a dataset with a validation split.
        accuracy: The accuracy that sure answers must have, 0 to 1; None for what the classifier's threshold, if it has
            one, was fitted for: that is fitted anew.
        write: Whether the classifier's folder keeps both, so that its predictions use them.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: There are no validation images, or no threshold gives the wanted accuracy.
        WeightsError: It is to be written, and the classifier is not a folder.
    """
    if accuracy is not None and not 0 < accuracy <= 1:
        raise DataError(f"A wanted accuracy is above 0 and at most 1, such as 0.95, not {accuracy:g}.")
    folder = folder_that_keeps(classifier, "a calibration") if write else None
    scored = as_classifier(classifier, listener)
    if not scored.task.calibrated:
        raise DataError(
            f"Only classifiers of images that have one class each can be calibrated, not '{scored.task.name}'."
        )
    opened, _ = open_split(
        data, [scored], split=None, classes=classes, skip_bad_images=skip_bad_images, listener=listener, validation=True
    )
    if not opened.task.calibrated or VALIDATION not in opened.splits:
        raise DataError(
            f"{opened.name} has no validation images of one class each, and on others nothing is fitted; name the data that "
            "the classifier was trained on, or put images into a val/ folder."
        )
    if TEST in opened.splits:
        open_test(scored, opened, TEST, "calibrate", listener)
    answers = {
        split: _logits(scored, opened, split, batch_size=batch_size, workers=workers, listener=listener)
        for split in (VALIDATION, TEST)
        if split in opened.splits
    }
    result = fitted(answers, accuracy, opened.name, present=scored.calibration)
    if folder is not None and result.changed:
        stored = read(folder)
        size = None if scored.model.image_size == stored.model.image_size else scored.model.image_size
        stored.calibration = replace(result.calibration, image_size=size)
        update_provenance(stored, folder)
    return result


def fitted(
    answers: Mapping[str, tuple[Logits, Labels]],
    accuracy: float | None,
    data: str,
    *,
    present: Calibration | None = None,
) -> Calibrated:
    """Return what is fitted on the validation images, and what it changes.

    Args:
        answers: The logits and true classes by split, "validation" among them.
        accuracy: The accuracy that sure answers must have; None for that of the present threshold, if there is one.
        data: The dataset's name.
        present: The classifier's present calibration.

    Raises:
        DataError: No threshold gives the wanted accuracy.
    """
    logits, labels = answers[VALIDATION]
    now = present or Calibration(1.0, None, None, data, len(labels))
    found, why_none = fit_temperature(logits, labels), NONE_FITS
    if found is not None and not temperature_helps(logits, labels, now.temperature):
        found, why_none = None, NONE_HELPS
    changed = found is not None or accuracy is not None
    calibration, remark = now, f"{why_none} Nothing changes."
    if changed:
        temperature = now.temperature if found is None else found
        threshold, wanted, note = _sure_from(*_answered(logits, labels, temperature), accuracy, now)
        calibration = Calibration(temperature, threshold, wanted, data, len(labels))
        remark = why_none if found is None else note
    if calibration.threshold is None:
        remark = f"{remark} {_without_threshold(*_answered(logits, labels, calibration.temperature))}".strip()
    effects = {split: _effect(*known, now, calibration) for split, known in answers.items()}
    return Calibrated(calibration, effects, remark, changed)


def _sure_from(
    confidences: Confidences, right: Right, accuracy: float | None, now: Calibration
) -> tuple[float | None, float | None, str]:
    """Return the threshold, the accuracy that it is for, and what became of one that was not asked for."""
    if accuracy is not None:
        if (asked := _threshold(confidences, right, accuracy)) is None:
            raise DataError(
                f"No threshold gives {accuracy:.1%} right: not even the surest of the {len(right)} validation images are. Want "
                "less, or train further."
            )
        return asked, accuracy, ""
    if now.threshold is None:
        return None, None, ""
    if now.wanted is None:
        return now.threshold, None, f"The threshold of {now.threshold:.1%} that the classifier has was kept."
    if (again := _threshold(confidences, right, now.wanted)) is None:
        dropped = (
            f"The threshold of {now.threshold:.1%} that the classifier has is left out: none gives the {now.wanted:.1%} right "
            "that it was fitted for."
        )
        return None, None, dropped
    said = f"The threshold was fitted anew for the {now.wanted:.1%} right that the classifier's present one is for."
    return again, now.wanted, said


def _without_threshold(confidences: Confidences, right: Right) -> str:
    """Return what it means that there is no threshold, and which one would be chosen."""
    answered = fit_threshold(confidences, right, USUAL)
    proposal = (
        f"not even the surest give {USUAL:.0%} right"
        if answered is None
        else f"{argument('accuracy', USUAL)} chooses {answered.threshold:.1%}, which {answered.coverage:.0%} of the "
        "validation photos reach"
    )
    return f"There is no threshold, so that every answer counts as sure; {proposal}."


def _threshold(confidences: Confidences, right: Right, wanted: float) -> float | None:
    answered = fit_threshold(confidences, right, wanted)
    # Predictions in float32 may differ in the last bits.
    return None if answered is None else math.floor(answered.threshold / STEP) * STEP


def _effect(logits: Logits, labels: Labels, now: Calibration, calibration: Calibration) -> Effect:
    before = _answered(logits, labels, now.temperature)
    after = _answered(logits, labels, calibration.temperature)
    return Effect(
        images=len(labels),
        accuracy=float(after[1].mean()),
        nll=(
            negative_log_likelihood(logits, labels, now.temperature),
            negative_log_likelihood(logits, labels, calibration.temperature),
        ),
        ece=(expected_calibration_error(reliability(*before)), expected_calibration_error(reliability(*after))),
        aurc=area_under_risk(*after),
        answered_before=None if now.threshold is None else answered_from(*before, now.threshold),
        answered=None if calibration.threshold is None else answered_from(*after, calibration.threshold),
        coverages=at_coverages(*after),
    )


def _answered(logits: Logits, labels: Labels, temperature: float) -> tuple[Confidences, Right]:
    """Return the probability of each image's answer, and whether it is right."""
    probabilities = np.exp(log_probabilities(logits, temperature))
    return probabilities.max(axis=1), logits.argmax(axis=1) == labels


def _logits(
    classifier: Classifier, data: DataSet, split: str, *, batch_size: int, workers: int, listener: Listener
) -> tuple[Logits, Labels]:
    logits, labels = collect(
        classifier.predictor.logits,
        matched(data, split, classifier),
        classifier.preprocessing,
        batch_size=batch_size,
        workers=workers,
        purpose=split,
        listener=listener,
    )
    if not bool(logits.isfinite().all()):
        raise WeightsError("The network gives no finite numbers for these images: its weights are damaged.")
    return logits.double().numpy(), labels.numpy()

"""The first classifier: a linear layer in closed form on frozen features or on pixels, usable before anything is trained."""

import copy
import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral import distributed, torchrun
from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import is_classifier, read, save
from vitral.classifier.metadata import CLASS_WEIGHTS, Calibration, Provenance
from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.described import read_kept
from vitral.errors import WeightsError
from vitral.evaluation.baselines import (
    SHARES,
    Described,
    Describer,
    Fitted,
    Labels,
    Stopwatch,
    fewest,
    fit_units,
    sample,
    unit_seconds,
)
from vitral.evaluation.feature_engine import Context
from vitral.evaluation.probes import Features, LinearProbe, sharpness
from vitral.evaluation.rebalanced import Rebalanced
from vitral.events import Message
from vitral.files import write_file
from vitral.models.catalog import SHRUNK
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.pixels import PixelsConfig
from vitral.paths import CLASSIFIER, FIRST, FIRST_FILE
from vitral.tasks.class_sizes import ClassSizes
from vitral.training.candidates.first_regions import RegionModel, best_of_regions
from vitral.training.candidates.linear_model import LinearModel, poor_start
from vitral.training.candidates.result import PIXELS, PROBE, Candidate, asked
from vitral.training.clock import ENDING_SECONDS, MORE_TIME, REPORTED_IMAGES, first_seconds, machine_slowness
from vitral.training.facts import ClosedForms
from vitral.training.optimization.optimizers import autocast, training_device
from vitral.training.records.attempts import states
from vitral.training.records.run_folder import PROBED
from vitral.training.scoring.validation import VALIDATION_IMAGES, Scoring
from vitral.training.session import Run

HEAD = "its head began as the run's linear probe, which no recipe fits"  # why a recipe alone gives other weights
ALLOWED = "seconds_allowed"  # in its provenance: the time that it had; None for as much as it needed
MOST_IMAGES = 20_000  # to fit on: more would hardly change a linear layer
# To fit the head on that training begins with at another size, for reading more takes the time of the training itself:
HEAD_IMAGES = 1000
HEAD_A_CLASS = 20  # or so many of a class, if that is more


@dataclass(frozen=True, eq=False)
class FirstClassifier:
    """The first classifier of a run.

    Attributes:
        candidate: what it is and how good.
        folder: where it lies.
        probe: where the linear probe lies, of regions what is fitted on filters; None where none was fitted.
        fitted: what was learned of the training images on the way; None where that is not known any more.
        whole: whether it is fitted on all that it may be; not where there was no time for that.
        seconds: that it took.
        closed_forms: how good the linear probe is, where it is the classifier, for the plan.
    """

    candidate: Candidate
    folder: Path
    probe: Path | None = None
    fitted: Fitted | None = None
    whole: bool = True
    seconds: float = 0.0
    closed_forms: ClosedForms | None = None

    def sentence(self, run: Run) -> str:
        """Return what it is, how good, and where it can be used, in one sentence."""
        candidate = self.candidate
        reached = candidate.reached(run.headline)
        return f"First classifier: {candidate.title}, {reached}; saved in '{run.folder / CLASSIFIER}'."

    @property
    def fitted_on(self) -> tuple[Features, Labels] | None:
        """What its head was fitted on, and the labels; None where that is not known any more."""
        if self.fitted is None:
            return None
        described = self.fitted.described
        values = described.features if self.candidate.name == PROBE else described.pixels
        assert values is not None, "a probe was fitted on them"
        return values, described.labels

    def gives_way(self, images: int, *, network: bool) -> bool:
        """Tell whether another is fitted on more: on the network's features where this one is not, or on more images."""
        if self.fitted is None:
            return True
        described = self.fitted.described
        on_network = described.features is not None
        return network > on_network or (network == on_network and images > len(described.labels))

    def load(self) -> Classifier:
        """Return the classifier."""
        return read(self.folder)

    def give_head(self, model: Model, run: Run, *, smaller: bool) -> tuple[str, ...]:
        """Give a network that is to be trained the linear probe as its head; return what is to be remarked on its recipe.

        So training improves on the probe from its first update, and does not spoil features that a random head would lead
        astray (arXiv 2202.10054). Nothing is done where no probe was fitted on the network's features.

        Args:
            model: The network, at the size of the attempt.
            run: The run as the attempt has it.
            smaller: Whether that size is below the run's: other features, on which the probe is fitted anew.
        """
        if self.probe is None:
            return ()
        if smaller and not run.task.dense:
            most = max(HEAD_IMAGES, HEAD_A_CLASS * run.num_classes)
            train = sample(run.splits["train"], most, seed=run.recipe.seed, purpose="images of a smaller head")
            seen = Describer.of(run.classifier_of(model), context=_context(run)).describe(train, listener=run.listener)
            fitted = Fitted.of(seen, run.num_classes, run.objective.class_weights)
            assert fitted.probe is not None, "the features were computed"
            fitted.probe.become_head(model)
            return (HEAD,)
        return (HEAD,) if model.take_head(read(self.probe).model) else ()


# The images to fit on, and what describes them: by the network's features, or by the pixels only.
Affordable = tuple[Source, Describer]


def affordable(run: Run, train: Source, seconds: float, *, others: int) -> Affordable | None:
    """Return what there is time for: the network's features if they are worth anything, else the pixels; None for neither.

    Args:
        run: The run.
        train: all images to fit on.
        seconds: that there are; infinite for all of it.
        others: images that are to be put through the classifier in the same time.
    """
    trained = run.plan.origin == "weights"
    if seconds == math.inf:
        return train, _describer(run, network=trained)
    stopwatch = Stopwatch(seconds)
    for network in (True, False) if trained else (False,):
        describer = _describer(run, network=network)
        count = distributed.broadcast(_count(run, train, describer, stopwatch, others))
        if count is not None:
            return spread_over(train, count), describer
    return None


def least(run: Run, train: Source) -> Affordable:
    """Return the least that a classifier is fitted on: the pixels of so few images that they hardly take any time."""
    return spread_over(train, fewest(len(train), run.num_classes)), _describer(run, network=False)


def _describer(run: Run, *, network: bool) -> Describer:
    """Return what describes training images, rounded where training itself rounds."""
    return Describer.of(run.classifier, network=network, context=_context(run))


def _count(run: Run, train: Source, describer: Describer, stopwatch: Stopwatch, others: int) -> int | None:
    """Return how many images there is time to fit on; None where they would be too few."""
    if distributed.broadcast(stopwatch.left() <= 0):  # the processes share the images out
        return None
    classes = run.num_classes
    an_image, described = describer.image_seconds(train)
    scoring = an_image if run.plan.image_seconds is None or not describer.network else run.plan.image_seconds
    weighed = run.objective.class_weights != "none" and ClassSizes(run.data.class_images()).unequal
    unit, fits = unit_seconds(), 2 if weighed else 1
    for share in SHARES:
        count = int(share * len(train))
        if count < fewest(len(train), classes):
            return None
        fitting = fits * sum(fit_units(count, values.shape[1], classes) for values in described.values) * unit
        if count * an_image + others * scoring + fitting <= stopwatch.left():
            return count
    return None


def first_classifier(
    run: Run,
    validating: Source | None,
    before: Candidate | None,
    *,
    seconds: float,
    after: int,
    late: bool = False,
    former: FirstClassifier | None = None,
) -> FirstClassifier | None:
    """Return a run's first classifier, which is in its folder then; None where there is no time for one.

    Args:
        run: The run.
        validating: the images to judge it by; None for the training images, each left out of the fit that judges it.
        before: the one that the run had before it was stopped, which stays; see `first_before`.
        seconds: that it may take.
        after: images that are yet to be put through it in that time, for scores and report.
        late: whether it is fitted on the pixels of the fewest images where there is no time for more.
        former: one made in less time, which is not to be made anew on less: the machine may have become busy since.
    """
    began = run.clock.spent()
    train = sample(run.splits["train"], MOST_IMAGES, seed=run.recipe.seed, purpose="images of the first classifier")
    if before is not None:
        first = _in_folder(run, before)
    elif run.task.dense:
        fitted = best_of_regions(run, train, seconds=seconds, after=after, late=late)
        if not fitted:
            return None
        first = _of_regions(run, fitted, seconds)
    else:
        judging = 0 if validating is None else len(validating)
        may = affordable(run, train, seconds, others=judging + after) or (least(run, train) if late else None)
        if may is None or (former is not None and not former.gives_way(len(may[0]), network=may[1].network)):
            return None
        some, describer = may
        whole = len(some) == len(train) and describer.network == (run.plan.origin == "weights")
        if not describer.network and (earlier := _on_network(run)) is not None:
            run.listener(Message("There is no time to fit the first classifier anew; the one before stays."))
            first = _in_folder(run, earlier)
        else:
            first = replace(_made(run, some, describer, validating, seconds=seconds), whole=whole)
    if torchrun.is_main() and not _stays(run.folder / CLASSIFIER, before):
        save(first.load(), run.folder / CLASSIFIER)
    distributed.barrier()
    return replace(first, seconds=run.clock.spent() - began)


def time_alone(run: Run, scoring: Scoring) -> tuple[float, int]:
    """Return the seconds of a first classifier that only the end follows, and the images that are put through it by then."""
    if run.clock.seconds is None:
        return math.inf, 0
    seconds = run.clock.left() - ENDING_SECONDS * machine_slowness()
    return seconds, min(scoring.scored or 0, VALIDATION_IMAGES) + REPORTED_IMAGES


def _of_regions(run: Run, fitted: Sequence[RegionModel], seconds: float) -> FirstClassifier:
    """Write what is fitted on regions, the best first, into the run's folder: the best, and what is on filters alone."""
    best = fitted[0].candidate
    for made in fitted:
        if made.candidate is best or made.candidate.name == PIXELS:
            folder = run.folder / (FIRST if made.candidate is best else PROBED)
            _save(run, made.candidate, made.model, folder, made.photos, seconds, calibration=made.calibration)
    return _noted(run, best)


def _stays(folder: Path, before: Candidate | None) -> bool:
    """Tell whether a run's classifier so far does not give way to the first one: it was trained, or is `before` or better."""
    if before is not None:
        return is_classifier(folder)
    try:
        return read(folder).provenance.is_trained
    except WeightsError:  # there is none, or a damaged one
        return False


def _made(
    run: Run, train: Source, describer: Describer, validating: Source | None, *, seconds: float
) -> FirstClassifier:
    """Fit what can be fitted, and write the better one into the run's folder.

    The training images go through the network by what is fastest, rounded where training itself rounds; the images that judge
    it in float32, as it will predict, so that the figure is that of the very classifier.
    """
    listener = run.listener
    described = describer.describe(train, listener=listener)
    fitted = Fitted.of(described, run.num_classes, run.objective.class_weights)
    judged = None
    if validating is not None:
        limit = VALIDATION_IMAGES if validating.endless else None
        judge = Describer.of(run.classifier, network=describer.network)
        judged = judge.describe(validating, limit=limit, listener=listener)
    best = pixels = _of_pixels(run, fitted, judged)
    closed_forms = None
    if fitted.probe is not None:
        probe = _of_features(run, fitted.probe, described, judged)
        line = poor_start(pixels, probe, run.headline)
        if line and run.plan.chosen is None:  # where a start was chosen, the plan goes by both figures
            listener(Message(line, warning=True))
        if probe.better_than(pixels, run.headline):
            commonest = float(described.labels.bincount().max()) / len(described.labels)
            best, closed_forms = probe, ClosedForms(probe.candidate.expected, pixels.beside(probe, commonest))
        else:
            _save(run, probe.candidate, probe.model, run.folder / PROBED, len(described.labels), seconds)
    if best.rebalanced is not None:
        without = argument("overrides", ["objective.class_weights=none"])
        listener(Message(f"{best.weighed(best.rebalanced)} {without} leaves that out.", detail=True))
    weighed = None if best.rebalanced is None else (best.rebalanced, best.weighed(best.rebalanced))
    _save(run, best.candidate, best.model, run.folder / FIRST, len(described.labels), seconds, weighed)
    return replace(_noted(run, best.candidate, fitted), closed_forms=closed_forms)


def _noted(run: Run, best: Candidate, fitted: Fitted | None = None) -> FirstClassifier:
    """Write down which of the classifiers that were saved is the first one, and return it."""
    if torchrun.is_main():
        write_file(run.folder / FIRST_FILE, json.dumps(dataclasses.asdict(best)))
    distributed.barrier()
    return _in_folder(run, best, fitted)


def _context(run: Run) -> Context:
    return partial(autocast, training_device(), run.recipe.precision)


def _in_folder(run: Run, candidate: Candidate, fitted: Fitted | None = None) -> FirstClassifier:
    # A head of regions begins as what is fitted on filters: a start's maps change while it learns.
    probe = run.folder / (FIRST if candidate.name == (PIXELS if run.task.dense else PROBE) else PROBED)
    is_there = distributed.broadcast(is_classifier(probe))
    return FirstClassifier(candidate, run.folder / FIRST, probe if is_there else None, fitted)


def _of_pixels(run: Run, fitted: Fitted, judged: Described | None) -> LinearModel:
    preprocessing, classes = run.classifier.preprocessing, run.num_classes
    model = build(PixelsConfig(image_size=preprocessing.image_size, num_classes=classes, side=SHRUNK))
    probe, labels = fitted.pixel_probe, fitted.described.labels
    probe.become_head(model, scale=sharpness(probe.left_out, labels))
    linear = _judged(run, PIXELS, model, probe.right(labels), None if judged is None else judged.pixels, judged)
    return replace(linear, rebalanced=probe.rebalanced)


def _of_features(run: Run, probe: LinearProbe, described: Described, judged: Described | None) -> LinearModel:
    model = copy.deepcopy(run.classifier.model).cpu().eval()
    probe.become_head(model)
    left_out = probe.right(described.labels)
    if run.plan.learned and judged is not None:
        left_out = left_out[:0]
    linear = _judged(run, PROBE, model, left_out, None if judged is None else judged.features, judged)
    return replace(linear, rebalanced=probe.rebalanced)


def _judged(
    run: Run,
    name: str,
    model: Model,
    left_out: Bool[Tensor, " train"],
    values: Features | None,
    judged: Described | None,
) -> LinearModel:
    """Return a classifier with how good it is, by what is known of the validation images, or without any."""
    if values is None or judged is None:
        figure = float(left_out.double().mean())
        return LinearModel(Candidate(name, figure, len(left_out), split="training"), model, left_out, left_out[:0])
    task, logits = run.task, _logits(model, values)
    figures = task.validate(task.probabilities(logits), judged.labels)
    figure, right = next(iter(figures.values())), logits.argmax(dim=1) == judged.labels
    safe = min(figure, float(torch.cat([right, left_out]).double().mean()))
    return LinearModel(Candidate(name, figure, len(values), safe_figure=safe), model, right, left_out)


@torch.no_grad()
def _logits(model: Model, values: Features) -> Float[Tensor, "examples classes"]:
    head, halved = model.head, 0.5 if getattr(model, "distillation_head", None) is not None else 1.0
    return halved * head(values.to(head.weight.dtype)).float()


def _save(
    run: Run,
    candidate: Candidate,
    model: Model,
    folder: Path,
    images: int,
    seconds: float,
    weighed: tuple[Rebalanced, str] | None = None,
    calibration: Calibration | None = None,
) -> None:
    """Write what was fitted on so many images, and had so much time, into a folder.

    `weighed` is what the same weight for every class changed, and a sentence on it; `calibration` says from where on a
    classifier of regions is sure.
    """
    began = run.classifier.provenance
    if torchrun.is_main():
        provenance = Provenance(
            source=began.source if candidate.name == PROBE else f"nothing: a {PIXELS}",
            training={
                **asked(run),
                "method": f"{candidate.name}, in closed form on {images:,} training images",
                ALLOWED: None if math.isinf(seconds) else seconds,
                **({} if weighed is None else {CLASS_WEIGHTS: {**weighed[0].to_json(), "sentence": weighed[1]}}),
            },
            scores={f"{candidate.split}/{run.headline.name}": candidate.figure},
        )
        classifier = run.classifier_of(model, provenance)
        classifier.calibration = calibration
        save(classifier, folder)


def first_before(run: Run) -> Candidate | None:
    """Return the first classifier that a run had before it was stopped; None where there is none, or a damaged one.

    Neither does one count that is of other data, as they were before they changed, nor one that was made in a hurry, where
    nothing has been trained yet and there is more time now.
    """
    return distributed.broadcast(_read(run)) if run.request.resume and not run.why_no_first else None


def _stored(run: Run) -> tuple[Classifier, Candidate] | None:
    """Return what a run's folder holds as its first classifier; None where there is none, or a damaged one."""
    try:
        classifier = read(run.folder / FIRST)
    except (OSError, ValueError, RecursionError, WeightsError):
        return None
    candidate = read_kept(Candidate, run.folder / FIRST_FILE)
    return None if candidate is None else (classifier, candidate)


def _read(run: Run) -> Candidate | None:
    if (stored := _stored(run)) is None:
        return None
    classifier, candidate = stored
    made = classifier.provenance.training
    gone = made.get("data_fingerprint") != run.data.fingerprint or _hurried(run, made.get(ALLOWED))
    return None if gone else candidate


def _on_network(run: Run) -> Candidate | None:
    """Return the classifier on trained features of the same classes that a run had as its first, of whatever data."""

    def find() -> Candidate | None:
        if (stored := _stored(run)) is None:
            return None
        classifier, candidate = stored
        return candidate if candidate.name == PROBE and classifier.class_names == run.data.class_names else None

    return distributed.broadcast(find()) if run.request.resume else None


def _hurried(run: Run, seconds: object) -> bool:
    """Tell whether nothing has been trained after a first classifier that had so much time, and there is more for it now."""
    now = run.clock.seconds
    if now is None or not isinstance(seconds, int | float) or states(run.folder, run.plan):
        return False
    return first_seconds(now) > MORE_TIME * seconds

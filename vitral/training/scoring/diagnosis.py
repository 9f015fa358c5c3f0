"""Whether a run failed, the likely reason, and the run that would help; a report begins with it."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from vitral.advice import argument, call, counted, function
from vitral.classifier.metadata import RANDOM
from vitral.evaluation.baselines import Baselines
from vitral.tasks.chance import significantly_below
from vitral.tasks.shown import right_of
from vitral.tasks.task import Result
from vitral.training.choose.draft import ADAPTED, SCRATCH
from vitral.training.loop import TrainingResult
from vitral.training.request import Request
from vitral.training.session import Run
from vitral.training.settings.durations import proposed

FEW_STEPS = 300  # updates that a network needs to learn its head and adapt its features
FEW_IMAGES = 20_000  # below this number a Vision Transformer from random weights stays behind pre-trained weights
GUESSING_MARGIN = 1.1  # a loss above this multiple of the loss of guessing has run away
RECENT = 3  # the last rows of the log; their mean is the final loss
PRETRAINED = "vit-s14@dinov2"  # the start to propose if random weights learned too little
LOWER = 0.1  # factor for a learning rate that was too high
LENGTH_FACTOR = 4  # factor for the length of a run that made too few updates


@dataclass(frozen=True)
class Diagnosis:
    """A problem of a result.

    Attributes:
        problem: A sentence with the figures.
        reason: The likely reason, a sentence.
        remedy: The request for a run that may help; None for none.
        failed: Whether the result is useless; if not, it is only weaker than expected.
    """

    problem: str
    reason: str
    remedy: Request | None = None
    failed: bool = True

    def sentence(self) -> str:
        """Return everything on a single line."""
        return f"{self.problem} {self.reason}" + (f" This may help: {call(self.remedy.call())}" if self.remedy else "")


def merged(diagnosis: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Return the diagnoses in their order; those with the same reason and remedy are joined."""
    grouped: dict[Diagnosis, list[str]] = {}
    for finding in diagnosis:
        grouped.setdefault(replace(finding, problem=""), []).append(finding.problem)
    return tuple(replace(finding, problem=" ".join(problems)) for finding, problems in grouped.items())


@dataclass(frozen=True)
class Circumstances:
    """The facts about a run that a diagnosis depends on, besides the scores.

    Attributes:
        split: The split that was scored.
        train_images: The number of training images; None for an endless source.
        from_scratch: Whether the run started from random weights.
        steps: The number of updates.
        learning_rate: The learning rate at its peak.
        last_loss: The mean training loss of the last updates; None if unknown.
        request: The request: the kind of run, its trained weights and time, the data and how they are read.
        pretrained: The weights to propose as a start; empty for a run that cannot have any.
        judged: Whether there were validation images; without them only a first classifier is made.
    """

    split: str
    train_images: int | None
    from_scratch: bool
    steps: int
    learning_rate: float
    last_loss: float | None
    request: Request
    pretrained: str = "ViT-B_16.npz"
    judged: bool = True


def diagnose(evaluation: Result, baselines: Baselines | None, circumstances: Circumstances) -> tuple[Diagnosis, ...]:
    """Return a result's problems, the worst first; none if all is well, or if it has no share of right answers.

    A result is at chance if it does not significantly beat always naming the commonest class. If so few images were scored
    that a good result could look the same, that is reported but does not count as failed. A result is below a baseline if it is
    significantly below it, given the number of images that each was scored on. A result that is below its own linear probe
    only within chance is reported, too, but has not failed.
    """
    return tuple(_findings(evaluation, baselines, circumstances))


def _findings(evaluation: Result, baselines: Baselines | None, run: Circumstances) -> Iterator[Diagnosis]:
    standing = evaluation.standing
    if run.split == "train" or standing is None:
        return  # scores on the training images show neither success nor failure
    if standing.at_chance:
        yield Diagnosis(standing.sentence(run.split), *_likely(len(evaluation.class_names), run))
    elif standing.untold:
        reason = f"That is neither success nor failure: score it on more labelled photos with {function('evaluate')}."
        yield Diagnosis(standing.sentence(run.split), reason, failed=False)
    if baselines is not None and baselines.split == run.split:
        yield from islice(_below(evaluation, standing.share, baselines, run), 1)


def _below(evaluation: Result, share: float, baselines: Baselines, run: Circumstances) -> Iterator[Diagnosis]:
    reached = right_of(share, evaluation.num_examples, run.split)
    probe = baselines.on_features
    for simple, figure in (("the bare pixels", baselines.on_pixels), ("its own frozen features", probe)):
        if figure is not None and significantly_below(share, evaluation.num_examples, figure, baselines.num_test):
            reason, remedy = _likely(len(evaluation.class_names), run)
            yield Diagnosis(
                f"Worse than a simple classifier on {simple}: {reached}, against {figure:.1%}.", reason, remedy
            )
    if probe is not None and share < probe:
        yield Diagnosis(
            f"Training did not beat a simple classifier on the network's frozen features: {reached}, against {probe:.1%}.",
            f"{counted(evaluation.num_examples, 'photo')} cannot tell whether the difference is more than chance.",
            _with(run, "adaptation.method=probe"),
            failed=False,
        )


def recent_loss(history: Sequence[Mapping[str, float]]) -> float | None:
    """Return the mean training loss of the last rows of a log; None if it has no loss."""
    losses = [row["loss"] for row in history if "loss" in row]
    return statistics.fmean(losses[-RECENT:]) if losses else None


def _likely(classes: int, run: Circumstances) -> tuple[str, Request]:
    """Return the likely reason why a network learned too little, and the request for a better run."""
    if run.last_loss is not None and run.last_loss > GUESSING_MARGIN * math.log(classes):
        lower = LOWER * run.learning_rate
        return (
            f"The loss ended at {run.last_loss:.3g}, above the {math.log(classes):.3g} of guessing, so the learning rate of "
            f"{run.learning_rate:g} is too high.",
            _with(run, f"optimizer.lr={lower:g}"),
        )
    if run.steps == 0 and not run.judged:
        recipe = SCRATCH if run.from_scratch else ADAPTED
        why = "Only a linear layer was fitted, because there are no validation photos to compare it with a network."
        return why, replace(run.request, recipe=recipe)
    if run.steps == 0:
        return "Only a linear layer was fitted.", _longer(run, FEW_STEPS)
    few_steps = f"Training was short: {counted(run.steps, 'update')}.", _longer(run, FEW_STEPS)
    if run.steps < FEW_STEPS and run.request.budget_seconds is not None:
        return few_steps
    if run.pretrained and run.from_scratch and run.train_images is not None and run.train_images < FEW_IMAGES:
        return (
            f"The network started from random weights, and {run.train_images:,} images are few for that. Start from trained "
            "weights.",
            replace(run.request, source=run.pretrained),
        )
    if run.steps < FEW_STEPS:
        return few_steps
    if run.from_scratch:
        reason = "The network started from random weights."
        return reason, replace(run.request, source=run.pretrained) if run.pretrained else _longer(run, run.steps)
    return (
        f"Training spoiled the features of the trained weights. The learning rate of {run.learning_rate:g} may be too "
        "high for so few images; let only the head learn.",
        _with(run, "adaptation.method=probe"),
    )


def _longer(run: Circumstances, steps: int) -> Request:
    """Return the request with several times its time; if that was not limited, with several times the steps."""
    if run.request.budget_seconds is None:
        return _with(run, f"steps={LENGTH_FACTOR * steps}")
    return replace(run.request, time=proposed(LENGTH_FACTOR * run.request.budget_seconds))


def _with(run: Circumstances, change: str) -> Request:
    return replace(run.request, overrides=(change,))


def too_late(seconds: float, budget_seconds: float) -> str:
    """Return in one sentence that a command missed its time budget."""
    return (
        f"The command took {seconds:.0f} s, longer than the {budget_seconds:.0f} s of {argument('time')}: the machine became "
        "slower than it was while the run was planned, or the time was too short."
    )


def diagnose_run(
    run: Run, training: TrainingResult, baselines: Baselines | None, evaluation: Result
) -> tuple[Diagnosis, ...]:
    """Return the problems of a run's result, the worst first; none if all is well."""
    train, tuned = run.splits["train"], run.kind == "fine-tune"
    scratch = run.source.startswith(RANDOM)
    recipe, request = run.recipe, run.request
    circumstances = Circumstances(
        split=run.data.scored_split(),
        train_images=None if train.endless else len(train),
        from_scratch=scratch,
        steps=training.steps,
        learning_rate=recipe.optimizer.lr,
        last_loss=recent_loss(training.history) if recipe.learns_by_softmax else None,
        request=Request(
            request.kind,
            data=request.data,
            source=run.plan.start if tuned and not scratch else None,
            time=request.time,
            classes=request.classes,
            skip_bad_images=request.skip_bad_images,
            plugins=request.plugins,
        ),
        pretrained=PRETRAINED if tuned else "",
        judged="validation" in run.splits,
    )
    return diagnose(evaluation, baselines, circumstances)

"""Whether a run failed, what is the likely reason, and which run would help: said before anything else of it."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from vitral.advice import argument, call, function
from vitral.evaluation.baselines import Baselines
from vitral.tasks.chance import significantly_below
from vitral.tasks.task import Result
from vitral.training.loop import TrainingResult
from vitral.training.planning.durations import proposed
from vitral.training.planning.plan import Run
from vitral.training.planning.request import ADAPTED, SCRATCH, Asked

FEW_STEPS = 300  # that a network needs to learn its head and adapt its features
FEW_IMAGES = 20_000  # below which a Vision Transformer does not learn from random weights what pre-trained ones know
GUESSING_MARGIN = 1.1  # times the loss of guessing, above which a loss has run away
RECENT = 3  # rows of the log, whose mean is the loss at the end
RANDOM = "random weights"  # how the source of a network that nothing has trained begins
PRETRAINED = "vit-s14@dinov2"  # a start to propose where random weights learned too little
LOWER = 0.1  # by which a learning rate that was too high is lowered
LONGER = 4  # times, that a run which made too few updates is made longer


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a result.

    Attributes:
        problem: one sentence with its figures.
        reason: the likely reason, one sentence.
        remedy: the run to ask for instead, where that may help.
        failed: whether the result is of no use; if not, it is only weaker than something simpler seems.
    """

    problem: str
    reason: str
    remedy: Asked | None = None
    failed: bool = True

    def sentence(self) -> str:
        """Return everything in one line."""
        return f"{self.problem} {self.reason}" + (f" This may help: {call(self.remedy.call())}" if self.remedy else "")


def merged(diagnosis: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Return what is to be said of a result, the problems of one reason and remedy as one, in their order."""
    said: dict[Diagnosis, list[str]] = {}
    for finding in diagnosis:
        said.setdefault(replace(finding, problem=""), []).append(finding.problem)
    return tuple(replace(finding, problem=" ".join(problems)) for finding, problems in said.items())


@dataclass(frozen=True)
class Circumstances:
    """What a diagnosis depends on besides the scores.

    Attributes:
        split: that was scored.
        train_images: to learn from; None of an endless source.
        from_scratch: whether the run began with random weights.
        steps: updates made.
        learning_rate: the recipe's peak.
        last_loss: mean training loss of the last updates; None if unknown.
        asked: what made the run: its kind, trained weights and time, the data and how they are read.
        pretrained: weights to propose as a start; empty for a run that cannot have any.
        judged: whether there were validation images, without which no more than a first classifier is made.
    """

    split: str
    train_images: int | None
    from_scratch: bool
    steps: int
    learning_rate: float
    last_loss: float | None
    asked: Asked
    pretrained: str = "ViT-B_16.npz"
    judged: bool = True


def diagnose(evaluation: Result, baselines: Baselines | None, circumstances: Circumstances) -> tuple[Diagnosis, ...]:
    """Return what is wrong with a result, the worst first; nothing if all is well, or it has no share of right answers.

    At chance is what does not significantly beat always naming the commonest class, unless so few images were scored that a
    good result could look the same, which is said and has not failed; below a baseline is what is significantly below it, for
    the images that each was scored on. A result that is below its own linear probe only within what chance explains is said,
    too, but has not failed.
    """
    return tuple(_findings(evaluation, baselines, circumstances))


def _findings(evaluation: Result, baselines: Baselines | None, run: Circumstances) -> Iterator[Diagnosis]:
    standing = evaluation.standing
    if run.split == "train" or standing is None:
        return  # of the training images themselves neither success nor failure can be told
    if standing.at_chance:
        yield Diagnosis(standing.sentence(run.split), *_likely(len(evaluation.class_names), run))
    elif standing.untold:
        reason = f"That is neither success nor failure: score it on more labelled images with {function('evaluate')}."
        yield Diagnosis(standing.sentence(run.split), reason, failed=False)
    if baselines is not None and baselines.split == run.split:
        yield from islice(_below(evaluation, standing.share, baselines, run), 1)


def _below(evaluation: Result, share: float, baselines: Baselines, run: Circumstances) -> Iterator[Diagnosis]:
    reached = f"{share:.1%} of {evaluation.num_examples} {run.split} images right"
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
            f"The difference is within what {evaluation.num_examples} images can tell.",
            _with(run, "adaptation.method=probe"),
            failed=False,
        )


def recent_loss(history: Sequence[Mapping[str, float]]) -> float | None:
    """Return the mean training loss of the last rows of a log; None if there is none."""
    losses = [row["loss"] for row in history if "loss" in row]
    return statistics.fmean(losses[-RECENT:]) if losses else None


def _likely(classes: int, run: Circumstances) -> tuple[str, Asked]:
    """Return the likely reason why a network learned too little, and the run to ask for instead."""
    if run.last_loss is not None and run.last_loss > GUESSING_MARGIN * math.log(classes):
        lower = LOWER * run.learning_rate
        return (
            f"The loss ended at {run.last_loss:.3g}, above the {math.log(classes):.3g} of guessing: the learning rate of "
            f"{run.learning_rate:g} is too high.",
            _with(run, f"optimizer.lr={lower:g}"),
        )
    if run.steps == 0 and not run.judged:
        recipe = SCRATCH if run.from_scratch else ADAPTED
        why = "Nothing was trained but a linear layer, for there are no validation images to compare it with a network by."
        return why, replace(run.asked, recipe=recipe)
    if run.steps == 0:
        return "Nothing was trained but a linear layer.", _longer(run, FEW_STEPS)
    few_steps = f"Only {run.steps} updates were made.", _longer(run, FEW_STEPS)
    if run.steps < FEW_STEPS and run.asked.budget_seconds is not None:
        return few_steps
    if run.pretrained and run.from_scratch and run.train_images is not None and run.train_images < FEW_IMAGES:
        return (
            f"The network began with random weights, for which {run.train_images:,} images are few; start from trained ones.",
            replace(run.asked, source=run.pretrained),
        )
    if run.steps < FEW_STEPS:
        return few_steps
    if run.from_scratch:
        began = "The network began with random weights."
        return began, replace(run.asked, source=run.pretrained) if run.pretrained else _longer(run, run.steps)
    return (
        f"Training spoiled the features that the network came with: the learning rate of {run.learning_rate:g} may be too "
        "high for so few images; let the head alone learn.",
        _with(run, "adaptation.method=probe"),
    )


def _longer(run: Circumstances, steps: int) -> Asked:
    """Return the run with several times its time, or where that was not limited with several times so many steps."""
    if run.asked.budget_seconds is None:
        return _with(run, f"steps={LONGER * steps}")
    return replace(run.asked, budget_seconds=proposed(LONGER * run.asked.budget_seconds))


def _with(run: Circumstances, change: str) -> Asked:
    return replace(run.asked, overrides=(change,))


def too_late(seconds: float, budget_seconds: float) -> Diagnosis:
    """Return what is wrong with a command that missed its time budget."""
    return Diagnosis(
        f"Longer than it was given: {seconds:.0f} s, where {argument('time')} said {budget_seconds:.0f} s.",
        "The machine became slower at the end than it was while the run was planned, or too little time was given.",
        failed=False,
    )


def diagnose_run(
    run: Run, training: TrainingResult, baselines: Baselines | None, evaluation: Result
) -> tuple[Diagnosis, ...]:
    """Return what is wrong with a run's result, the worst first; nothing if all is well."""
    train, tuned = run.data.splits["train"], run.kind == "fine-tune"
    scratch = run.classifier.provenance.source.startswith(RANDOM)
    asked = run.session.request.asked
    circumstances = Circumstances(
        split=run.data.scored_split(),
        train_images=None if train.endless else len(train),
        from_scratch=scratch,
        steps=training.steps,
        learning_rate=run.recipe.optimizer.lr,
        last_loss=recent_loss(training.history) if run.recipe.learns_by_softmax else None,
        asked=Asked(
            asked.kind,
            data=asked.data,
            source=run.plan.start if tuned and not scratch else None,
            budget_seconds=asked.budget_seconds,
            classes=asked.classes,
            skip_bad_images=asked.skip_bad_images,
            plugins=asked.plugins,
        ),
        pretrained=PRETRAINED if tuned else "",
        judged="validation" in run.data.splits,
    )
    return diagnose(evaluation, baselines, circumstances)

"""What to begin with where nothing is pre-trained: random weights, generated images, brackets, or images without their labels.

An own question of this project, after the paper's section 4.6: every start is given the same minutes, where the machine's speed
is measured, and ends in the same fine-tuning by some of the labels. Starts that need no labels see all training images.
"""

from collections.abc import Sequence
from dataclasses import replace

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, ranked
from vitral.studies.paper.scale import Scale

SCRATCH = "scratch"
SURE = 2.0  # deviations by which a start is to beat none
TUNING = 0.5  # of a start's length
VIEWS = ("augmentation.policy=multi-view", "augmentation.crop=resized", "augmentation.min_area=0.2")


def _starts(scale: Scale) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Return each start's label, its changes to the recipe, and its data; empty for the study's own."""
    return {
        "visualatom": ("VisualAtom", (), scale.generated),
        "procedural": ("procedural", ("method.name=procedural", "augmentation.decode=full"), "blank"),
        "masked": ("masked patches", ("method.name=masked-patches",), ""),
        "mae": ("MAE", ("method.name=masked-autoencoder", *scale.decoder), ""),
        "lejepa": ("LeJEPA", ("method.name=lejepa", *VIEWS), ""),
    }


def _trials(scale: Scale) -> Sequence[Trial]:
    network = scale.vits[-1].changes
    starts = _starts(scale)
    before = tuple(
        Trial(
            f"{name}-start",
            "",
            f"{label}, before",
            changes=(*network, *changes),
            kind="pre-train",
            data=data,
            timed=True,
        )
        for name, (label, changes, data) in starts.items()
    )
    labels = {SCRATCH: "random weights", **{name: label for name, (label, _, _) in starts.items()}}
    after = tuple(
        Trial(
            f"{name}-{share.replace('/', 'of')}",
            label,
            f"{label}, {'all' if share == '1' else share} labels",
            changes=network if name == SCRATCH else (),
            share=share,
            length=TUNING,
            after="" if name == SCRATCH else f"{name}-start",
        )
        for share in scale.few
        for name, label in labels.items()
    )
    return (*before, *after)


def _conclude(results: Results) -> str:
    """Return for each share of the labels which start is best, and which beat none by two deviations."""
    shares = dict.fromkeys(result.trial.share for result in results)
    return " ".join(_at(share, [result for result in results if result.trial.share == share]) for share in shares)


def _at(share: str, results: Results) -> str:
    results = [replace(result, trial=replace(result.trial, label=result.trial.series)) for result in results]
    images = f"With {results[0].facts.train_images:,} labelled images: {ranked(results)}"
    scratch = next((result for result in results if result.trial.name.startswith(SCRATCH)), None)
    if scratch is None:
        return images
    sure = [
        result.trial.series
        for result in results
        if result is not scratch and result.mean - scratch.mean > SURE * max(result.deviation, scratch.deviation)
    ]
    said = (
        f"More than two deviations above random weights: {', '.join(sure)}."
        if sure
        else "No start is two deviations above random weights."
    )
    return f"{images} {said}"


STARTS = Experiment(
    "starts",
    "Starts without private data",
    "Which start is worth its minutes where nothing is pre-trained, and for how many labels?",
    Axis("labelled images", log=True),
    _trials,
    _conclude,
    at=lambda facts: float(facts.train_images),
)

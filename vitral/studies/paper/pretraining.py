"""What to begin with: masked patch prediction (paper section 4.6, appendix B.1.2), and starts that need no private data.

All arms of "self-supervision" end in the same fine-tuning, by the labels of a part of the images, which are all that "from
scratch" ever sees, as ImageNet is in the paper; "supervised" is pre-trained with the labels of all images, as JFT-300M's are.

"starts" is a question of this project: every start is given the same minutes, if the machine's speed is measured, and ends in
the same fine-tuning by some of the labels. Starts that need no labels see all training images.
"""

from collections.abc import Sequence
from dataclasses import replace

from vitral.advice import capital
from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, ranked
from vitral.studies.paper.scale import Scale

SCRATCH = "scratch"
MASKED_PATCHES = ("method.name=masked-patches",)
SURE = 2.0  # deviations by which a start must beat none
TUNING = 0.5  # length of fine-tuning, as a factor of a start's
VIEWS = ("augmentation.policy=multi-view", "augmentation.crop=resized", "augmentation.min_area=0.2")

# Each pre-training's label, its changes to the recipe, and whether it sees all images.
PRETRAININGS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "masked": ("masked patches", MASKED_PATCHES, True),
    "supervised": ("all labels", (), True),
    SCRATCH: ("from scratch", (), False),
}


def _before(name: str, label: str, changes: tuple[str, ...], *, share: str = "1", data: str = "") -> Trial:
    """Return a pre-training, which is not drawn: others start from it."""
    return Trial(name, "", f"{label}, before", changes=changes, kind="pre-train", share=share, data=data)


def _pretraining_trials(scale: Scale) -> Sequence[Trial]:
    network, labelled = scale.vits[-1].changes, scale.labelled
    before = tuple(
        _before(f"{name}-pretraining", label, (*network, *method), share="1" if everything else labelled)
        for name, (label, method, everything) in PRETRAININGS.items()
    )
    tuning = tuple(
        Trial(name, "fine-tuned", label, label, tuned=True, share=labelled, after=f"{name}-pretraining")
        for name, (label, _, _) in PRETRAININGS.items()
    )
    return (*before, *tuning)


def _conclude_pretraining(results: Results) -> str:
    named = {result.trial.name: result for result in results}
    others = [named[other] for other in (SCRATCH, "supervised") if "masked" in named and other in named]
    sentences = "; ".join(against(named["masked"], other) for other in others)
    return capital(f"{sentences}.") if others else "Masked patches have no result, so nothing is compared."


SELF_SUPERVISION = Experiment(
    "self-supervision",
    "Masked patch prediction",
    "What is pre-training without labels worth, beside the same with labels and beside none?",
    Axis("pre-training"),
    _pretraining_trials,
    _conclude_pretraining,
)


def _starts(scale: Scale) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Return each start's label, its changes to the recipe, and its data; empty for the study's own."""
    return {
        "visualatom": ("VisualAtom", (), scale.generated),
        "procedural": ("procedural", ("method.name=procedural", "augmentation.decode=full"), "blank"),
        "masked": ("masked patches", MASKED_PATCHES, ""),
        "mae": ("MAE", ("method.name=masked-autoencoder", *scale.decoder), ""),
        "lejepa": ("LeJEPA", ("method.name=lejepa", *VIEWS), ""),
    }


def _start_trials(scale: Scale) -> Sequence[Trial]:
    network, starts = scale.vits[-1].changes, _starts(scale)
    before = tuple(
        replace(_before(f"{name}-start", label, (*network, *changes), data=data), timed=True)
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


def _conclude_starts(results: Results) -> str:
    """Return for each share of the labels which start is best, and which beat none by two deviations."""
    shares = dict.fromkeys(result.trial.share for result in results)
    return " ".join(_at(share, [result for result in results if result.trial.share == share]) for share in shares)


def _at(share: str, results: Results) -> str:
    results = [replace(result, trial=replace(result.trial, label=result.trial.series)) for result in results]
    images = f"With {results[0].facts.train_images:,} labelled images: {ranked(results)}"
    scratch = next((result for result in results if result.trial.name.startswith(SCRATCH)), None)
    if scratch is None:
        return images
    sure = ", ".join(
        result.trial.series
        for result in results
        if result is not scratch and result.mean - scratch.mean > SURE * max(result.deviation, scratch.deviation)
    )
    if not sure:
        return f"{images} No start is two deviations above random weights."
    return f"{images} More than two deviations above random weights: {sure}."


STARTS = Experiment(
    "starts",
    "Starts without private data",
    "Which start is worth its minutes where nothing is pre-trained, and for how many labels?",
    Axis("labelled images", log=True),
    _start_trials,
    _conclude_starts,
    at=lambda facts: float(facts.train_images),
)

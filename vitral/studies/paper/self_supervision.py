"""Masked patch prediction against supervised pre-training and none (paper section 4.6, appendix B.1.2).

All three end in the same fine-tuning, by the labels of a part of the images, which are all that "from scratch" ever sees, as
ImageNet is in the paper; "supervised" is pre-trained with the labels of all images, as JFT-300M's are.
"""

from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, capital
from vitral.studies.paper.scale import Scale

# What each is pre-trained by: a label, changes to the recipe, and whether on all images.
STARTS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "masked": ("masked patches", ("method.name=masked-patches",), True),
    "supervised": ("all labels", (), True),
    "scratch": ("from scratch", (), False),
}


def _trials(scale: Scale) -> Sequence[Trial]:
    pretraining = tuple(
        Trial(
            f"{name}-pretraining",
            "",
            f"{label}, before",
            changes=(*scale.vits[-1].changes, *method),
            kind="pre-train",
            share="1" if everything else scale.labelled,
        )
        for name, (label, method, everything) in STARTS.items()
    )
    tuning = tuple(
        Trial(name, "fine-tuned", label, label, tuned=True, share=scale.labelled, after=f"{name}-pretraining")
        for name, (label, _, _) in STARTS.items()
    )
    return (*pretraining, *tuning)


def _conclude(results: Results) -> str:
    named = {result.trial.name: result for result in results}
    pairs = (("masked", "scratch"), ("masked", "supervised"))
    said = [against(named[one], named[other]) for one, other in pairs if one in named and other in named]
    return capital(f"{'; '.join(said)}.") if said else "Masked patches have no result, so nothing is compared."


SELF_SUPERVISION = Experiment(
    "self-supervision",
    "Masked patch prediction",
    "What is pre-training without labels worth, beside the same with labels and beside none?",
    Axis("pre-training"),
    _trials,
    _conclude,
)

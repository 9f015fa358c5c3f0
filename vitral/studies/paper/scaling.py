"""Accuracy against the operations of pre-training, for ViT, ResNet and hybrid (paper Figure 5, Table 6; Scaling ViT)."""

from collections.abc import Sequence

from vitral.errors import StudyError
from vitral.report.chart import Axis, Point, Series, plain_number
from vitral.studies.paper.experiment import Experiment, Results, Trial, best, by_series, capital
from vitral.studies.paper.scale import Scale
from vitral.studies.paper.scaling_law import ScalingLaw, fit_scaling_law

LENGTHS = (0.25, 0.5, 1.0)


def _trials(scale: Scale) -> Sequence[Trial]:
    families = {"ViT": scale.vits, "ResNet": scale.resnets, "hybrid": scale.hybrids}
    return tuple(
        Trial(
            f"{network.name}-{length:g}",
            family,
            f"{network.label}, {'all' if length == 1.0 else f'{length:g} of the'} steps",
            changes=network.changes,
            length=length,
        )
        for family, networks in families.items()
        for network in networks
        for length in LENGTHS
    )


def _conclude(results: Results) -> str:
    sentences = []
    for family, mine in by_series(results).items():
        top = best(mine)
        law = _law(mine)
        sentence = law.sentence() if isinstance(law, ScalingLaw) else law
        sentences.append(
            f"{capital(family)}: best {top.text()} with {plain_number(top.facts.flops)} FLOPs ({top.trial.label}). {sentence}"
        )
    return " ".join(sentences)


def _law(results: Results) -> ScalingLaw | str:
    """Return the law that a family's errors follow, or why there is none."""
    points = [(result.facts.flops, 1.0 - value) for result in results for value in result.values]
    try:
        return fit_scaling_law(points, unit="FLOPs")
    except StudyError as refusal:
        return str(refusal)


def _curves(results: Results) -> tuple[Series, ...]:
    """Return the laws as curves of accuracy."""
    laws = {family: _law(mine) for family, mine in by_series(results).items()}
    return tuple(
        Series(f"{family}, fitted", tuple(Point(flops, 1.0 - error) for flops, error in law.curve()), "curve")
        for family, law in laws.items()
        if isinstance(law, ScalingLaw)
    )


SCALING = Experiment(
    "scaling",
    "Accuracy against the operations of pre-training",
    "Which family makes most of the same operations, and by which law does the error fall?",
    Axis("FLOPs of training", log=True),
    _trials,
    _conclude,
    joined=False,
    curves=_curves,
)

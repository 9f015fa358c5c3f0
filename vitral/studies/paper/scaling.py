"""Accuracy against the operations of pre-training and against the number of images, for ViT, ResNet and hybrid.

Operations: paper Figure 5, Table 6; Scaling ViT. Images: where a ViT overtakes a ResNet, and the hybrid, as the data grow
(Figures 3 and 4, section 4.3); as for Figure 4 the subsets are nested, settings and number of steps are the same for all, and
no regularization is added.
"""

import itertools
from collections.abc import Sequence

from vitral.advice import capital
from vitral.errors import StudyError
from vitral.report.chart import Axis, Point, Series, plain_number
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, best, by_series, differs
from vitral.studies.paper.scale import Scale
from vitral.studies.paper.scaling_law import ScalingLaw, fit_scaling_law

LENGTHS = (0.25, 0.5, 1.0)


def _data_size_trials(scale: Scale) -> Sequence[Trial]:
    return tuple(
        Trial(
            f"{network.name}-{share.replace('/', 'of')}",
            network.label,
            f"{network.label}, {'all' if share == '1' else f'{share} of the'} images",
            changes=network.changes,
            share=share,
        )
        for share in scale.shares
        for network in scale.compared
    )


def _data_size_conclude(results: Results) -> str:
    """Return for each rival of the ViT who leads at which sizes, and what the networks cost."""
    series = by_series(results)
    first, *rivals = series.values()
    costs = ", ".join(f"{name} {mine[0].facts.operations.macs / 1e6:,.0f} M" for name, mine in series.items())
    compared = [_against_rival(first, rival) for rival in rivals]
    return " ".join([*compared, f"Multiply-accumulates of an image: {costs}."])


def _against_rival(vit: Results, rival: Results) -> str:
    pairs = [(mine, other) for mine in vit for other in rival if mine.trial.share == other.trial.share]
    names = f"{vit[0].trial.series} and {rival[0].trial.series}"
    if not pairs:
        return f"{names} have no size in common yet."
    decided = [(mine.mean > other.mean, mine.facts.train_images) for mine, other in pairs if differs(mine, other)]
    end = f"at the most images, {against(*pairs[-1])}."
    if not decided:
        return f"{names}: the seeds decide at no size which is better, so no crossing was reached; {end}"
    changes = [(before, after) for before, after in itertools.pairwise(decided) if before[0] != after[0]]
    if not changes:
        leader, follower = (0, 1) if decided[0][0] else (1, 0)
        who = (vit[0].trial.series, rival[0].trial.series)
        where = "at every size" if len(decided) == len(pairs) else "wherever the seeds decide"
        return f"{names}: {who[leader]} is ahead of {who[follower]} {where}, so no crossing was reached; {end}"
    crossings = ", and ".join(
        f"between {before[1]:,} and {after[1]:,} images the {'first' if after[0] else 'second'} takes the lead"
        for before, after in changes
    )
    return f"{names} cross: {crossings}; {end}"


DATA_SIZE = Experiment(
    "data-size",
    "How many images a ViT needs",
    "Where does a ViT overtake a ResNet, and the hybrid, as the training images grow in number?",
    Axis("training images", log=True),
    _data_size_trials,
    _data_size_conclude,
    at=lambda facts: float(facts.train_images),
)


def _scaling_trials(scale: Scale) -> Sequence[Trial]:
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


def _scaling_conclude(results: Results) -> str:
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
    _scaling_trials,
    _scaling_conclude,
    joined=False,
    curves=_curves,
)

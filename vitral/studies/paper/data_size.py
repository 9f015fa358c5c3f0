"""Where a ViT overtakes a ResNet, and the hybrid, as the data grow (paper Figures 3 and 4, section 4.3).

As for Figure 4 the subsets are nested; settings and number of steps are the same for all, and no regularization is added.
"""

import itertools
from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, by_series, differs
from vitral.studies.paper.scale import Scale


def _trials(scale: Scale) -> Sequence[Trial]:
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


def _conclude(results: Results) -> str:
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
    _trials,
    _conclude,
    at=lambda facts: float(facts.train_images),
)

"""What the classifier reads: the class token, the average of the patches, attention pooling; each at its own rate.

Paper Figure 9 and appendix D.3: its two heads work equally well, but not at the same learning rate. MAP is Scaling ViT's.
"""

from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import (
    Experiment,
    Results,
    Trial,
    at_edge,
    by_series,
    how_selected,
    ranked,
    selected,
)
from vitral.studies.paper.scale import Scale

HEADS = {"token": "class token", "gap": "average", "map": "attention pooling (MAP)"}


def _trials(scale: Scale) -> Sequence[Trial]:
    return tuple(
        Trial(
            f"{pooling}-{rate:g}",
            name,
            f"{name}, rate {rate:g}",
            rate,
            (*scale.vits[-1].changes, f"pooling={pooling}", f"optimizer.lr={rate:g}"),
        )
        for pooling, name in HEADS.items()
        for rate in scale.rates["adam"]
    )


def _conclude(results: Results) -> str:
    series = by_series(results)
    chosen = [selected(mine) for mine in series.values()]
    rates = (f"{each.trial.series} at {each.trial.at:g}{at_edge(each, series[each.trial.series])}" for each in chosen)
    return f"Each at its own best rate, {how_selected(results)} ({', '.join(rates)}): {ranked(chosen)}"


HEAD = Experiment(
    "head",
    "Class token, average or attention pooling",
    "Does it matter what the classifier reads, once each head has its own learning rate?",
    Axis("learning rate", log=True),
    _trials,
    _conclude,
)

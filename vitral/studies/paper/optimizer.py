"""Adam against SGD for pre-training, and Muon beside them (paper Table 7, appendix D.1)."""

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
from vitral.studies.paper.scale import Scale, StudyNetwork

NAMES = {"adam": "Adam", "sgd": "SGD", "muon": "Muon"}
# What goes with each in the recipes of the papers: BiT's coupled decay of SGD, and Muon's as in our own recipes.
SETTINGS = {
    "adam": (),
    "sgd": ("optimizer.momentum=0.9", "optimizer.weight_decay=1e-4"),
    "muon": ("optimizer.momentum=0.95", "optimizer.weight_decay=0.02", "optimizer.ns_steps=3"),
}


def _trials(scale: Scale) -> Sequence[Trial]:
    return tuple(
        _trial(network, optimizer, rate)
        for network in (scale.resnets[0], scale.vits[-1])
        for optimizer in NAMES
        for rate in scale.rates[optimizer]
    )


def _trial(network: StudyNetwork, optimizer: str, rate: float) -> Trial:
    series = f"{network.label}, {NAMES[optimizer]}"
    named = "adamw" if optimizer == "adam" else optimizer
    changes = (f"optimizer.name={named}", f"optimizer.lr={rate:g}", *SETTINGS[optimizer])
    return Trial(
        f"{network.name}-{optimizer}-{rate:g}", series, f"{series}, rate {rate:g}", rate, (*network.changes, *changes)
    )


def _conclude(results: Results) -> str:
    series = by_series(results)
    chosen = [selected(mine) for mine in series.values()]
    sentences = [f"Each optimizer at its own best rate, {how_selected(results)}."]
    for network in dict.fromkeys(result.trial.changes[0] for result in chosen):
        sentences.append(ranked([result for result in chosen if result.trial.changes[0] == network]))
    edges = ", ".join(each.trial.label for each in chosen if at_edge(each, series[each.trial.series]))
    if edges:
        sentences.append(f"The best rate is at the edge of those tried for {edges}: there another may be better.")
    return " ".join(sentences)


OPTIMIZER = Experiment(
    "optimizer",
    "Adam, SGD and Muon for pre-training",
    "Which optimizer learns most in equal steps, on a ResNet and on a ViT?",
    Axis("learning rate", log=True),
    _trials,
    _conclude,
)

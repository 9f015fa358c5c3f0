"""The paper's ablations and small comparisons, each a study: head, optimizer, patches, positions, shape, resolution.

Head: Figure 9 and appendix D.3, whose two heads work equally well, but not at the same learning rate; MAP is Scaling ViT's.
Optimizer: Table 7, D.1; and Muon. Patches that overlap are T2T-ViT's and CvT's idea in its plainest form. Positions: Table 8,
D.4; at the input alone fixed ones, too (Better plain ViT), and DINOv3's rotary ones, which are in every block. Shape: Figure 8,
D.2. Resolution: section 3.2, with resized position embeddings.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import (
    Experiment,
    Results,
    Trial,
    TrialResult,
    against,
    at_edge,
    best,
    by_series,
    how_selected,
    ranked,
    selected,
)
from vitral.studies.paper.scale import Scale, Shape, StudyNetwork
from vitral.training.settings.recipe import ROTARY

HEADS = {"token": "class token", "gap": "average", "map": "attention pooling (MAP)"}
OPTIMIZER_NAMES = {"adam": "Adam", "sgd": "SGD", "muon": "Muon"}
# What goes with each in the recipes of the papers: BiT's coupled decay of SGD, and Muon's as in our own recipes.
OPTIMIZER_SETTINGS = {
    "adam": (),
    "sgd": ("optimizer.momentum=0.9", "optimizer.weight_decay=1e-4"),
    "muon": ("optimizer.momentum=0.95", "optimizer.weight_decay=0.02", "optimizer.ns_steps=3"),
}
APART = "patches side by side"
OVERLAPPING = "patches that overlap by half"
POSITION_KINDS = {"learned": "1-D", "learned-2d": "2-D"}
POSITION_PLACES = {"input": "at the input", "layers": "every layer", "layers-shared": "every layer, shared"}
# At the input alone, as in Table 8.
NONE = "none"
RELATIVE = "relative"
FIXED = "sincos-2d"
BASE = "base"
PRETRAINING = "pretraining"
TUNED = "pre-trained small, fine-tuned"
SCRATCH = "trained from scratch"


def _head_trials(scale: Scale) -> Sequence[Trial]:
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


def _head_conclude(results: Results) -> str:
    series = by_series(results)
    chosen = [selected(mine) for mine in series.values()]
    rates = (f"{each.trial.series} at {each.trial.at:g}{at_edge(each, series[each.trial.series])}" for each in chosen)
    return f"Each at its own best rate, {how_selected(results)} ({', '.join(rates)}): {ranked(chosen)}"


HEAD = Experiment(
    "head",
    "Class token, average or attention pooling",
    "Does it matter what the classifier reads, once each head has its own learning rate?",
    Axis("learning rate", log=True),
    _head_trials,
    _head_conclude,
)


def _optimizer_trials(scale: Scale) -> Sequence[Trial]:
    return tuple(
        _trial(network, optimizer, rate)
        for network in (scale.resnets[0], scale.vits[-1])
        for optimizer in OPTIMIZER_NAMES
        for rate in scale.rates[optimizer]
    )


def _trial(network: StudyNetwork, optimizer: str, rate: float) -> Trial:
    series = f"{network.label}, {OPTIMIZER_NAMES[optimizer]}"
    named = "adamw" if optimizer == "adam" else optimizer
    changes = (f"optimizer.name={named}", f"optimizer.lr={rate:g}", *OPTIMIZER_SETTINGS[optimizer])
    return Trial(
        f"{network.name}-{optimizer}-{rate:g}", series, f"{series}, rate {rate:g}", rate, (*network.changes, *changes)
    )


def _optimizer_conclude(results: Results) -> str:
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
    _optimizer_trials,
    _optimizer_conclude,
)


def _patches_trials(scale: Scale) -> Sequence[Trial]:
    return tuple(
        Trial(
            f"patch{size}-stride{stride}",
            APART if size == stride else OVERLAPPING,
            f"patch {size}, stride {stride}",
            changes=(*scale.vits[-1].changes, f"patch_size={size}", f"patch_stride={stride}"),
        )
        for size, stride in scale.patches
    )


def _patches_conclude(results: Results) -> str:
    sentences = [ranked(results)]
    series = by_series(results)
    for overlapping in series.get(OVERLAPPING, []):
        nearest = min(series.get(APART, []), key=lambda result: _factor(result, overlapping), default=None)
        if nearest is not None:
            sentences.append(f"At the nearest number of tokens: {against(overlapping, nearest)}.")
    return " ".join(sentences)


def _factor(first: TrialResult, second: TrialResult) -> float:
    """Return the logarithm of the factor by which two numbers of tokens differ."""
    return abs(math.log(first.facts.tokens / second.facts.tokens))


PATCHES = Experiment(
    "patches",
    "Patch size and overlap",
    "What do more tokens give, by smaller patches or by patches that overlap, and what do they cost?",
    Axis("tokens", log=True),
    _patches_trials,
    _patches_conclude,
    at=lambda facts: float(facts.tokens),
)


def _position_trials(scale: Scale) -> Sequence[Trial]:
    network = scale.vits[-1].changes
    first = POSITION_PLACES["input"]
    return (
        Trial(NONE, first, "no position embedding", NONE, (*network, "position=none")),
        *(
            Trial(f"{kind}-{at}", where, f"{name} {where}", name, (*network, f"position={kind}", f"position_at={at}"))
            for at, where in POSITION_PLACES.items()
            for kind, name in POSITION_KINDS.items()
        ),
        Trial(RELATIVE, first, RELATIVE, RELATIVE, (*network, "position=relative")),
        Trial(FIXED, first, "fixed 2-D", "fixed 2-D", (*network, f"position={FIXED}")),
        Trial(ROTARY, first, ROTARY, ROTARY, (*network, f"position={ROTARY}")),
    )


def _position_conclude(results: Results) -> str:
    without = [result for result in results if result.trial.name == NONE]
    others = [result for result in results if result.trial.name != NONE]
    sentences = [ranked(others)] if others else []
    if without and others:
        sentences.append(f"What a position embedding is worth at all: {against(best(others), without[0])}.")
    return " ".join(sentences)


POSITION = Experiment(
    "position",
    "Position embeddings",
    "What does the position embedding do, which kind is best, and where does it belong?",
    Axis("position embedding"),
    _position_trials,
    _position_conclude,
    draws_positions=True,
)


def _shapes_trials(scale: Scale) -> Sequence[Trial]:
    base, model = scale.shape, scale.vits[-1].changes[0]
    shapes: dict[str, tuple[str, Shape]] = {BASE: (BASE, base)}
    for factor in base.factors:
        depth, mlp_width = round(base.depth * factor), round(base.mlp_width * factor)
        width, heads = round(base.width * factor), round(base.heads * factor)
        shapes[f"depth-{depth}"] = ("depth", replace(base, depth=depth))
        shapes[f"width-{width}"] = ("width", replace(base, width=width, heads=heads))
        shapes[f"mlp-{mlp_width}"] = ("MLP", replace(base, mlp_width=mlp_width))
        shapes[f"all-{factor:g}"] = ("all", replace(base, depth=depth, width=width, heads=heads, mlp_width=mlp_width))
    for patch in base.patches:
        shapes[f"patch-{patch}"] = ("patch size", replace(base, patch=patch))
    return tuple(
        Trial(name, series, name.replace("-", " ", 1), changes=(model, *shape.changes()))
        for name, (series, shape) in shapes.items()
    )


def _shapes_conclude(results: Results) -> str:
    series = by_series(results)
    base = series.pop(BASE, [])
    if not base or not series:
        return "The base network or everything beside it has no result, so nothing is compared."
    gains = (against(best(mine), base[0]) for mine in series.values())
    return f"The best of each direction, of several that were tried: {'; '.join(gains)}."


SHAPES = Experiment(
    "shapes",
    "The shape of the encoder",
    "Where do more operations pay most: in depth, width, the MLP or smaller patches?",
    Axis("FLOPs of training", log=True),
    _shapes_trials,
    _shapes_conclude,
    joined=False,
)


def _resolution_trials(scale: Scale) -> Sequence[Trial]:
    network, small = scale.vits[-1].changes, scale.sizes[0]
    return (
        Trial(PRETRAINING, "", f"pre-training at {small} pixels", changes=_sized(small, *network), kind="pre-train"),
        *(
            Trial(
                f"finetune-{size}",
                TUNED,
                f"fine-tuned at {size} pixels",
                float(size),
                _sized(size),
                tuned=True,
                after=PRETRAINING,
            )
            for size in scale.sizes
        ),
        *(
            Trial(f"scratch-{size}", SCRATCH, f"from scratch at {size} pixels", float(size), _sized(size, *network))
            for size in scale.sizes
        ),
    )


def _sized(size: int, *changes: str) -> tuple[str, ...]:
    return (*changes, f"image_size={size}")


def _resolution_conclude(results: Results) -> str:
    series = by_series(results)
    tuned, scratch = series.get(TUNED, []), series.get(SCRATCH, [])
    sentences = []
    if len(tuned) > 1:
        sentences.append(f"What resolution gives to the same weights: {against(tuned[-1], tuned[0])}.")
    for result, other in itertools.product(tuned, scratch):
        if other.trial.at == result.trial.at:
            more = result.facts.flops / other.facts.flops  # two trainings take more than one
            cost = f"with {more:.2g} times the operations of training"
            sentences.append(f"At {result.trial.at:g} pixels, {against(result, other)}, {cost}.")
    return " ".join(sentences)


RESOLUTION = Experiment(
    "resolution",
    "Fine-tuning at a higher resolution",
    "What do more pixels give to weights that were pre-trained with fewer?",
    Axis("pixels a side in fine-tuning"),
    _resolution_trials,
    _resolution_conclude,
)

"""The shape of the encoder: depth, width, MLP and patch size, each alone and all at once (paper Figure 8, appendix D.2)."""

from collections.abc import Sequence
from dataclasses import replace

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, best, by_series
from vitral.studies.paper.scale import Scale, Shape

BASE = "base"


def _trials(scale: Scale) -> Sequence[Trial]:
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


def _conclude(results: Results) -> str:
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
    _trials,
    _conclude,
    joined=False,
)

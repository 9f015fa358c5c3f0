"""Position embeddings: none, 1-D, 2-D, relative; at the input, in every layer, shared (paper Table 8, appendix D.4).

Beside them, at the input alone, fixed ones (Better plain ViT), and DINOv3's rotary ones, which are in every block.
"""

from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, best, ranked
from vitral.studies.paper.scale import Scale
from vitral.training.settings.recipe import ROTARY

KINDS = {"learned": "1-D", "learned-2d": "2-D"}
PLACES = {"input": "at the input", "layers": "every layer", "layers-shared": "every layer, shared"}
# At the input alone, as in Table 8.
NONE = "none"
RELATIVE = "relative"
FIXED = "sincos-2d"


def _trials(scale: Scale) -> Sequence[Trial]:
    network = scale.vits[-1].changes
    first = PLACES["input"]
    return (
        Trial(NONE, first, "no position embedding", NONE, (*network, "position=none")),
        *(
            Trial(f"{kind}-{at}", where, f"{name} {where}", name, (*network, f"position={kind}", f"position_at={at}"))
            for at, where in PLACES.items()
            for kind, name in KINDS.items()
        ),
        Trial(RELATIVE, first, RELATIVE, RELATIVE, (*network, "position=relative")),
        Trial(FIXED, first, "fixed 2-D", "fixed 2-D", (*network, f"position={FIXED}")),
        Trial(ROTARY, first, ROTARY, ROTARY, (*network, f"position={ROTARY}")),
    )


def _conclude(results: Results) -> str:
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
    _trials,
    _conclude,
    draws_positions=True,
)
